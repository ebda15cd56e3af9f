"""Dead letter queues in a cluster of Kafka's and ours: each leads a partition of what is consumed, and the other one
that of its queue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

import barnabas
from tests.interop.joining import (
    KAFKAS,
    OURS,
    PATIENCE_S,
    formatted,
    kafka_that_is_joined,
    settings_to_join,
    wait_until_both_are_there,
)
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_ports

TOPIC, QUEUE, GROUP = "t", "dlq.t", "g"
RECORDS = 60
SHARES = {
    "share.coordinator.state.topic.num.partitions": 4,
    "share.coordinator.state.topic.replication.factor": 2,
    "share.coordinator.state.topic.min.isr": 1,
}


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    more = [f"{name}={value}" for name, value in SHARES.items()]
    with kafka_that_is_joined(tmp_path / "kafka", *more) as kafka:
        yield kafka


@pytest.fixture
def ours(tmp_path: Path, kafka: ApacheKafka) -> Iterator[barnabas.Broker]:
    [port] = free_ports(1)
    data = tmp_path / "ours"
    formatted(tmp_path, kafka, port, [data])
    with barnabas.Broker(data=data, port=port, config=settings_to_join(kafka) | SHARES) as broker:
        yield broker


def prepare(kafka: ApacheKafka) -> None:
    asking = wait_until_both_are_there(kafka)
    enabled = {"errors.deadletterqueue.group.enable": "true"}
    wanted = [
        NewTopic(TOPIC, replica_assignment=[[OURS], [KAFKAS]], num_partitions=2),
        NewTopic(QUEUE, replica_assignment=[[KAFKAS], [OURS]], num_partitions=2, config=enabled),
    ]
    for made in asking.create_topics(wanted).values():
        made.result(PATIENCE_S)
    settings = {
        "share.auto.offset.reset": "earliest",
        "errors.deadletterqueue.topic.name": QUEUE,
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=entries)
    asking.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def is_rejected(value: bytes) -> bool:
    return int(value) % 3 == 0


def reject_some(bootstrap: str) -> None:
    """Reject some records, and accept the others."""
    consumer = ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([TOPIC])
    said: set[bytes] = set()
    deadline_s = time.monotonic() + PATIENCE_S
    while len(said) < RECORDS:
        assert time.monotonic() < deadline_s, f"only {len(said)} came"
        for message in consumer.poll(0.2):
            assert message.error() is None
            value = message.value() or b""
            how = AcknowledgeType.REJECT if is_rejected(value) else AcknowledgeType.ACCEPT
            consumer.acknowledge(message, how)
            said.add(value)
        assert not any(consumer.commit_sync(PATIENCE_S).values())
    consumer.close()


def queued(bootstrap: str, partition: int, count: int) -> list[tuple[bytes, bytes]]:
    """The values in the queue and what they are of, once there are so many."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0})
    consumer.assign([TopicPartition(QUEUE, partition, 0)])
    found: list[tuple[bytes, bytes]] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline_s, f"only {len(found)} of {count} are in partition {partition}"
        for message in consumer.consume(count, 0.2):
            assert message.error() is None, message.error()
            headers = dict(message.headers() or [])
            found.append((message.value() or b"", bytes(headers["__dlq.errors.partition"])))  # type: ignore[arg-type]
    consumer.close()
    return sorted(found)


def test_each_buries_in_a_partition_that_the_other_leads(kafka: ApacheKafka, ours: barnabas.Broker) -> None:
    prepare(kafka)
    both = f"{kafka.bootstrap},{ours.bootstrap}"
    producer = Producer({"bootstrap.servers": both, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    reject_some(both)
    for partition in range(2):
        rejected = [
            (b"%d" % number, b"%d" % partition)
            for number in range(RECORDS)
            if number % 2 == partition and is_rejected(b"%d" % number)
        ]
        assert queued(both, partition, len(rejected)) == sorted(rejected)
