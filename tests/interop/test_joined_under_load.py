"""Under load: leaders move between a broker of ours and Apache Kafka's, ours is killed and comes back, and so is Kafka
with its controller."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.interop.joining import (
    KAFKAS,
    OURS,
    PATIENCE_S,
    admin,
    joining,
    kafka_that_is_joined,
    wait_until_both_are_there,
)
from tests.support import waiting
from tests.support.apache_kafka import ApacheKafka
from tests.support.wire import Client

TOPIC = "moving"
PARTITIONS = 2
ROUNDS = 3
PER_ROUND = 300
"""Records that are acknowledged between two changes, and committed ones beside them."""


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    """Whose brokers are given up soon."""
    with kafka_that_is_joined(tmp_path / "kafka", "broker.session.timeout.ms=3000") as kafka:
        yield kafka


@pytest.fixture
def ours(tmp_path: Path, kafka: ApacheKafka) -> Iterator[barnabas.Broker]:
    with joining(tmp_path, kafka) as broker:
        yield broker


class Sending(threading.Thread):
    """A producer that sends to each of some partitions until it is ended; `sent` are the numbers that were
    acknowledged, or committed, by partition."""

    def __init__(
        self,
        bootstrap: str,
        *,
        transactional_id: str | None = None,
        partitions: Sequence[int] = range(PARTITIONS),
    ) -> None:
        super().__init__(daemon=True)
        self.partitions = partitions
        self.sent: dict[int, list[int]] = defaultdict(list)
        self.error: BaseException | None = None
        self._ends = False
        self._id = transactional_id
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
        }
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        self._producer = Producer(settings)

    def run(self) -> None:
        try:
            if self._id is not None:
                self._producer.init_transactions(PATIENCE_S)
            number = 0
            while not self._ends:
                number = self._send(number) if self._id is None else self._transact(number)
            assert self._producer.flush(PATIENCE_S) == 0
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self._ends = True
        self.join(PATIENCE_S)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error

    def count(self) -> int:
        return sum(map(len, self.sent.values()))

    def _send(self, number: int) -> int:
        for partition in self.partitions:
            self._producer.produce(
                TOPIC, b"plain %d" % number, partition=partition, on_delivery=self._delivered
            )
        self._producer.poll(0.005)
        return number + 1

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        self.sent[message.partition()].append(int(message.value().split()[1]))

    def _transact(self, number: int) -> int:
        numbers = range(number, number + 5)
        self._producer.begin_transaction()
        try:
            for each in numbers:
                for partition in self.partitions:
                    self._producer.produce(
                        TOPIC, b"%s %d" % (str(self._id).encode(), each), partition=partition
                    )
            self._producer.commit_transaction(PATIENCE_S)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if not error.txn_requires_abort():
                raise
            self._producer.abort_transaction(PATIENCE_S)
        else:
            for partition in self.partitions:
                self.sent[partition] += numbers
        return number + 5


def reassign(bootstrap: str, replicas: list[list[int]]) -> None:
    """Those of each partition."""
    topic = ReassignableTopic(
        name=TOPIC,
        partitions=[
            ReassignablePartition(partition_index=index, replicas=wanted)
            for index, wanted in enumerate(replicas)
        ],
    )
    with Client.of(bootstrap) as client:
        answer = client.ask(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=60_000), 0)
    assert not answer.error_code
    assert not any(partition.error_code for each in answer.responses for partition in each.partitions)


def lead(asking: AdminClient, bootstrap: str, leaders: list[int]) -> None:
    """The partitions' replicas in another order, and the first of each elected."""
    reassign(bootstrap, [[leader, KAFKAS + OURS - leader] for leader in leaders])
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]

    def do_lead() -> bool:
        asking.elect_leaders(ElectionType.PREFERRED, partitions).result(PATIENCE_S)
        return [found.leader for _, found in sorted(described(asking).items())] == leaders

    waiting.until(do_lead, f"{leaders} lead", PATIENCE_S)


def described(asking: AdminClient) -> dict[int, Any]:
    partitions: dict[int, Any] = asking.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions
    return partitions


def in_sync(asking: AdminClient) -> bool:
    return all(len(partition.isrs) == 2 for partition in described(asking).values())


