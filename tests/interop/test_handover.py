"""Apache Kafka continues where barnabas stopped or was killed, and the other way: nothing is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.interop.nodes import LIVING_CLIENTS, Turns
from tests.support.requirements import need_apache_kafka

TOPIC = "numbers"
PARTITIONS = 3
CONFIGS = {"segment.bytes": "1048576", "max.message.bytes": "654321", "retention.ms": "86400000"}
ROUNDS = 2
BURST = 4_000
VALUE = b"%08d" + b"x" * 400
PATIENCE_S = 240.0
STARTING = (
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)

# Snapshots of the metadata log after every few records: each start reads one.
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1500"}


class Sender:
    """One idempotent producer that outlives all the brokers: it numbers what it sends, to each partition."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.num.messages": 50,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 500,
                "statistics.interval.ms": 0,
            }
        )
        self.sent = [0] * PARTITIONS
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        """For each partition the offset of each number."""
        self.failures: list[KafkaError] = []

    def send(self, count: int) -> None:
        for _ in range(count):
            for partition in range(PARTITIONS):
                number = self.sent[partition]
                self.sent[partition] += 1
                self._producer.produce(
                    TOPIC, VALUE % number, partition=partition, on_delivery=self._on_delivery
                )
            self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
            return
        number = int((message.value() or b"")[:8])
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.acknowledged[partition][number] = offset

    def wait_for(self, total: int) -> None:
        """Wait until this many are acknowledged in all. Others stay on their way."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.total < total and not self.failures:
            assert time.monotonic() < deadline_s
            self._producer.poll(0.01)
        assert not self.failures

    @property
    def total(self) -> int:
        return sum(map(len, self.acknowledged))

    def finish(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0
        assert not self.failures
        assert [len(found) for found in self.acknowledged] == self.sent


def end_of(bootstrap: str, place: TopicPartition) -> int:
    """The partition's end; Kafka doesn't know it yet for a moment after it has started."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    while True:
        try:
            return admin.list_offsets({place: OffsetSpec.latest()})[place].result(PATIENCE_S).offset
        except KafkaException as error:
            if error.args[0].code() not in STARTING:
                raise


def read_all(bootstrap: str, partition: int) -> Iterator[tuple[int, int]]:
    """(offset, number) of everything in the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    end = end_of(bootstrap, TopicPartition(TOPIC, partition))
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    offset = -1
    while offset < end - 1:
        messages = consumer.consume(1000, timeout=PATIENCE_S)
        assert messages, f"nothing behind offset {offset} of {partition}, which ends at {end}"
        for message in messages:
            assert message.error() is None, message.error()
            offset = message.offset() or 0
            yield offset, int((message.value() or b"")[:8])
    consumer.close()


def check_records(turns: Turns, sender: Sender) -> None:
    """Every number once and in order, at the offset that its acknowledgement said."""
    for partition in range(PARTITIONS):
        found = list(read_all(turns.bootstrap, partition))
        assert found == [(number, number) for number in range(sender.sent[partition])]
        for number, offset in sender.acknowledged[partition].items():
            assert offset == number


def describe(turns: Turns) -> tuple[str, dict[str, str]]:
    """The topic's id, and its own settings as this broker gives them."""
    admin = AdminClient({"bootstrap.servers": turns.bootstrap})
    topics = admin.list_topics(timeout=PATIENCE_S).topics
    assert set(topics) >= {TOPIC}
    assert len(topics[TOPIC].partitions) == PARTITIONS
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    entries = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    configs = {name: entry.value for name, entry in entries.items() if name in CONFIGS}
    collection = TopicCollection([TOPIC])
    found = admin.describe_topics(collection)[TOPIC].result(PATIENCE_S)
    return str(found.topic_id), configs


def create_topic(turns: Turns) -> None:
    admin = AdminClient({"bootstrap.servers": turns.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=CONFIGS)])[TOPIC].result(PATIENCE_S)


def churn(turns: Turns, name: str) -> None:
    """Metadata that comes, goes and comes again under the same name."""
    admin = AdminClient({"bootstrap.servers": turns.bootstrap})
    for _ in range(2):
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(PATIENCE_S)
        admin.delete_topics([name])[name].result(PATIENCE_S)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE_S)


@pytest.mark.timeout(600)
@pytest.mark.one_run_in(2)
@pytest.mark.parametrize(
    ("ending", "settings"),
    [("stop", {}), ("kill", SNAPSHOTS)],
    ids=["each shut down", "each killed under load, with snapshots"],
)
def test_kafka_and_barnabas_take_turns_and_nothing_is_lost_or_doubled(
    tmp_path: Path, ending: str, settings: dict[str, str]
) -> None:
    need_apache_kafka()
    producer_ids: list[int] = []
    described = None
    names: list[str] = []
    with Turns(tmp_path, settings | LIVING_CLIENTS) as turns:
        sender = Sender(turns.bootstrap)
        for turn in range(2 * ROUNDS + 1):
            who = ("barnabas", "kafka")[turn % 2]
            turns.start(who)
            if turn == 0:
                create_topic(turns)
                described = describe(turns)
            sender.finish()  # requests that the last broker may have left without an answer
            check_records(turns, sender)
            assert describe(turns) == described
            assert set(AdminClient({"bootstrap.servers": turns.bootstrap}).list_topics().topics) >= {*names}
            names.append(f"churn.{turn}")
            churn(turns, names[-1])
            producer_ids.append(turns.new_producer_id())
            before = sender.total
            sender.send(BURST)
            if ending == "kill":
                sender.wait_for(before + BURST)
                turns.kill()
            else:
                sender.finish()
                turns.stop()
            strays = [path.name for path in turns.data.glob("*-stray")]
            assert not strays
        assert len(set(producer_ids)) == len(producer_ids)
