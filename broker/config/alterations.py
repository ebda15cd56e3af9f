"""Altering settings while the broker runs: what a client wants becomes records, and what records say is put into force.

IncrementalAlterConfigs and AlterConfigs, of topics and brokers. Each function takes what is stored now, and returns
what to store: name -> new text, or None for a name to be removed. That is what ConfigRecords say; applying those
records is what changes anything. Kafka's ConfigAdminManager (brokers) and ConfigurationControlManager (both), with
their messages.

What the log says of a broker is put into force by `put_into_force`, as DynamicBrokerConfig.fromPersistentProps does:
what can't be is passed over, since records of the past never stop a broker.
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
    """Put what the metadata log says of this broker, or of all, into force; None leaves a side as it is.

    Takes the whole of a side each time. Returns a line, to be logged, for each name that can't be set so, or isn't
    legal, and is passed over.
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
    """Name -> why what is stored can't be put into force."""
    reasons = {}
    for name, text in stored.items():
        try:
            check(Occasion.REPLAY, Proposal(config, {name: text}, per_broker=per_broker))
        except ConfigError as error:
            reasons[name] = str(error)
    return reasons


# --- What is wanted, to what is stored ----------------------------------------------------------------------

MAX_VALUE_CHARACTERS = 32767


class AlterConfigOp(IntEnum):
    """AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One entry of an IncrementalAlterConfigs request; `operation` as it came over the wire."""

    name: str
    operation: int
    value: str | None


def check_request(alterations: Sequence[Alteration]) -> None:
    """What Kafka checks before it looks at any setting. Raises KafkaError(INVALID_REQUEST)."""
    if len({alteration.name for alteration in alterations}) != len(alterations):
        raise KafkaError(Error.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [a.name for a in alterations if a.value is None and a.operation != AlterConfigOp.DELETE]
    if nulls:
        raise KafkaError(Error.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def alter_topic(
    config: BrokerConfig, stored: Mapping[str, str], alterations: Sequence[Alteration]
) -> dict[str, str | None]:
    """A topic's alterations, after `check_request`.

    Raises KafkaError: INVALID_CONFIG, or UNKNOWN_SERVER_ERROR for an operation that isn't known.
    """
    changes = changes_of(stored, alterations, topic_definition)
    check(Occasion.ALTER_TOPIC, Proposal(config, _applied(stored, changes), stored=stored))
    return {name: text for name, text in changes.items() if stored.get(name) != text}


def replace_topic(
    config: BrokerConfig, stored: Mapping[str, str], wanted: Mapping[str, str]
) -> dict[str, str | None]:
    """AlterConfigs of a topic: what isn't named goes. Raises KafkaError(INVALID_CONFIG)."""
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
    """A broker's alterations, or the cluster's, after `check_request`.

    Raises KafkaError: INVALID_REQUEST for a setting that can't be altered or a value that isn't legal,
    INVALID_CONFIG for an operation that doesn't fit, or what eligible leader replicas (KIP-966) forbid.
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
    """AlterConfigs of a broker, or of the cluster: what isn't named goes. Raises as `alter_broker` does."""
    _check_broker(config, wanted, stored, per_broker=per_broker)
    changes = {**wanted, **_replacement(stored, wanted)}  # what is as before is written too (KAFKA-14136)
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
    """What the operations come to, for a resource whose settings `definition_named` knows.

    A list that isn't stored begins as Kafka's default. Raises KafkaError as `alter_topic` does.
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


# Kafka looks through the list for each part: here nobody else is served meanwhile, so a look is one into a table.


def _appended(elements: Sequence[str], parts: Iterable[str]) -> list[str]:
    """What is there stays as it is, though it names something twice."""
    known = frozenset(elements)
    return [*elements, *(part for part in dict.fromkeys(parts) if part not in known)]


def _subtracted(elements: Iterable[str], parts: Iterable[str]) -> list[str]:
    """Each part takes one element away, the first that is equal."""
    to_take = Counter(parts)
    kept: list[str] = []
    for element in elements:
        if to_take[element]:
            to_take[element] -= 1
        else:
            kept.append(element)
    return kept


def _split(text: str) -> list[str]:
    """Java's `String.split(",")`: without the empty elements at the end, but for an empty text itself."""
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
    """Raises KafkaError(INVALID_REQUEST), as Kafka does; a topic's bad value is an INVALID_CONFIG."""
    after = config.altered(broker=wanted) if per_broker else config.altered(cluster=wanted)
    try:
        proposal = Proposal(config, wanted, stored=stored, per_broker=per_broker, after=after)
        check(Occasion.ALTER_BROKER, proposal)
    except ConfigError as error:
        raise KafkaError(Error.INVALID_REQUEST, str(error)) from None
