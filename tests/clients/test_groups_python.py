"""Consumer groups with kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient

from tests.clients.confluent import create_topic, send
from tests.clients.kafka_python import kafka

PATIENCE_S = 240.0
QUICK = {"heartbeat_interval_ms": 100, "auto_offset_reset": "earliest", "enable_auto_commit": False}


def fill(bootstrap: str, topic: str, partitions: int = 2) -> set[bytes]:
    create_topic(bootstrap, topic, partitions=partitions)
    values = [f"{index}" for index in range(10 * partitions)]
    send(bootstrap, topic, [{"value": each, "partition": int(each) % partitions} for each in values])
    return {each.encode() for each in values}


# --- kafka-python -------------------------------------------------------------------------------------------


class Reader:
    """A consumer of kafka-python, and what it has read."""

    def __init__(self, bootstrap: str, topic: str, **config: Any) -> None:
        self.consumer = kafka.KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic, **QUICK, **config
        )
        self.values: list[bytes] = []

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()

    def poll(self) -> None:
        # kafka-python 3.0 loses an assignment that arrives just as a poll's time is up, and then waits forever.
        for records in self.consumer.poll(timeout_ms=500).values():
            self.values += [record.value for record in records]


def poll_until(what: str, holds: Callable[[], object], *readers: Reader) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, f"still not: {what}"
        for reader in readers:
            reader.poll()


def test_kafka_python_reads_in_a_group_and_goes_on_where_it_stopped(bootstrap: str, topic: str) -> None:
    values = fill(bootstrap, topic)
    with closing(Reader(bootstrap, topic)) as first:
        # kafka-python may join a second time once it has seen the topic, and then reads from the start again.
        poll_until("everything is read", lambda: {*first.values} == values, first)
        first.consumer.commit()
        committed = [first.consumer.committed(kafka.TopicPartition(topic, index)) for index in (0, 1)]
        assert committed == [10, 10]
    send(bootstrap, topic, [{"value": "later", "partition": 0}])

    with closing(Reader(bootstrap, topic)) as second:
        poll_until("the later record is read", lambda: second.values, second)
        assert second.values == [b"later"]


def test_two_of_kafka_python_share_the_partitions(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=4)
    with closing(Reader(bootstrap, topic)) as first:
        poll_until("the first owns all", lambda: first.owned == {0, 1, 2, 3}, first)
        with closing(Reader(bootstrap, topic)) as second:
            poll_until("they share", lambda: len(first.owned) == len(second.owned) == 2, first, second)
            assert first.owned | second.owned == {0, 1, 2, 3}
        poll_until("the first owns all again", lambda: first.owned == {0, 1, 2, 3}, first)


def test_kafka_pythons_admin_client_sees_groups_and_offsets(bootstrap: str, topic: str) -> None:
    values = fill(bootstrap, topic)
    with (
        closing(Reader(bootstrap, topic)) as reader,
        closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as admin,
    ):
        poll_until("everything is read", lambda: {*reader.values} == values, reader)
        reader.consumer.commit()

        offsets = admin.list_group_offsets([topic])[topic]

        assert {each.partition: found.offset for each, found in offsets.items()} == {0: 10, 1: 10}
        assert topic in {group["group_id"] for group in admin.list_groups()}


# --- aiokafka -----------------------------------------------------------------------------------------------


def run(test: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            await test()

    asyncio.run(bounded())


def aio_consumer(bootstrap: str, topic: str) -> Any:
    return aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic, **QUICK)


def test_aiokafka_reads_in_a_group_and_goes_on_where_it_stopped(bootstrap: str, topic: str) -> None:
    values = fill(bootstrap, topic)

    async def test() -> None:
        async with aio_consumer(bootstrap, topic) as first:
            found = [await first.getone() for _ in values]
            assert {record.value for record in found} == values
            await first.commit()
            assert await first.committed(aiokafka.TopicPartition(topic, 1)) == 10
        send(bootstrap, topic, [{"value": "later", "partition": 1}])
        async with aio_consumer(bootstrap, topic) as second:
            assert (await second.getone()).value == b"later"

    run(test)


def test_two_of_aiokafka_share_the_partitions(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=4)

    async def shares(consumer: Any, count: int) -> None:
        while len(consumer.assignment()) != count:
            await consumer.getmany(timeout_ms=20)

    async def test() -> None:
        async with aio_consumer(bootstrap, topic) as first:
            await shares(first, 4)
            async with aio_consumer(bootstrap, topic) as second:
                await asyncio.gather(shares(first, 2), shares(second, 2))
                owned = first.assignment() | second.assignment()
                assert {each.partition for each in owned} == {0, 1, 2, 3}
            await shares(first, 4)

    run(test)


def test_aiokafkas_admin_client_sees_groups_and_offsets(bootstrap: str, topic: str) -> None:
    values = fill(bootstrap, topic)

    async def test() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            async with aio_consumer(bootstrap, topic) as consumer:
                for _ in values:
                    await consumer.getone()
                await consumer.commit()
                assert (topic, "consumer") in await admin.list_consumer_groups()
                offsets = await admin.list_consumer_group_offsets(topic)
            assert {each.partition: found.offset for each, found in offsets.items()} == {0: 10, 1: 10}
        finally:
            await admin.close()

    run(test)