def committed(bootstrap: str) -> dict[int, list[bytes]]:
    """What a reader of committed records finds in each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[bytes]] = defaultdict(list)
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        error = message.error()
        if error is None:
            found[message.partition() or 0].append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition() or 0)
    consumer.close()
    return found


def go_on(sending: Sequence[Sending]) -> None:
    """Returns once each has had so many more acknowledged."""
    until = [each.count() + PER_ROUND for each in sending]
    waiting.until(
        lambda: (
            any(each.error for each in sending)
            or all(each.count() >= count for each, count in zip(sending, until, strict=True))
        ),
        "more is acknowledged",
        PATIENCE_S,
    )


def end_and_find_all(sending: Sequence[Sending], bootstrap: str) -> None:
    """What a plain and a transactional producer had acknowledged is there once, in order, and nothing else."""
    for each in sending:
        each.end()
    found = committed(bootstrap)
    for partition in range(PARTITIONS):
        for each, name in zip(sending, ("plain", "transactional"), strict=True):
            read = [int(value.split()[1]) for value in found[partition] if value.startswith(name.encode())]
            assert read == each.sent[partition]


def test_nothing_is_lost_doubled_or_out_of_order_while_leaders_move_and_ours_is_killed(
    tmp_path: Path, kafka: ApacheKafka, ours: barnabas.Broker
) -> None:
    asking = wait_until_both_are_there(kafka)
    wanted = NewTopic(TOPIC, num_partitions=PARTITIONS, replica_assignment=[[OURS, KAFKAS], [KAFKAS, OURS]])
    asking.create_topics([wanted])[TOPIC].result(PATIENCE_S)
    both = f"{kafka.bootstrap},{ours.bootstrap}"
    sending = [Sending(both), Sending(both, transactional_id="transactional")]
    for each in sending:
        each.start()

    go_on(sending)
    for number in range(ROUNDS):
        lead(asking, kafka.bootstrap, [KAFKAS, OURS] if number % 2 else [OURS, KAFKAS])
        go_on(sending)
        ours.kill()
        go_on(sending)
        ours.start()
        waiting.until(lambda: in_sync(asking), "ours is in sync again", PATIENCE_S)
    lead(asking, kafka.bootstrap, [OURS, OURS])
    go_on(sending)
    end_and_find_all(sending, both)
    waiting.until(
        lambda: all(len({*_logs(kafka, ours, index)}) == 1 for index in range(PARTITIONS)),
        "the replicas' files are equal",
        PATIENCE_S,
    )


def test_it_goes_on_while_the_controller_is_killed_and_comes_back(
    kafka: ApacheKafka, ours: barnabas.Broker
) -> None:
    """With what it leads alone at once, and with all else, the metadata's changes among it, once Kafka is back."""
    asking = wait_until_both_are_there(kafka)
    wanted = NewTopic(TOPIC, num_partitions=PARTITIONS, replica_assignment=[[OURS, KAFKAS]] * PARTITIONS)
    asking.create_topics([wanted])[TOPIC].result(PATIENCE_S)
    reassign(kafka.bootstrap, [[OURS], [OURS, KAFKAS]])
    waiting.until(lambda: described(asking)[0].replicas == [OURS], "one is ours alone", PATIENCE_S)
    both = f"{kafka.bootstrap},{ours.bootstrap}"
    # A connection's requests are answered in turn: one for a partition that can't be committed holds up the others.
    alone = Sending(both, partitions=[0])
    sending = [alone, Sending(both, transactional_id="transactional")]
    for each in sending:
        each.start()
    go_on(sending)

    kafka.kill()
    try:
        go_on([alone])
    finally:
        kafka.start_again()
    wait_until_both_are_there(kafka)
    waiting.until(lambda: len(described(asking)[1].isrs) == 2, "Kafka's is in sync again", PATIENCE_S)
    asking_ours = admin(ours.bootstrap)
    asking_ours.create_topics([NewTopic("later", 1, replica_assignment=[[OURS]])])["later"].result(PATIENCE_S)
    go_on(sending)
    end_and_find_all(sending, both)


def _logs(kafka: ApacheKafka, ours: barnabas.Broker, index: int) -> Iterator[bytes]:
    for data in (kafka.data, ours.data):
        segments = sorted((data / f"{TOPIC}-{index}").glob("*.log"))
        yield b"".join(path.read_bytes() for path in segments)
