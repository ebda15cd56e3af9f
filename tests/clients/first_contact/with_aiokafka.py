"""aiokafka's first contact."""

from __future__ import annotations

import asyncio

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from tests.clients.test_aiokafka import started


def first_contact(bootstrap: str, name: str) -> None:
    """All firsts, with topics, groups and ids of this name."""
    asyncio.run(_first_contact(bootstrap, name))


async def _first_contact(bootstrap: str, name: str) -> None:
    async with started(aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)) as producer:
        await producer.send_and_wait(f"{name}-created", b"x")

    consumer = aiokafka.AIOKafkaConsumer(
        f"{name}-created",
        bootstrap_servers=bootstrap,
        group_id=f"{name}-classic",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with started(consumer):
        assert (await consumer.getone()).value == b"x"
        await consumer.commit()

    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    async with started(producer):
        for _ in range(2):
            async with producer.transaction():
                await producer.send(f"{name}-transactional", b"y")

    topic = f"{name}-administered"
    async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap), "close") as admin:
        await admin.create_topics([NewTopic(topic, 3, 1)])
        await admin.create_partitions({topic: NewPartitions(5)})
        await admin.describe_topics([topic])
        await admin.list_consumer_groups()
        await admin.describe_consumer_groups([f"{name}-classic"])
        await admin.delete_topics([topic])
