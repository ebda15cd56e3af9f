"""Altering settings while the broker runs: a client's request becomes records, and the records take
effect.

This serves IncrementalAlterConfigs and AlterConfigs, for topics and brokers. Each function takes what is
stored now, and returns what to store: name -> new text, or None to remove a name. ConfigRecords say just
that, and only applying them changes anything. Source: Kafka's ConfigAdminManager (brokers) and
ConfigurationControlManager (both), with their messages.

`set_dynamic` puts a broker's records into force, as DynamicBrokerConfig.fromPersistentProps does. Invalid
ones are ignored, since old records never stop a broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from broker.config.broker_definitions import BROKER_ROWS, broker_definition
from broker.config.definitions import ConfigDef, ConfigError, ConfigType
from broker.config.setting_checks import Occasion, Proposal, check
from broker.config.topic_config import topic_definition
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


def set_dynamic(
    config: BrokerConfig,
    *,
    broker: Mapping[str, str] | None = None,
    cluster: Mapping[str, str] | None = None,
) -> list[str]:
    """Put the settings in the metadata log for this broker, or for all, into force. None leaves a side as it
    is.

    Takes the whole of a side each time. Returns a line to log for each name that is ignored, because it can't
    be set this way or its value is invalid.
    """
    complaints: list[str] = []

    def legal(stored: Mapping[str, str] | None, *, per_broker: bool) -> Mapping[str, str] | None:
        if stored is None:
            return None
        reasons = reasons_against(config, stored, per_broker=per_broker)
        complaints.extend(f"{name}: ignored: {reason}" for name, reason in reasons.items())
        return {name: text for name, text in stored.items() if name not in reasons}

    legal_cluster = legal(cluster, per_broker=False)
    config.set_dynamic(broker=legal(broker, per_broker=True), cluster=legal_cluster)
    return complaints


def reasons_against(config: BrokerConfig, stored: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    """Return name -> why the stored value can't be put into force."""
    reasons = {}
    for name, text in stored.items():
        try:
            check(Occasion.REPLAY, Proposal(config, {name: text}, per_broker=per_broker))
        except ConfigError as error:
            reasons[name] = str(error)
    return reasons


# --- From wishes to what is stored --------------------------------------------------------------------------

MAX_VALUE_CHARACTERS = 32767


class AlterConfigOp(IntEnum):
    """AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One entry of an IncrementalAlterConfigs request. `operation` is the code from the wire."""

    name: str
    operation: int
    value: str | None


