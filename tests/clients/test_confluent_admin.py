from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.clients.confluent import create_topic, read, send


def test_the_cluster_identifies_itself(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    cluster = admin.describe_cluster().result(30)

    assert len(cluster.cluster_id) == 22
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [bootstrap]
    assert cluster.controller.id == cluster.nodes[0].id


def test_an_admin_creates_grows_and_deletes_a_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})

    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    assert len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == 2

    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    assert len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == 5

    admin.delete_topics([topic])[topic].result(30)
    assert topic not in admin.list_topics(timeout=30).topics


def test_a_topic_is_described_with_its_id_and_leaders(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create_topic(bootstrap, topic, partitions=2)

    asked = TopicCollection([topic])
    described = admin.describe_topics(asked)[topic].result(30)

    assert described.name == topic
    assert not described.is_internal
    assert str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    assert [partition.id for partition in described.partitions] == [0, 1]
    for partition in described.partitions:
        assert partition.leader is not None
        assert [node.id for node in partition.replicas] == [node.id for node in partition.isr]


def test_a_topic_created_again_is_empty_and_has_a_new_id(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = TopicCollection([topic])
    create_topic(bootstrap, topic)
    send(bootstrap, topic, [{"value": b"old"}])
    old = admin.describe_topics(asked)[topic].result(30)

    admin.delete_topics([topic])[topic].result(30)
    create_topic(bootstrap, topic)
    send(bootstrap, topic, [{"value": b"new"}])

    new = admin.describe_topics(asked)[topic].result(30)
    assert str(new.topic_id) != str(old.topic_id)
    (message,) = read(bootstrap, topic, 1)
    assert (message.value(), message.offset()) == (b"new", 0)


@pytest.mark.parametrize(
    ("name", "partitions", "config", "error"),
    [
        ("taken", 1, {}, KafkaError.TOPIC_ALREADY_EXISTS),
        ("a name with spaces", 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("fresh", 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        ("fresh", 1, {"no.such.setting": "1"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    bootstrap: str, topic: str, name: str, partitions: int, config: dict[str, str], error: int
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if name == "taken":
        create_topic(bootstrap, topic)
    wanted = name if " " in name else topic

    with pytest.raises(KafkaException) as refusal:
        admin.create_topics([NewTopic(wanted, partitions, 1, config=config)])[wanted].result(30)

    assert refusal.value.args[0].code() == error


def test_partitions_are_never_taken_away(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create_topic(bootstrap, topic, partitions=3)

    with pytest.raises(KafkaException) as refusal:
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)

    assert refusal.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def test_an_admin_lists_offsets(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [{"value": b"v", "timestamp": ms} for ms in (1_000, 9_000, 5_000)])
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def offset(spec: OffsetSpec) -> tuple[int, int]:
        partition = TopicPartition(topic, 0)
        answer = admin.list_offsets({partition: spec})[partition].result(30)
        return answer.offset, answer.timestamp

    assert offset(OffsetSpec.earliest()) == (0, -1)
    assert offset(OffsetSpec.latest()) == (3, -1)
    assert offset(OffsetSpec.max_timestamp()) == (1, 9_000)
    assert offset(OffsetSpec.for_timestamp(4_000)) == (1, 9_000)
