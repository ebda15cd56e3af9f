"""confluent-kafka's first contact."""

from __future__ import annotations

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.confluent import PATIENCE_S

QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 10}
"""As many test suites have it: errors cost librdkafka the most with these."""


def first_contact(bootstrap: str, name: str) -> None:
    """All firsts, with topics, groups and ids of this name."""
    settings = {"bootstrap.servers": bootstrap, "log_level": 0, **QUICK}
    producer = Producer(settings)
    producer.produce(f"{name}-created", b"x")
    assert producer.flush(PATIENCE_S) == 0

    for protocol in ("classic", "consumer"):
        group = {
            "group.id": f"{name}-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer({**settings, **group})
        consumer.subscribe([f"{name}-created"])
        [message] = consumer.consume(1, PATIENCE_S)
        assert message.error() is None
        consumer.commit(asynchronous=False)
        consumer.close()

    transactional = Producer({**settings, "transactional.id": name})
    transactional.init_transactions(PATIENCE_S)
    for _ in range(2):
        transactional.begin_transaction()
        transactional.produce(f"{name}-transactional", b"y")
        transactional.commit_transaction(PATIENCE_S)

    administer(AdminClient(settings), name)


def administer(admin: AdminClient, name: str) -> None:
    topic = f"{name}-administered"
    admin.create_topics([NewTopic(topic, 3)])[topic].result(PATIENCE_S)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(PATIENCE_S)
    offsets = {TopicPartition(topic, 4): OffsetSpec.latest()}
    groups = [f"{name}-classic", f"{name}-consumer"]
    of_topic = ConfigResource(ResourceType.TOPIC, topic)
    for ask in (
        lambda: [admin.list_consumer_groups()],
        lambda: admin.describe_consumer_groups(groups).values(),
        lambda: admin.describe_configs([of_topic]).values(),
        lambda: admin.list_offsets(offsets, isolation_level=IsolationLevel.READ_COMMITTED).values(),
        lambda: admin.delete_consumer_groups(groups[:1]).values(),
        lambda: [admin.describe_cluster()],
        lambda: admin.delete_topics([topic]).values(),
    ):
        for answer in ask():
            answer.result(PATIENCE_S)