def check_request(alterations: Sequence[Alteration]) -> None:
    """Check what Kafka checks before it looks at any setting. Raises KafkaError(INVALID_REQUEST)."""
    if len({alteration.name for alteration in alterations}) != len(alterations):
        raise KafkaError(Error.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [a.name for a in alterations if a.value is None and a.operation != AlterConfigOp.DELETE]
    if nulls:
        raise KafkaError(Error.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def alter_topic(
    config: BrokerConfig, stored: Mapping[str, str], alterations: Sequence[Alteration]
) -> dict[str, str | None]:
    """Return a topic's changes, after `check_request`.

    Raises KafkaError: INVALID_CONFIG, or UNKNOWN_SERVER_ERROR for an unknown operation.
    """
    changes = changes_of(stored, alterations, topic_definition)
    check(Occasion.ALTER_TOPIC, Proposal(config, _applied(stored, changes), stored=stored))
    return {name: text for name, text in changes.items() if stored.get(name) != text}


def replace_topic(
    config: BrokerConfig, stored: Mapping[str, str], wanted: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the changes of an AlterConfigs for a topic: settings that it doesn't name are removed. Raises
    KafkaError(INVALID_CONFIG)."""
    check(Occasion.ALTER_TOPIC, Proposal(config, wanted, stored=stored))
    return _replacement(stored, wanted)


def alter_broker(
    config: BrokerConfig,
    stored: Mapping[str, str],
    alterations: Sequence[Alteration],
    *,
    per_broker: bool,
    elr_enabled: bool = True,
) -> dict[str, str | None]:
    """Return the changes of a broker, or of the cluster, after `check_request`.

    Raises KafkaError: INVALID_REQUEST for a setting that can't be altered or an invalid value, INVALID_CONFIG
    for an operation that doesn't fit, or for what eligible leader replicas (KIP-966) forbid.
    """
    for alteration in alterations:
        if alteration.operation not in tuple(AlterConfigOp):
            raise KafkaError(Error.INVALID_REQUEST, f"Unknown operations type {alteration.operation}")
        if alteration.operation in (AlterConfigOp.APPEND, AlterConfigOp.SUBTRACT):
            _check_broker_list(alteration)
    changes = changes_of(stored, alterations, broker_definition)
    ignored = reasons_against(config, stored, per_broker=per_broker)
    in_force = {name: text for name, text in stored.items() if name not in ignored}
    _check_broker(config, _applied(in_force, changes), stored, per_broker=per_broker)
    if elr_enabled:
        check(Occasion.ALTER_BROKER_WITH_ELR, Proposal(config, changes, per_broker=per_broker))
    return changes


def replace_broker(
    config: BrokerConfig,
    stored: Mapping[str, str],
    wanted: Mapping[str, str],
    *,
    per_broker: bool,
    elr_enabled: bool = True,
) -> dict[str, str | None]:
    """Return the changes of an AlterConfigs for a broker or the cluster: settings that it doesn't name are
    removed. Raises as `alter_broker`."""
    _check_broker(config, wanted, stored, per_broker=per_broker)
    changes = {**wanted, **_replacement(stored, wanted)}  # unchanged values are written, too (KAFKA-14136)
    if elr_enabled:
        check(Occasion.ALTER_BROKER_WITH_ELR, Proposal(config, changes, per_broker=per_broker))
    return changes


def _replacement(stored: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {name: text for name, text in wanted.items() if stored.get(name) != text}
    changes.update(dict.fromkeys(name for name in stored if name not in wanted))
    return changes


def _applied(stored: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in {**stored, **changes}.items() if text is not None}


def changes_of(
    stored: Mapping[str, str],
    alterations: Iterable[Alteration],
    definition_named: Callable[[str], ConfigDef | None],
) -> dict[str, str | None]:
    """Return the result of the operations, for a resource whose settings `definition_named` knows.

    A list that isn't stored starts with Kafka's default. Raises KafkaError as `alter_topic`.
    """
    changes: dict[str, str | None] = {}
    for name, operation, value in alterations:
        if operation == AlterConfigOp.SET:
            changes[name] = value
        elif operation == AlterConfigOp.DELETE:
            changes[name] = None
        elif operation in (AlterConfigOp.APPEND, AlterConfigOp.SUBTRACT):
            definition = definition_named(name)
            if definition is None or definition.type is not ConfigType.LIST:
                raise KafkaError(
                    Error.INVALID_CONFIG,
                    f"Can't {AlterConfigOp(operation).name} to key {name} because its type is not LIST.",
                )
            elements = [part for part in stored.get(name, definition.default or "").split(",") if part]
            combine = _appended if operation == AlterConfigOp.APPEND else _subtracted
            changes[name] = ",".join(combine(elements, _split(value or "")))
        else:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
        if len(changes[name] or "") > MAX_VALUE_CHARACTERS:
            raise KafkaError(
                Error.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{MAX_VALUE_CHARACTERS} bytes.",
            )
    return changes


# Kafka searches the list for each part. Here nobody else is served meanwhile, so this uses a table.


def _appended(elements: Sequence[str], parts: Iterable[str]) -> list[str]:
    """Append the parts that are missing. Existing elements stay, even repeated ones."""
    known = frozenset(elements)
    return [*elements, *(part for part in dict.fromkeys(parts) if part not in known)]


def _subtracted(elements: Iterable[str], parts: Iterable[str]) -> list[str]:
    """Remove, for each part, the first equal element."""
    to_take = Counter(parts)
    kept: list[str] = []
    for element in elements:
        if to_take[element]:
            to_take[element] -= 1
        else:
            kept.append(element)
    return kept


def _split(text: str) -> list[str]:
    """Java's `String.split(",")`: without empty elements at the end, except for an empty text itself."""
    kept = text.rstrip(",")
    return kept.split(",") if kept or not text else []


def _check_broker_list(alteration: Alteration) -> None:
    row = BROKER_ROWS.get(alteration.name)
    if row is None:
        raise KafkaError(Error.INVALID_CONFIG, f"Unknown config name: {alteration.name}")
    if row[0] != "LIST":
        verb = AlterConfigOp(alteration.operation).name.lower()
        raise KafkaError(
            Error.INVALID_CONFIG, f"Config value {verb} is not allowed for config key: {alteration.name}"
        )


def _check_broker(
    config: BrokerConfig, wanted: Mapping[str, str], stored: Mapping[str, str], *, per_broker: bool
) -> None:
    """Raises KafkaError(INVALID_REQUEST), as Kafka does. (A topic's bad value is INVALID_CONFIG.)"""
    after = config.altered(broker=wanted) if per_broker else config.altered(cluster=wanted)
    try:
        proposal = Proposal(config, wanted, stored=stored, per_broker=per_broker, after=after)
        check(Occasion.ALTER_BROKER, proposal)
    except ConfigError as error:
        raise KafkaError(Error.INVALID_REQUEST, str(error)) from None
