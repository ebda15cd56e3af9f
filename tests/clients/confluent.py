"""The steps that tests with confluent-kafka share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from protocol.records import compression
from tests.support.ready_requests import fetch_batches
from tests.support.wire import Client

PATIENCE_S = 240.0

CODECS = {
    "none": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}


def create_topic(
    bootstrap: str,
    topic: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create a topic. A `replication_factor` of -1 means the broker's default."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partitions, replication_factor, config=dict(config or {}))
    admin.create_topics([new])[topic].result(PATIENCE_S)


def begin_at_the_start(bootstrap: str, group: str) -> None:
    """Set a share group's first offset to the start."""
    setting = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[setting])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def send(bootstrap: str, topic: str, records: Iterable[Mapping[str, Any]], **config: Any) -> list[Message]:
    """Send these records (keyword arguments of `produce`); their messages in the order of delivery."""
    delivered: list[Message] = []

    def on_delivery(error: object, message: Message) -> None:
        assert error is None, error
        delivered.append(message)

    producer = Producer({"bootstrap.servers": bootstrap, **config})
    try:
        for record in records:
            producer.produce(topic, on_delivery=on_delivery, **record)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
    finally:
        # An error's traceback would keep it alive, and it the connections to a port that is another broker's by then.
        del producer
    return delivered


def consumer_of(bootstrap: str, **config: Any) -> Consumer:
    """A consumer for `assign`; its group is a word that librdkafka demands, and never joined."""
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, **config}
    )


def read(
    bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0, **config: Any
) -> list[Message]:
    """The first `count` messages from this offset on; AssertionError where they don't come.

    librdkafka takes half a second longer to begin at a logical offset such as OFFSET_BEGINNING.
    """
    consumer = consumer_of(bootstrap, **config)
    consumer.assign([TopicPartition(topic, partition, offset)])
    messages: list[Message] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(messages) < count:
        assert time.monotonic() < deadline_s, f"only {len(messages)} of {count} records came"
        for message in consumer.consume(count - len(messages), timeout=1):
            assert message.error() is None, message.error()
            messages.append(message)
    consumer.close()
    return messages


def end_offsets(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """The next offset of each of the topic's first `partitions` partitions."""
    consumer = consumer_of(bootstrap)
    asked = [TopicPartition(topic, partition) for partition in range(partitions)]
    ends = [consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)[1] for partition in asked]
    consumer.close()
    return ends


def stored_codecs(bootstrap: str, topic: str, partitions: int = 1) -> set[str]:
    """The codecs of the stored batches in the topic: a client may silently leave them uncompressed."""
    names = {number: name for name, number in CODECS.items()}
    client = Client.of(bootstrap)
    found = {
        names[header.compression]
        for partition, end_offset in enumerate(end_offsets(bootstrap, topic, partitions))
        for header in fetch_batches(client, topic, end_offset, 1_000_000, partition=partition)
    }
    client.close()
    return found
