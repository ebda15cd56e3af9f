"""confluent-kafka's admin client: settings, records, elections and credentials above all."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.clients.confluent import create_topic, read, send

PATIENCE_S = 240.0


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def settings_of(admin: AdminClient, kind: Any, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    return found


def alter(admin: AdminClient, topic: str, *changes: tuple[str, str | None, AlterConfigOpType]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=operation) for name, value, operation in changes
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def test_a_topics_settings_are_set_appended_to_and_deleted(
    admin: AdminClient, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic, config={"segment.ms": "60000"})

    alter(
        admin,
        topic,
        ("retention.ms", "1234567", AlterConfigOpType.SET),
        ("cleanup.policy", "compact", AlterConfigOpType.APPEND),
        ("segment.ms", None, AlterConfigOpType.DELETE),
    )

    settings = settings_of(admin, ResourceType.TOPIC, topic)
    assert len(settings) == 37
    assert settings["retention.ms"].value == "1234567"
    assert settings["cleanup.policy"].value == "delete,compact"
    assert settings["segment.ms"].value == "604800000"
    assert settings["segment.ms"].is_default
    assert [*settings["cleanup.policy"].synonyms] == ["cleanup.policy", "log.cleanup.policy"]


def test_a_setting_is_in_force_once_its_alteration_is_answered(
    admin: AdminClient, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    send(bootstrap, topic, [{"value": b"x" * 2_000}])

    alter(admin, topic, ("max.message.bytes", "1000", AlterConfigOpType.SET))

    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        send(bootstrap, topic, [{"value": b"x" * 2_000}])


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("no.such.setting", "1", "Unknown"),
        ("cleanup.policy", "shred", "compact"),
        ("retention.ms", "x", "LONG"),
    ],
)
def test_a_bad_setting_is_refused_with_the_valid_values(
    admin: AdminClient, bootstrap: str, topic: str, name: str, value: str, valid: str
) -> None:
    create_topic(bootstrap, topic)

    with pytest.raises(KafkaException) as refused:
        alter(admin, topic, (name, value, AlterConfigOpType.SET))

    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert valid in refused.value.args[0].str()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_old_way_replaces_all_settings(admin: AdminClient, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, config={"segment.ms": "60000"})

    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "1234567"})
    admin.alter_configs([resource])[resource].result(PATIENCE_S)

    settings = settings_of(admin, ResourceType.TOPIC, topic)
    assert (settings["retention.ms"].value, settings["segment.ms"].value) == ("1234567", "604800000")


def test_a_brokers_settings_are_described(admin: AdminClient) -> None:
    (broker,) = admin.list_topics(timeout=PATIENCE_S).brokers

    settings = settings_of(admin, ResourceType.BROKER, str(broker))

    assert len(settings) >= 340
    assert settings["node.id"].value == str(broker)
    assert settings["node.id"].is_read_only
    assert not settings["log.retention.ms"].is_read_only
    assert settings["sasl.jaas.config"].is_sensitive


def test_deleted_records_are_not_read_any_more(admin: AdminClient, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    send(bootstrap, topic, [{"value": b"%d" % n} for n in range(10)])
    partition = TopicPartition(topic, 0, 6)

    deleted = admin.delete_records([partition])[partition].result(PATIENCE_S)

    assert deleted.low_watermark == 6
    (first,) = read(bootstrap, topic, 1, **{"auto.offset.reset": "earliest"})
    assert (first.offset(), first.value()) == (6, b"6")


def test_an_election_that_is_not_needed_says_so(admin: AdminClient, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    partition = TopicPartition(topic, 0)

    outcome = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(PATIENCE_S)

    assert outcome[partition].code() == KafkaError.ELECTION_NOT_NEEDED


def test_a_users_credentials_are_made_and_deleted(admin: AdminClient, topic: str) -> None:
    mechanism = ScramMechanism.SCRAM_SHA_512
    upsertion = UserScramCredentialUpsertion(
        topic, ScramCredentialInfo(mechanism, 8192), b"password", b"salt"
    )

    admin.alter_user_scram_credentials([upsertion])[topic].result(PATIENCE_S)
    described = admin.describe_user_scram_credentials([topic])[topic].result(PATIENCE_S)
    deletion = UserScramCredentialDeletion(topic, mechanism)
    admin.alter_user_scram_credentials([deletion])[topic].result(PATIENCE_S)

    (info,) = described.scram_credential_infos
    assert (info.mechanism, info.iterations) == (mechanism, 8192)
    with pytest.raises(KafkaException) as gone:
        admin.describe_user_scram_credentials([topic])[topic].result(PATIENCE_S)
    assert gone.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
