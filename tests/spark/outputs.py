"""Topics to write to, and what readers see in them, by a client that the sink has nothing to do with: librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.spark.wire import Wire
from tests.support.waiting import until

PATIENCE_S = 240.0


class Seen(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def create(bootstrap: str, topic: str, partitions: int, **configs: Any) -> str:
    """Make a topic; `max_message_bytes=1000` stands for the config max.message.bytes."""
    config = {key.replace("_", "."): str(value) for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(PATIENCE_S)
    return topic


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Seen]:
    """Every record, partition by partition in the log's order, up to the last stable offset."""
    seen: list[Seen] = []
    with _consumer(bootstrap, isolation) as consumer:
        metadata = consumer.list_topics(topic, PATIENCE_S)
        partitions = sorted(metadata.topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        at_end: set[int] = set()
        while len(at_end) < len(partitions):
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"nothing in {PATIENCE_S} s, at the end of {at_end}"
            error = message.error()
            if error is None:
                headers = [(key, value) for key, value in message.headers() or []]
                seen.append(Seen(message.partition(), message.key(), message.value(), headers))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                at_end.add(message.partition())
    return sorted(seen, key=lambda one: one.partition)


def values(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """The values alone, as sorted text."""
    return sorted((one.value or b"").decode() for one in read(bootstrap, topic, isolation))


def committed_offsets(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    found = future.result(PATIENCE_S).topic_partitions
    return {(one.topic, one.partition): one.offset for one in found}


def wait_for_markers(connection: Wire, topic: str) -> None:
    """Kafka answers a commit ahead of its markers; up to them the transaction is open in the topic's partitions."""
    until(
        lambda: not connection.open_transactions(lambda: connection.leaders([topic])),
        f"no transaction is open in {topic}",
    )


@contextmanager
def _consumer(bootstrap: str, isolation: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()
