"""The tables of settings, compared with what Kafka says about itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config import broker_definitions
from broker.config import topic_config as topic_definitions
from broker.config.broker_definitions import broker_definition, synonyms_of, without_listener
from broker.config.definitions import ConfigDef, ConfigType, definition_of, parse_value, validate
from broker.config.group_config import GROUP_ROWS
from broker.config.topic_config import topic_definition

DATA = Path(__file__).parent / "data"
REQUIRED = "null(required)"


def table(name: str) -> list[list[str]]:
    lines = (DATA / name).read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def documented(definition: ConfigDef) -> str:
    """Return our notation of a validator as Kafka's documentation writes it."""
    notation = definition.validator
    if notation == "throttled replicas":
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    if notation.startswith("distinct"):
        return ""
    if notation == "non-null":
        return "non-null string"
    if definition.name in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        return "non-empty list"
    return notation.removesuffix(" non-empty") or "-"


@pytest.mark.parametrize("row", table("broker_configs.tsv"), ids=lambda row: row[0])
def test_a_broker_setting_is_as_kafka_documents_it(row: list[str]) -> None:
    name, type_name, default, valid, importance, mode = row
    definition = broker_definition(name)
    assert definition is not None
    assert definition.type.name == type_name
    assert definition.default == (None if default in ("null", REQUIRED) else default)
    assert documented(definition) == valid
    assert (definition.importance, definition.update_mode) == (importance, mode)


@pytest.mark.parametrize("row", table("topic_configs.tsv"), ids=lambda row: row[0])
def test_a_topic_setting_is_as_kafka_documents_it(row: list[str]) -> None:
    name, type_name, default, valid, importance = row
    definition = topic_definition(name)
    assert definition is not None
    assert (definition.type.name, definition.default, definition.importance) == (
        type_name,
        default,
        importance,
    )
    assert documented(definition) == valid


@pytest.mark.parametrize("row", table("group_configs.tsv"), ids=lambda row: row[0])
def test_a_groups_setting_is_as_kafka_documents_it(row: list[str]) -> None:
    name, type_name, default, valid, importance = row
    definition = definition_of(name, GROUP_ROWS[name])
    assert (definition.type.name, definition.default, definition.importance) == (
        type_name,
        None if default == "null" else default,
        importance,
    )
    if name != "share.auto.offset.reset":  # this setting has a check of its own
        assert documented(definition) == valid


def test_there_are_no_settings_that_kafka_does_not_have() -> None:
    assert sorted(broker_definitions.BROKER_ROWS) == sorted(row[0] for row in table("broker_configs.tsv"))
    assert sorted(topic_definitions.TOPIC_ROWS) == sorted(row[0] for row in table("topic_configs.tsv"))
    assert sorted(GROUP_ROWS) == sorted(row[0] for row in table("group_configs.tsv"))


def test_every_default_is_legal() -> None:
    required = {row[0] for row in table("broker_configs.tsv") if row[2] == REQUIRED}
    names = [
        *broker_definitions.BROKER_ROWS,
        *broker_definitions.INTERNAL_BROKER_ROWS,
        *broker_definitions.DYNAMIC_ONLY_ROWS,
    ]
    for definition in [broker_definition(name) for name in names] + [
        topic_definition(name) for name in topic_definitions.TOPIC_ROWS
    ]:
        assert definition is not None
        if definition.name not in required:
            parse_value(definition, definition.default)


def test_a_notation_that_is_not_known_is_never_passed_over() -> None:
    with pytest.raises(AssertionError):
        validate("x", "y", "whatever")


def test_hidden_settings_are_known_but_marked() -> None:
    broker, topic = broker_definition("log.initial.task.delay.ms"), topic_definition("internal.segment.bytes")
    assert broker is not None
    assert topic is not None
    assert broker.internal
    assert topic.internal


def test_names_that_do_not_exist_have_no_definition() -> None:
    assert broker_definition("retention.ms") is None
    assert topic_definition("message.format.version") is None


def test_only_passwords_are_sensitive() -> None:
    sensitive = [
        name for name in broker_definitions.BROKER_ROWS if (d := broker_definition(name)) and d.sensitive
    ]
    assert len(sensitive) == 10
    assert {broker_definitions.BROKER_ROWS[name][0] for name in sensitive} == {ConfigType.PASSWORD.name}


def test_a_topic_setting_follows_broker_settings_that_exist() -> None:
    for topic_name, synonyms in topic_definitions.TOPIC_SYNONYMS.items():
        topic = topic_definition(topic_name)
        assert topic is not None
        for name, factor in synonyms:
            broker = broker_definition(name)
            assert broker is not None
            assert broker.type == topic.type or factor > 1


def test_a_setting_in_several_units_has_its_synonyms_strongest_first() -> None:
    expected = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    assert synonyms_of("log.retention.hours") == expected
    # The scheduler's interval is a synonym of the flush interval, but not the other way round.
    assert synonyms_of("log.flush.scheduler.interval.ms") == ("log.flush.scheduler.interval.ms",)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("listener.name.internal.max.connections", "max.connections"),
        ("listener.name.internal.plain.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.internal", None),
        ("max.connections", None),
    ],
)
def test_a_listeners_own_setting_leads_to_the_general_one(name: str, base: str | None) -> None:
    assert without_listener(name) == base
    assert synonyms_of(name) == ((name,) if base is None else (name, base))
