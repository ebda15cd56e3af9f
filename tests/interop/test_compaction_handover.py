"""One broker continues compaction where the other stopped or was killed in a pass. Readers see the latest values."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.nodes import Turns
from tests.support.requirements import need_apache_kafka
from tests.support.waiting import until

TOPIC = "latest"
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "internal.segment.bytes": "100000",
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "0",
}
KEYS = 60
ROUNDS = 4


class Table:
    """The values that readers have to see: the latest committed one of each key, or None if it was deleted."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.expected: dict[bytes, bytes | None] = {}
        self.chance = random.Random(7)
        self.number = 0

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.turns.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIGS)])[TOPIC].result(60)

    def write(self, transactions: int = 12, records: int = 80) -> None:
        """Transactions, one in three of which is aborted; then a plain record that is more than a segment."""
        producer = Producer(
            {"bootstrap.servers": self.turns.bootstrap, "transactional.id": "writer", "linger.ms": 5}
        )
        producer.init_transactions(60)
        for _ in range(transactions):
            written: dict[bytes, bytes | None] = {}
            producer.begin_transaction()
            for _ in range(records):
                self.number += 1
                key = b"k%d" % self.chance.randrange(KEYS)
                written[key] = None if self.chance.random() < 0.1 else b"%d " % self.number + b"x" * 100
                producer.produce(TOPIC, written[key], key)
            if self.chance.random() < 0.66:
                producer.commit_transaction(60)
                self.expected |= written
            else:
                # before anything was sent there is nothing that Kafka would end, and librdkafka takes that for fatal
                producer.flush(60)
                producer.abort_transaction(60)
        plain = Producer({"bootstrap.servers": self.turns.bootstrap})
        for key in (b"filler", b"filler", b"filler"):
            self.expected[key] = b"%d" % self.number + b"y" * 60_000
            plain.produce(TOPIC, self.expected[key], key)
            plain.flush(60)

    def read(self) -> dict[bytes, bytes]:
        """By a reader of committed records, who drops what was deleted."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.turns.bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: dict[bytes, bytes | None] = {}
        while True:
            message = consumer.poll(60)
            assert message is not None
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    break
                continue  # such as a coordinator that isn't there yet: the client goes on by itself
            key = message.key()
            assert isinstance(key, bytes)
            found[key] = message.value()
        consumer.close()
        return {key: value for key, value in found.items() if value is not None}

    def check(self) -> None:
        expected = {key: value for key, value in self.expected.items() if value is not None}
        assert self.read() == expected

    @property
    def folder(self) -> Path:
        return self.turns.data / f"{TOPIC}-0"

    def is_compacted(self) -> bool:
        checkpoint = self.turns.data / "cleaner-offset-checkpoint"
        active = max(int(path.stem) for path in self.folder.glob("*.log"))
        return checkpoint.exists() and f"{TOPIC} 0 {active}\n" in checkpoint.read_text()

    def until_compacted(self) -> None:
        until(self.is_compacted, "the log is compacted")

    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.glob("*.log"))


def is_amid_a_pass(table: Table) -> bool:
    """Where one was over before anybody saw it there is more to do: for 300 ms Kafka throttles nothing."""
    if [*table.folder.glob("*.cleaned")]:
        return True
    if table.is_compacted():
        table.write()
    return False


@pytest.mark.timeout(600)
def test_barnabas_and_kafka_take_turns_at_compacting_one_log(tmp_path: Path) -> None:
    need_apache_kafka()
    with Turns(tmp_path, {"log.cleaner.backoff.ms": "50"}) as turns:
        table = Table(turns)
        for number in range(ROUNDS):
            turns.start("barnabas" if number % 2 == 0 else "kafka")
            if number == 0:
                table.create()
            else:
                table.check()
            table.write()
            table.until_compacted()
            table.check()
            assert table.bytes() < 400_000
            turns.stop()
        for who in ("barnabas", "kafka"):
            turns.start(who)
            table.check()
            turns.stop()


@pytest.mark.timeout(600)
@pytest.mark.one_run_in(2)
@pytest.mark.parametrize("first", ["barnabas", "kafka"])
def test_either_broker_goes_on_where_the_other_was_killed_during_a_pass(tmp_path: Path, first: str) -> None:
    need_apache_kafka()
    second = "kafka" if first == "barnabas" else "barnabas"
    with Turns(tmp_path, {"log.cleaner.backoff.ms": "50", "log.cleaner.enable": "false"}) as turns:
        table = Table(turns)
        turns.start(first)
        table.create()
        table.write(transactions=40)
        turns.stop()
        turns.settings |= {"log.cleaner.enable": "true", "log.cleaner.io.max.bytes.per.second": "60000"}
        turns.start(first)
        until(lambda: is_amid_a_pass(table), "a pass is under way")
        turns.kill()
        del turns.settings["log.cleaner.io.max.bytes.per.second"]
        turns.start(second)
        table.check()
        table.write()
        table.until_compacted()
        table.check()
        assert not [*table.folder.glob("*.cleaned"), *table.folder.glob("*.swap")]
        turns.stop()
        turns.start(first)
        table.check()
