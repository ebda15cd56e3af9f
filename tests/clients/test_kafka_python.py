from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.clients.confluent import stored_codecs
from tests.clients.kafka_python import NewPartitions, NewTopic, kafka

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
PATIENCE_S = 240.0


@pytest.fixture
def admin(bootstrap: str) -> Iterator[kafka.KafkaAdminClient]:
    with closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        yield client


def send(bootstrap: str, topic: str, records: list[dict[str, Any]], **config: Any) -> list[Any]:
    """Send these records (keyword arguments of `send`); what the producer learned of each."""
    with closing(kafka.KafkaProducer(bootstrap_servers=bootstrap, **config)) as producer:
        waiting = [producer.send(topic, **record) for record in records]
        producer.flush(PATIENCE_S)
        return [future.get(PATIENCE_S) for future in waiting]


def read(bootstrap: str, topic: str, count: int, **config: Any) -> list[Any]:
    """The first `count` records of partition 0; AssertionError where they don't come."""
    partition = kafka.TopicPartition(topic, 0)
    with closing(kafka.KafkaConsumer(bootstrap_servers=bootstrap, **config)) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        records: list[Any] = []
        deadline_s = time.monotonic() + PATIENCE_S
        while len(records) < count:
            assert time.monotonic() < deadline_s, f"only {len(records)} of {count} records came"
            records += consumer.poll(timeout_ms=1_000).get(partition, [])
        return records


def test_a_record_comes_back_with_its_key_value_headers_and_timestamp(bootstrap: str, topic: str) -> None:
    headers = [("first", b"1"), ("first", b"again"), ("empty", b"")]
    sent = {"key": b"k", "value": b"v", "headers": headers, "timestamp_ms": 1_700_000_000_123}
    (delivered,) = send(bootstrap, topic, [sent])

    (record,) = read(bootstrap, topic, 1)

    assert (delivered.partition, delivered.offset) == (0, 0)
    assert (record.key, record.value, record.offset) == (b"k", b"v", 0)
    assert record.headers == headers
    assert (record.timestamp_type, record.timestamp) == (0, 1_700_000_000_123)


def test_null_keys_and_values_come_back(bootstrap: str, topic: str) -> None:
    pairs = [(b"k", None), (None, b"v"), (b"", b"")]
    send(bootstrap, topic, [{"key": key, "value": value} for key, value in pairs])

    assert [(record.key, record.value) for record in read(bootstrap, topic, len(pairs))] == pairs


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_arrive_in_order_with_acks(bootstrap: str, topic: str, acks: int | str) -> None:
    values = [b"%d" % number for number in range(500)]
    idempotent = acks == "all"
    send(bootstrap, topic, [{"value": v} for v in values], acks=acks, enable_idempotence=idempotent)

    records = read(bootstrap, topic, len(values))

    assert [record.value for record in records] == values
    assert [record.offset for record in records] == list(range(len(values)))


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_records_come_back(bootstrap: str, topic: str, codec: str | None) -> None:
    values = [b"%d " % number * 50 for number in range(500)]
    send(bootstrap, topic, [{"value": v} for v in values], compression_type=codec, linger_ms=50)

    assert [record.value for record in read(bootstrap, topic, len(values))] == values
    assert stored_codecs(bootstrap, topic) == {codec or "none"}


def test_a_record_larger_than_the_fetch_size_comes_back(bootstrap: str, topic: str) -> None:
    value = b"x" * 900_000
    send(bootstrap, topic, [{"value": value}])

    (record,) = read(bootstrap, topic, 1, max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000)

    assert record.value == value


def test_a_record_larger_than_the_broker_takes_is_refused(bootstrap: str, topic: str) -> None:
    with pytest.raises(kafka.errors.MessageSizeTooLargeError):
        send(bootstrap, topic, [{"value": b"x" * 1_048_600}], max_request_size=5_000_000)


def test_offsets_are_found_by_timestamp(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [{"value": b"v", "timestamp_ms": ms} for ms in (1_000, 2_000, 3_000)])
    partition = kafka.TopicPartition(topic, 0)

    with closing(kafka.KafkaConsumer(bootstrap_servers=bootstrap)) as consumer:
        found = consumer.offsets_for_times({partition: 1_001})[partition]
        assert (found.offset, found.timestamp) == (1, 2_000)
        assert consumer.offsets_for_times({partition: 3_001})[partition] is None
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 3}


def test_a_fetch_session_follows_partitions_as_they_come_and_go(bootstrap: str, topic: str) -> None:
    """kafka-python fetches in sessions: what is assigned changes under one that is open."""
    partitions = [kafka.TopicPartition(f"{topic}-{which}", 0) for which in range(3)]

    def written(number: int) -> bytes:
        for partition in partitions:
            send(bootstrap, partition.topic, [{"value": b"%d" % number}])
        return b"%d" % number

    def values_of(consumer: Any, count: int) -> dict[Any, list[bytes]]:
        values: dict[Any, list[bytes]] = {}
        deadline_s = time.monotonic() + PATIENCE_S
        while sum(map(len, values.values())) < count:
            assert time.monotonic() < deadline_s, values
            for partition, records in consumer.poll(timeout_ms=1_000).items():
                values.setdefault(partition, []).extend(record.value for record in records)
        return values

    first = written(1)
    with closing(kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")) as consumer:
        consumer.assign(partitions[:2])
        assert values_of(consumer, 2) == {partition: [first] for partition in partitions[:2]}
        second = written(2)
        assert values_of(consumer, 2) == {partition: [second] for partition in partitions[:2]}
        consumer.assign(partitions[1:])
        third = written(3)
        at_the_third = {partitions[1]: [third], partitions[2]: [first, second, third]}
        for partition, position in ((partitions[1], 2), (partitions[2], 0)):
            consumer.seek(partition, position)
        assert values_of(consumer, 4) == at_the_third


def test_the_cluster_identifies_itself(bootstrap: str, admin: kafka.KafkaAdminClient) -> None:
    cluster = admin.describe_cluster()

    assert len(cluster["cluster_id"]) == 22
    assert [f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]] == [bootstrap]


def test_an_admin_creates_grows_and_deletes_a_topic(admin: kafka.KafkaAdminClient, topic: str) -> None:
    def partition_count() -> int:
        (described,) = admin.describe_topics([topic])
        return len(described["partitions"])

    admin.create_topics([NewTopic(topic, 2, 1)])
    assert partition_count() == 2

    admin.create_partitions({topic: NewPartitions(5)})
    assert partition_count() == 5

    admin.delete_topics([topic])
    assert topic not in admin.list_topics()


def test_a_topic_that_exists_is_not_created_again(admin: kafka.KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])

    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 1, 1)])
