"""kafka-python's admin client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.clients.confluent import create_topic, end_offsets, send
from tests.clients.kafka_python import kafka

TOPIC = kafka.admin.ConfigResourceType.TOPIC


@pytest.fixture
def admin(bootstrap: str) -> Iterator[kafka.KafkaAdminClient]:
    with closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        yield client


def test_a_topics_settings_are_altered_and_reset(
    admin: kafka.KafkaAdminClient, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)

    def described() -> dict[str, str]:
        found = admin.describe_configs([kafka.admin.ConfigResource(TOPIC, topic)], include_synonyms=True)
        return {
            name: entry["value"]
            for name, entry in found["topic"][topic].items()
            if entry["config_source"] == "DYNAMIC_TOPIC_CONFIG"
        }

    wanted = {"retention.ms": "1234567", "flush.ms": "5000"}
    admin.alter_configs([kafka.admin.ConfigResource(TOPIC, topic, wanted)])
    assert described() == wanted

    admin.reset_configs([kafka.admin.ConfigResource(TOPIC, topic, {"flush.ms": None})])
    assert described() == {"retention.ms": "1234567"}


def test_resources_with_settings_are_listed(
    admin: kafka.KafkaAdminClient, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)

    listed = admin.list_config_resources()

    assert topic in listed["topic"]
    assert listed["broker"] == listed["broker_logger"]


def test_records_are_deleted(admin: kafka.KafkaAdminClient, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    send(bootstrap, topic, [{"value": b"v"}] * 5)
    partition = kafka.TopicPartition(topic, 0)

    deleted = admin.delete_records({partition: 3})

    assert deleted[partition]["low_watermark"] == 3
    assert end_offsets(bootstrap, topic, 1) == [5]


def test_log_directories_are_described(admin: kafka.KafkaAdminClient, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    send(bootstrap, topic, [{"value": b"v" * 100}])

    (broker,) = admin.describe_log_dirs({topic: [0]})

    (directory,) = broker["log_dirs"]
    (described,) = directory["topics"]
    assert described["name"] == topic
    assert described["partitions"][0]["partition_size"] > 100
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]


def test_the_quorum_has_one_voter_that_leads(admin: kafka.KafkaAdminClient) -> None:
    quorum = admin.describe_metadata_quorum()

    (partition,) = quorum["topics"][0]["partitions"]
    (voter,) = partition["current_voters"]
    assert voter["replica_id"] == partition["leader_id"]
    assert voter["log_end_offset"] >= partition["high_watermark"] > 0


def test_features_are_described(admin: kafka.KafkaAdminClient) -> None:
    features = admin.describe_features()

    assert features["metadata.version"]["finalized"] == (33, 33)
    assert features["transaction.version"]["supported"] == (0, 2)


def test_the_producers_of_a_partition_are_described(
    admin: kafka.KafkaAdminClient, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    send(bootstrap, topic, [{"value": b"v"}] * 3, **{"enable.idempotence": True})
    partition = kafka.TopicPartition(topic, 0)

    (producer,) = admin.describe_producers([partition])[partition].active_producers

    assert (producer.producer_epoch, producer.last_sequence) == (0, 2)


def test_nothing_is_reassigned(admin: kafka.KafkaAdminClient, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    (broker,) = admin.describe_cluster()["brokers"]
    partition = kafka.TopicPartition(topic, 0)

    assert admin.alter_partition_reassignments({partition: [broker["broker_id"]]}) == {partition: None}
    assert admin.list_partition_reassignments() == {}


def test_acls_are_answered_by_there_being_no_authorizer(admin: kafka.KafkaAdminClient) -> None:
    every = kafka.admin.ACLFilter(
        principal=None,
        host=None,
        operation=kafka.admin.ACLOperation.ANY,
        permission_type=kafka.admin.ACLPermissionType.ANY,
        resource_pattern=kafka.admin.ResourcePatternFilter(
            kafka.admin.ResourceType.ANY, None, kafka.admin.ACLResourcePatternType.ANY
        ),
    )
    with pytest.raises(kafka.errors.SecurityDisabledError):
        admin.describe_acls(every)
