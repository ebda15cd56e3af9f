"""Topics for Spark to read: made, filled, partly aborted and cut off with confluent-kafka."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.support.waiting import until_answered

PATIENCE_S = 240.0

Headers = Sequence[tuple[str, bytes | None]]


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> str:
    """Make it and return its name; `cleanup_policy="compact"` is its setting `cleanup.policy`."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(PATIENCE_S)
    # Kafka answers before its broker leads the partitions: what only a leader answers is asked until it is.
    wanted = {TopicPartition(topic, partition): OffsetSpec.earliest() for partition in range(partitions)}

    def ask_the_leaders() -> None:
        for answer in admin.list_offsets(wanted, request_timeout=PATIENCE_S).values():
            answer.result(PATIENCE_S)

    until_answered(ask_the_leaders, f"{topic} has leaders", PATIENCE_S)
    return topic


def produce(
    bootstrap: str,
    topic: str,
    values: Iterable[str | None],
    *,
    partition: int = 0,
    key: str | None = None,
    headers: Headers = (),
    timestamp_ms: int = 0,
) -> None:
    """Plain records, acknowledged when this returns; without a timestamp they carry the time of now."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    _send(producer, topic, values, partition, key=key, headers=list(headers), timestamp=timestamp_ms)
    assert producer.flush(PATIENCE_S) == 0


class Transactions:
    """A transactional producer. What it writes is in the log when a call returns."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        config = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 5,
            # The longest that a broker allows: what a test leaves open stays so, however slow the machine is.
            "transaction.timeout.ms": 900_000,
        }
        self._producer = Producer(config)
        self._producer.init_transactions(PATIENCE_S)

    def begin(self, topic: str, values: Iterable[str], *, partition: int = 0) -> None:
        """Begin a transaction with these records, and leave it open."""
        self._producer.begin_transaction()
        self.write(topic, values, partition=partition)

    def write(self, topic: str, values: Iterable[str], *, partition: int = 0) -> None:
        _send(self._producer, topic, values, partition)
        assert self._producer.flush(PATIENCE_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_S)

    def committed(self, topic: str, values: Iterable[str], *, partition: int = 0) -> None:
        self.begin(topic, values, partition=partition)
        self.commit()

    def aborted(self, topic: str, values: Iterable[str], *, partition: int = 0) -> None:
        self.begin(topic, values, partition=partition)
        self.abort()


def delete_records(bootstrap: str, topic: str, before: Mapping[int, int]) -> None:
    """Move the partitions' log starts, as retention does."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    for answer in admin.delete_records(asked).values():
        answer.result(PATIENCE_S)


def committed_messages(bootstrap: str, topic: str, partitions: int = 1) -> list[Message]:
    """All that a consumer under read_committed reads, partition by partition."""
    came = read_committed(bootstrap, topic, partitions)
    return sorted(came, key=lambda message: (message.partition(), message.offset()))


def read_committed(bootstrap: str, topic: str, partitions: int = 1) -> Iterator[Message]:
    """All that a consumer under read_committed reads, as it comes."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "neither a record nor the partition's end"
        if message.error() is None:
            yield message
        else:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended.add(message.partition())
    consumer.close()


def offsets_json(topic: str, offsets: Mapping[int, int]) -> str:
    """Offsets as the options of Spark's source take them; -2 is the earliest, -1 the latest."""
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})


def _send(
    producer: Producer, topic: str, values: Iterable[str | None], partition: int, **options: object
) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=_must_be_delivered, **options)
        producer.poll(0)


def _must_be_delivered(error: object, message: Message) -> None:
    assert error is None, error
