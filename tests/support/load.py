"""Producers that work while a test moves their partitions, and checks of what must be there at the end."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.support import waiting
from tests.support.wire import Client

PATIENCE_S = 120.0
TOPIC = "moving"
PARTITIONS = 2
PER_ROUND = 300
"""The records to acknowledge between two changes, and as many committed ones."""


class Sending(threading.Thread):
    """A producer that sends to some partitions until it is ended. `sent` has the acknowledged, or committed, numbers by
    partition."""

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

    def acknowledged(self, partition: int) -> list[int]:
        """Return the acknowledged numbers in the order of sending. The producer may hear of them in another order:
        while a partition moves, two of its threads hear from two leaders, and the one that has waited longer isn't
        always the first to report."""
        return sorted(self.sent[partition])

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


def reassign(bootstrap: str, replicas: list[list[int]], name: str = TOPIC) -> None:
    """Assign these replicas to each partition."""
    topic = ReassignableTopic(
        name=name,
        partitions=[
            ReassignablePartition(partition_index=index, replicas=wanted)
            for index, wanted in enumerate(replicas)
        ],
    )
    with Client.of(bootstrap) as client:
        answer = client.ask(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=60_000), 0)
    assert not answer.error_code
    assert not any(partition.error_code for each in answer.responses for partition in each.partitions)


def described(asking: AdminClient) -> dict[int, Any]:
    partitions: dict[int, Any] = asking.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions
    return partitions


def committed(bootstrap: str) -> dict[int, list[bytes]]:
    """Return what a reader of committed records finds in each partition."""
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
    """Return once each producer has another PER_ROUND records acknowledged."""
    until = [each.count() + PER_ROUND for each in sending]
    waiting.until(
        lambda: (
            any(each.error for each in sending)
            or all(each.count() >= count for each, count in zip(sending, until, strict=True))
        ),
        "more is acknowledged",
        PATIENCE_S,
    )


def end_and_find_all(
    sending: Sequence[Sending], bootstrap: str, names: Sequence[str] = ("plain", "transactional")
) -> None:
    """End the producers, and check that everything they had acknowledged is there once, in order, and nothing else.
    Each producer's values begin with its name."""
    for each in sending:
        each.end()
    found = committed(bootstrap)
    for partition in range(PARTITIONS):
        for each, name in zip(sending, names, strict=True):
            read = [int(value.split()[1]) for value in found[partition] if value.split()[0] == name.encode()]
            sent = each.acknowledged(partition)
            assert read == sent, first_difference(partition, name, read, sent)


def first_difference(partition: int, name: str, read: Sequence[int], sent: Sequence[int]) -> str:
    """Return the numbers around the first difference, to show whether records were lost, doubled or reordered."""
    at = next(
        (at for at, pair in enumerate(zip(read, sent, strict=False)) if len({*pair}) > 1),
        min(len(read), len(sent)),
    )
    lost, more = {*sent} - {*read}, {*read} - {*sent}
    return (
        f"{name} of partition {partition}, {len(read)} read, {len(sent)} acknowledged, apart at {at}: "
        f"read {read[max(at - 3, 0) : at + 8]}, acknowledged {sent[max(at - 3, 0) : at + 8]}; "
        f"lost {sorted(lost)[:20]}, never acknowledged {sorted(more)[:20]}"
    )
