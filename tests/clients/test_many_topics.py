"""2,000 topics in one request each: an admin client creates, lists, describes and deletes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas

PATIENCE_S = 240.0
# with both of the characters by which names may collide
NAMES = [f"orders.of_day-{number:04d}" for number in range(2_000)]


@pytest.fixture
def broker() -> Iterator[barnabas.Broker]:
    """One of its own: the topics of others aren't to be among these."""
    with barnabas.Broker() as running:
        yield running


def test_2000_topics_are_created_listed_described_and_deleted(broker: barnabas.Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    for created in admin.create_topics([NewTopic(name, 1, 1) for name in NAMES]).values():
        created.result(PATIENCE_S)

    assert sorted(admin.list_topics(timeout=PATIENCE_S).topics) == NAMES
    described = admin.describe_topics(TopicCollection(NAMES))
    for name, topic in described.items():
        (partition,) = topic.result(PATIENCE_S).partitions
        assert (topic.result().name, partition.id, partition.leader.id) == (name, 0, 1)

    broker.restart()
    assert sorted(admin.list_topics(timeout=PATIENCE_S).topics) == NAMES

    for deleted in admin.delete_topics(NAMES).values():
        deleted.result(PATIENCE_S)
    assert not admin.list_topics(timeout=PATIENCE_S).topics
