"""Readers of three clients that read a topic with transactions in it, at either isolation level.

Each takes the bootstrap address, the topic and `read_committed` or `read_uncommitted`, and returns the values of
partition 0 up to LAST, in the order in which they came; AssertionError or TimeoutError where that doesn't come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing

import aiokafka
from confluent_kafka import TopicPartition

from tests.clients.confluent import PATIENCE_S, consumer_of
from tests.clients.kafka_python import kafka
from tests.clients.transactions import LAST

Reader = Callable[[str, str, str], list[str]]


def with_confluent_kafka(bootstrap: str, topic: str, isolation_level: str) -> list[str]:
    values: list[str] = []
    with closing(consumer_of(bootstrap, **{"isolation.level": isolation_level})) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while LAST not in values:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"nothing came after {values}"
            assert message.error() is None, message.error()
            values.append(message.value().decode())
    return values


def with_kafka_python(bootstrap: str, topic: str, isolation_level: str) -> list[str]:
    values: list[str] = []
    partition = kafka.TopicPartition(topic, 0)
    deadline_s = time.monotonic() + PATIENCE_S
    with closing(
        kafka.KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation_level)
    ) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        while LAST not in values:
            assert time.monotonic() < deadline_s, f"nothing came after {values}"
            for records in consumer.poll(timeout_ms=1_000).values():
                values += [record.value.decode() for record in records]
    return values


def with_aiokafka(bootstrap: str, topic: str, isolation_level: str) -> list[str]:
    async def read() -> list[str]:
        values: list[str] = []
        partition = aiokafka.TopicPartition(topic, 0)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation_level)
        await consumer.start()
        try:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            while LAST not in values:
                record = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
                values.append(record.value.decode())
        finally:
            await consumer.stop()
        return values

    return asyncio.run(read())


READERS: dict[str, Reader] = {
    "confluent-kafka": with_confluent_kafka,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}
