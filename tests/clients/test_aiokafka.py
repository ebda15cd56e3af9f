from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
import aiokafka.errors
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from tests.clients.confluent import stored_codecs

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
PATIENCE_S = 240.0


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            await test()

    asyncio.run(bounded())


@asynccontextmanager
async def started(client: Any, stop: str = "stop") -> AsyncIterator[Any]:
    await client.start()
    try:
        yield client
    finally:
        await getattr(client, stop)()


async def create_topic(bootstrap: str, topic: str) -> None:
    async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap), "close") as admin:
        await admin.create_topics([NewTopic(topic, 1, 1)])


async def send(bootstrap: str, topic: str, records: list[dict[str, Any]], **config: Any) -> list[Any]:
    """Send these records (keyword arguments of `send`) to a new topic; what was learned of each."""
    await create_topic(bootstrap, topic)
    async with started(aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, **config)) as producer:
        waiting = [await producer.send(topic, **record) for record in records]
        return list(await asyncio.gather(*waiting))


async def read(bootstrap: str, topic: str, count: int, **config: Any) -> list[Any]:
    """The first `count` records of partition 0; TimeoutError where they don't come."""
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **config)
    async with started(consumer):
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        return [await asyncio.wait_for(consumer.getone(), PATIENCE_S) for _ in range(count)]


def test_a_record_comes_back_with_its_key_value_headers_and_timestamp(bootstrap: str, topic: str) -> None:
    headers = [("first", b"1"), ("first", b"again"), ("empty", b"")]

    async def test() -> None:
        sent = {"key": b"k", "value": b"v", "headers": headers, "timestamp_ms": 1_700_000_000_123}
        (delivered,) = await send(bootstrap, topic, [sent])
        (record,) = await read(bootstrap, topic, 1)

        assert (delivered.partition, delivered.offset, delivered.log_start_offset) == (0, 0, 0)
        assert (record.key, record.value, record.offset) == (b"k", b"v", 0)
        assert list(record.headers) == headers
        assert (record.timestamp_type, record.timestamp) == (0, 1_700_000_000_123)

    run(test)


def test_null_keys_and_values_come_back(bootstrap: str, topic: str) -> None:
    pairs = [(b"k", None), (None, b"v"), (b"", b"")]

    async def test() -> None:
        await send(bootstrap, topic, [{"key": key, "value": value} for key, value in pairs])
        records = await read(bootstrap, topic, len(pairs))

        assert [(record.key, record.value) for record in records] == pairs

    run(test)


@pytest.mark.parametrize(("acks", "idempotent"), [(0, False), (1, False), ("all", False), ("all", True)])
def test_records_arrive_in_order_with_acks(
    bootstrap: str, topic: str, acks: int | str, idempotent: bool
) -> None:
    values = [b"%d" % number for number in range(500)]

    async def test() -> None:
        records = [{"value": value} for value in values]
        await send(bootstrap, topic, records, acks=acks, enable_idempotence=idempotent)
        came = await read(bootstrap, topic, len(values))

        assert [record.value for record in came] == values
        assert [record.offset for record in came] == list(range(len(values)))

    run(test)


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_records_come_back(bootstrap: str, topic: str, codec: str | None) -> None:
    values = [b"%d " % number * 50 for number in range(500)]

    async def test() -> None:
        await send(bootstrap, topic, [{"value": v} for v in values], compression_type=codec, linger_ms=20)

        assert [record.value for record in await read(bootstrap, topic, len(values))] == values

    run(test)
    assert stored_codecs(bootstrap, topic) == {codec or "none"}


def test_a_record_larger_than_the_fetch_size_comes_back(bootstrap: str, topic: str) -> None:
    value = b"x" * 900_000

    async def test() -> None:
        await send(bootstrap, topic, [{"value": value}])
        (record,) = await read(bootstrap, topic, 1, max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000)

        assert record.value == value

    run(test)


def test_a_record_larger_than_the_broker_takes_is_refused(bootstrap: str, topic: str) -> None:
    async def test() -> None:
        with pytest.raises(aiokafka.errors.MessageSizeTooLargeError):
            await send(bootstrap, topic, [{"value": b"x" * 1_048_600}], max_request_size=5_000_000)

    run(test)


def test_the_first_record_creates_its_topic(bootstrap: str, topic: str) -> None:
    async def test() -> None:
        async with started(aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)) as producer:
            delivered = await producer.send_and_wait(topic, b"v")

        assert (delivered.partition, delivered.offset) == (0, 0)

    run(test)


def test_offsets_are_found_by_timestamp(bootstrap: str, topic: str) -> None:
    partition = aiokafka.TopicPartition(topic, 0)

    async def test() -> None:
        await send(bootstrap, topic, [{"value": b"v", "timestamp_ms": ms} for ms in (1_000, 2_000, 3_000)])
        async with started(aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)) as consumer:
            found = (await consumer.offsets_for_times({partition: 1_001}))[partition]
            assert (found.offset, found.timestamp) == (1, 2_000)
            assert (await consumer.offsets_for_times({partition: 3_001}))[partition] is None
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 3}

    run(test)


def test_an_admin_creates_grows_and_deletes_a_topic(bootstrap: str, topic: str) -> None:
    async def test() -> None:
        async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap), "close") as admin:

            async def partition_count() -> int:
                (described,) = await admin.describe_topics([topic])
                return len(described["partitions"])

            await admin.create_topics([NewTopic(topic, 2, 1)])
            assert await partition_count() == 2

            await admin.create_partitions({topic: NewPartitions(5)})
            assert await partition_count() == 5

            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()

    run(test)


def test_the_cluster_identifies_itself(bootstrap: str) -> None:
    async def test() -> None:
        async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap), "close") as admin:
            cluster = await admin.describe_cluster()

        assert len(cluster["cluster_id"]) == 22
        assert [f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]] == [bootstrap]

    run(test)
