"""Transactions with aiokafka, which speaks the oldest versions of their requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiokafka
import aiokafka.errors
import pytest

from tests.clients.confluent import create_topic, send
from tests.clients.transaction_readers import READERS, with_aiokafka
from tests.clients.transactions import (
    HISTORY,
    ISOLATION_LEVELS,
    LAST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    VISIBLE,
    log_end,
    stable_end,
    transaction_is_over,
    written_by,
)
from tests.support.waiting import POLL_S

PATIENCE_S = 240.0


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            await test()

    asyncio.run(bounded())


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


def new_producer(bootstrap: str, transactional_id: str, **config: Any) -> Any:
    """A producer; it asks for its producer id, and fences the one before, when it is started."""
    return started(
        aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            **{"retry_backoff_ms": 20, **config},
        )
    )


async def send_now(producer: Any, topic: str, value: str) -> None:
    await producer.send_and_wait(topic, value.encode(), partition=0)


def values(bootstrap: str, topic: str) -> list[str]:
    """What is committed in the topic, up to a LAST that is added behind it."""
    send(bootstrap, topic, [{"value": LAST, "partition": 0}])
    return with_aiokafka(bootstrap, topic, READ_COMMITTED)[:-1]


def test_committed_records_are_read_and_aborted_ones_are_not(transactional: str, topic: str) -> None:
    create_topic(transactional, topic)

    async def test() -> None:
        async with new_producer(transactional, topic) as producer:
            async with producer.transaction():
                await send_now(producer, topic, "committed")
            with contextlib.suppress(ZeroDivisionError):
                async with producer.transaction():
                    await send_now(producer, topic, "aborted")
                    raise ZeroDivisionError
            async with producer.transaction():
                await send_now(producer, topic, "committed again")

    run(test)
    assert values(transactional, topic) == ["committed", "committed again"]


@pytest.fixture(scope="module")
def written(transactional: str) -> str:
    """A topic with HISTORY in it."""
    topic = written_by("aiokafka")
    create_topic(transactional, topic)

    async def write() -> None:
        async with AsyncExitStack() as open_ones:
            producers: dict[str, Any] = {}
            for name in ("one", "two"):
                producers[name] = await open_ones.enter_async_context(
                    new_producer(transactional, f"{topic}-{name}")
                )
            for name, verb, value in HISTORY:
                producer = producers[name]
                match verb:
                    case "begin":
                        await producer.begin_transaction()
                    case "send":
                        await send_now(producer, topic, value)
                    case "commit":
                        await producer.commit_transaction()
                    case "abort":
                        await producer.abort_transaction()

    run(write)
    return topic


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
def test_each_reader_sees_its_part_of_overlapping_transactions(
    transactional: str, written: str, reader: str, isolation_level: str
) -> None:
    assert READERS[reader](transactional, written, isolation_level) == VISIBLE[isolation_level]


def test_a_waiting_reader_gets_the_records_once_they_are_committed(transactional: str, topic: str) -> None:
    create_topic(transactional, topic)
    partition = aiokafka.TopicPartition(topic, 0)

    def new_consumer(isolation_level: str) -> Any:
        return started(
            aiokafka.AIOKafkaConsumer(
                bootstrap_servers=transactional, isolation_level=isolation_level, fetch_max_wait_ms=20_000
            )
        )

    async def test() -> None:
        async with (
            new_producer(transactional, topic) as producer,
            new_consumer(READ_UNCOMMITTED) as eager,
            new_consumer(READ_COMMITTED) as patient,
        ):
            await producer.begin_transaction()
            await send_now(producer, topic, "open")
            for consumer in (eager, patient):
                consumer.assign([partition])
                consumer.seek(partition, 0)
            assert (await eager.getone()).value == b"open"
            assert await patient.getmany(timeout_ms=100) == {}
            assert stable_end(transactional, topic) == 0

            async with asyncio.timeout(10):
                await producer.commit_transaction()
                assert (await patient.getone()).value == b"open"

    run(test)


def test_a_second_instance_aborts_the_firsts_transaction_and_fences_it(
    transactional: str, topic: str
) -> None:
    create_topic(transactional, topic)

    async def test() -> None:
        async with new_producer(transactional, topic) as first:
            await first.begin_transaction()
            await send_now(first, topic, "of the first")
            async with new_producer(transactional, topic) as second:
                assert stable_end(transactional, topic) == 2
                await second.begin_transaction()
                await send_now(second, topic, "of the second")
                with pytest.raises(aiokafka.errors.ProducerFenced):
                    await first.commit_transaction()
                await second.commit_transaction()

    run(test)
    assert values(transactional, topic) == ["of the second"]


def test_a_fenced_producer_can_not_send(transactional: str, topic: str) -> None:
    create_topic(transactional, topic)

    async def test() -> None:
        async with new_producer(transactional, topic) as first, new_producer(transactional, topic):
            await first.begin_transaction()
            with pytest.raises(aiokafka.errors.ProducerFenced):
                await send_now(first, topic, "too late")

    run(test)
    assert log_end(transactional, topic) == 0


def test_a_transaction_that_takes_too_long_is_aborted(transactional: str, topic: str) -> None:
    create_topic(transactional, topic)

    async def test() -> None:
        async with new_producer(transactional, topic, transaction_timeout_ms=500) as producer:
            await producer.begin_transaction()
            await send_now(producer, topic, "too slow")
            is_over = transaction_is_over(transactional, topic)
            while not is_over():
                await asyncio.sleep(POLL_S)
            with pytest.raises(aiokafka.errors.ProducerFenced):
                await producer.commit_transaction()
        async with new_producer(transactional, topic) as again, again.transaction():
            await send_now(again, topic, "quick enough")

    run(test)
    assert values(transactional, topic) == ["quick enough"]


def test_a_timeout_longer_than_the_broker_allows_is_refused(transactional: str, topic: str) -> None:
    async def test() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=transactional, transactional_id=topic, transaction_timeout_ms=900_001
        )
        with pytest.raises(aiokafka.errors.InvalidTransactionTimeout):
            await producer.start()
        await producer.stop()

    run(test)


def test_offsets_are_committed_with_the_transaction_or_not_at_all(transactional: str, topic: str) -> None:
    output = f"{topic}-output"
    create_topic(transactional, topic)
    create_topic(transactional, output)
    send(transactional, topic, [{"value": value, "partition": 0} for value in ("in 0", "in 1")])
    partition = aiokafka.TopicPartition(topic, 0)

    async def test() -> None:
        reader = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=transactional,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with started(reader) as consumer, new_producer(transactional, topic) as producer:
            for value in (b"in 0", b"in 1"):
                assert (await consumer.getone()).value == value
            for end in (producer.abort_transaction, producer.commit_transaction):
                assert await consumer.committed(partition) is None
                await producer.begin_transaction()
                await send_now(producer, output, "out")
                await producer.send_offsets_to_transaction({partition: 2}, topic)
                await end()
            # Kafka answers a commit before its marker has reached the group's coordinator.
            while await consumer.committed(partition) is None:
                await asyncio.sleep(POLL_S)
            assert await consumer.committed(partition) == 2

    run(test)
    assert values(transactional, output) == ["out"]
