"""A group's own settings (KIP-848, KIP-932, KIP-1071): definitions, valid values, and DescribeConfigs.

Source: Kafka's GroupConfig. A group's settings are ConfigRecords, by name, as text. Any group, existing or
not, has the defaults, which are the broker's settings with almost the same names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from broker.config.definitions import (
    ConfigEntry,
    ConfigError,
    ConfigSource,
    ConfigSynonym,
    Value,
    definition_of,
    parse_value,
    trimmed,
    value_text,
)
from broker.config.describe import broker_synonyms, unknown_entries
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.config.definitions import Row


_RESET = "latest, earliest, or by_duration:PnDTnHnMn.nS"

GROUP_ROWS: dict[str, Row] = {
    "consumer.session.timeout.ms": ("INT", "45000", "[1,...]", "MEDIUM", "cluster-wide"),
    "consumer.heartbeat.interval.ms": ("INT", "5000", "[1,...]", "MEDIUM", "cluster-wide"),
    "consumer.assignment.interval.ms": ("INT", "1000", "[0,...]", "MEDIUM", "cluster-wide"),
    "share.session.timeout.ms": ("INT", "45000", "[1,...]", "MEDIUM", "cluster-wide"),
    "share.heartbeat.interval.ms": ("INT", "5000", "[1,...]", "MEDIUM", "cluster-wide"),
    "share.record.lock.duration.ms": ("INT", "30000", "[1000,...]", "MEDIUM", "cluster-wide"),
    "share.delivery.count.limit": ("INT", "5", "[2,...]", "MEDIUM", "cluster-wide"),
    "share.partition.max.record.locks": ("INT", "2000", "[100,...]", "MEDIUM", "cluster-wide"),
    "share.auto.offset.reset": ("STRING", "latest", "", "MEDIUM", "cluster-wide"),
    "share.isolation.level": (
        "STRING",
        "read_uncommitted",
        "[read_committed, read_uncommitted]",
        "MEDIUM",
        "cluster-wide",
    ),
    "share.renew.acknowledge.enable": ("BOOLEAN", "true", "", "MEDIUM", "cluster-wide"),
    "share.assignment.interval.ms": ("INT", "1000", "[0,...]", "MEDIUM", "cluster-wide"),
    "streams.session.timeout.ms": ("INT", "45000", "[1,...]", "MEDIUM", "cluster-wide"),
    "streams.heartbeat.interval.ms": ("INT", "5000", "[1,...]", "MEDIUM", "cluster-wide"),
    "streams.num.standby.replicas": ("INT", "0", "[0,...]", "MEDIUM", "cluster-wide"),
    "streams.initial.rebalance.delay.ms": ("INT", "3000", "[0,...]", "MEDIUM", "cluster-wide"),
    "streams.assignment.interval.ms": ("INT", "1000", "[0,...]", "MEDIUM", "cluster-wide"),
    "streams.rack.aware.assignment.tags": ("LIST", "", "distinct", "LOW", "cluster-wide"),
    "streams.assignor.name": ("STRING", None, "", "MEDIUM", "cluster-wide"),
    "errors.deadletterqueue.topic.name": ("STRING", "", "", "MEDIUM", "cluster-wide"),
    "errors.deadletterqueue.copy.record.enable": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
}

# Hidden by Kafka (ConfigDef.defineInternal): accepted, but only described if they are set.
INTERNAL_GROUP_ROWS: dict[str, Row] = {
    "consumer.assignor.offload.enable": ("BOOLEAN", "true", "", "MEDIUM", "cluster-wide"),
    "share.assignor.offload.enable": ("BOOLEAN", "true", "", "MEDIUM", "cluster-wide"),
    "streams.assignor.offload.enable": ("BOOLEAN", "true", "", "MEDIUM", "cluster-wide"),
    "streams.task.offset.interval.ms": ("INT", "60000", "[1,...]", "MEDIUM", "cluster-wide"),
    "streams.num.warmup.replicas": ("INT", "2", "[0,...]", "MEDIUM", "cluster-wide"),
    "streams.acceptable.recovery.lag": ("LONG", "10000", "[0,...]", "MEDIUM", "cluster-wide"),
}

WITHOUT_SYNONYM = (
    "share.auto.offset.reset",
    "share.isolation.level",
    "share.renew.acknowledge.enable",
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.copy.record.enable",
)

_DLQ_TOPIC = "errors.deadletterqueue.topic.name"
_TAGS = "streams.rack.aware.assignment.tags"
_ASSIGNOR, _ASSIGNORS = "streams.assignor.name", "group.streams.assignors"

# In the order of Kafka's checks: setting → the broker's settings for its lower and upper bound.
GROUP_BOUNDS: dict[str, tuple[str | None, str | None]] = {
    f"{kind}.{setting}": (f"group.{kind}.min.{setting}", f"group.{kind}.max.{setting}")
    for kind, settings in {
        "consumer": ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"),
        "share": (
            "heartbeat.interval.ms",
            "session.timeout.ms",
            "record.lock.duration.ms",
            "delivery.count.limit",
            "partition.max.record.locks",
            "assignment.interval.ms",
        ),
        "streams": ("heartbeat.interval.ms", "session.timeout.ms"),
    }.items()
    for setting in settings
} | {
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
    "streams.assignment.interval.ms": (
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
    "streams.task.offset.interval.ms": ("group.streams.min.task.offset.interval.ms", None),
    "streams.num.warmup.replicas": (None, "group.streams.max.warmup.replicas"),
}


def group_row(name: str) -> Row | None:
    """The row of a group's setting, including hidden ones. None for an unknown name."""
    return GROUP_ROWS.get(name) or INTERNAL_GROUP_ROWS.get(name)


def synonym_of(name: str) -> str | None:
    """The broker's setting that backs a group's setting."""
    if name == _ASSIGNOR:
        return _ASSIGNORS
    return None if name in WITHOUT_SYNONYM else f"group.{name}"


def group_values(config: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Value]:
    """Return all settings in force for a group, and hidden ones that it has. Values in the log that aren't
    valid any more are brought within the bounds (GroupConfig.evaluate)."""
    values = group_defaults(config)
    for name, text in overrides.items():
        if group_row(name) is None:
            continue
        try:
            values[name] = parsed_group_value(name, text)
        except ConfigError:
            continue
        if name in GROUP_BOUNDS:
            lowest, highest = GROUP_BOUNDS[name]
            value = group_number(values, name)
            value = value if highest is None else min(value, config.get_int(highest))
            values[name] = value if lowest is None else max(value, config.get_int(lowest))
    return values


def group_timeouts(config: BrokerConfig, kind: str, overrides: Mapping[str, str]) -> tuple[int, int, int]:
    """Return session timeout, heartbeat interval and assignment interval of a "consumer" or a "share" group,
    in ms."""
    names = (
        f"{kind}.session.timeout.ms",
        f"{kind}.heartbeat.interval.ms",
        f"{kind}.assignment.interval.ms",
    )
    session, heartbeat, assignment = _numbers_in_force(config, overrides, names)
    return session, heartbeat, assignment


def streams_config(config: BrokerConfig, overrides: Mapping[str, str]) -> tuple[int, int, int, int, int]:
    """Return session timeout, heartbeat interval, assignment interval and initial rebalance delay of a
    streams group, in ms, and its number of standby replicas."""
    names = (
        "streams.session.timeout.ms",
        "streams.heartbeat.interval.ms",
        "streams.assignment.interval.ms",
        "streams.initial.rebalance.delay.ms",
        "streams.num.standby.replicas",
    )
    session, heartbeat, assignment, delay, standbys = _numbers_in_force(config, overrides, names)
    return session, heartbeat, assignment, delay, standbys


def _numbers_in_force(
    config: BrokerConfig, overrides: Mapping[str, str], names: Sequence[str]
) -> Iterable[int]:
    """Return the numbers in force. Most groups have no settings of their own, so the broker's are enough."""
    if not overrides:
        return (config.get_int(f"group.{name}") for name in names)
    values = group_values(config, overrides)
    return (group_number(values, name) for name in names)


def describe_group(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Return a group's settings for DescribeConfigs, limited to `names` if there are any."""
    entries = []
    values = group_defaults(config) | {
        name: parsed_group_value(name, text)
        for name, text in overrides.items()
        if group_row(name) is not None
    }
    for name, value in values.items():
        if names and name not in names:
            continue
        row = group_row(name)
        assert row is not None
        definition = definition_of(name, row)
        behind = synonym_of(name)
        if behind is None:
            synonyms = [ConfigSynonym(name, definition.default, ConfigSource.DEFAULT_CONFIG)]
        else:
            synonyms = broker_synonyms(config, behind)
        text = overrides[name] if name in INTERNAL_GROUP_ROWS else value_text(value)
        if name in overrides:
            synonyms.insert(0, ConfigSynonym(name, text, ConfigSource.GROUP_CONFIG))
        entries.append(
            ConfigEntry(name, text, synonyms[0].source, False, False, definition.type, tuple(synonyms))
        )
    return entries + unknown_entries(overrides, names, group_row, ConfigSource.GROUP_CONFIG)


def group_defaults(config: BrokerConfig) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name in GROUP_ROWS:
        behind = synonym_of(name)
        values[name] = _default_of_its_own(name) if behind is None else config.get(behind)
    values[_ASSIGNOR] = config.get_list(_ASSIGNORS)[0]
    return values


@cache
def _default_of_its_own(name: str) -> Value:
    """The default of a setting that no broker setting backs. Cached, since each altered group is checked."""
    row = GROUP_ROWS[name]
    return parse_value(definition_of(name, row), row[1])


def parsed_group_value(name: str, text: str) -> Value:
    row = group_row(name)
    assert row is not None
    value = parse_value(definition_of(name, row), text)
    if name == "share.auto.offset.reset" and not _is_reset(str(value)):
        raise ConfigError(f"Invalid value {text} for configuration {name}: {_RESET} is expected", name)
    return value


def _is_reset(text: str) -> bool:
    if text in ("latest", "earliest"):
        return True
    kind, colon, duration = text.partition(":")
    return kind == "by_duration" and bool(colon) and _is_duration(duration)


def _is_duration(text: str) -> bool:
    """Check for an ISO 8601 duration that Java's Duration.parse accepts and that isn't negative."""
    import re

    found = re.fullmatch(
        r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:[.,]\d{0,9})?)S)?)?", text, re.IGNORECASE | re.ASCII
    )
    return found is not None and any(found.groups()) and text[-1:] not in "tT"


def group_number(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int), f"{name} is {value!r}"
    return value


# --- Checking names, values, and the broker's bounds (GroupConfig.validate) ---------------------------------


def check_group_configs(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Check names, values, and the broker's bounds. Only given values are checked, whatever the broker's own
    are.

    Raises KafkaError(INVALID_CONFIG).
    """
    for name in overrides:
        if group_row(name) is None:
            raise _invalid(f"Unknown group config name: {name}")
    tags = _split(overrides.get(_TAGS, ""))
    if len(set(tags)) != len(tags):  # checked in the text, since parsing drops repeated elements
        raise _invalid(f"{_TAGS} must not contain duplicate tag keys.")
    try:
        values = {
            name: parsed_group_value(name, overrides[name])
            for name in (*GROUP_ROWS, *INTERNAL_GROUP_ROWS)
            if name in overrides
        }
    except ConfigError as error:
        raise _invalid(str(error)) from None
    for name, bounds in GROUP_BOUNDS.items():
        if name in values:
            _check_bounds(config, name, group_number(values, name), *bounds)
    if _ASSIGNOR in values and values[_ASSIGNOR] not in config.get_list(_ASSIGNORS):
        registered = ", ".join(config.get_list(_ASSIGNORS))
        raise _invalid(
            f"{_ASSIGNOR} '{values[_ASSIGNOR]}' is not a registered task assignor. "
            f"Registered assignors are: [{registered}]."
        )
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        given = [name for name in (session, heartbeat) if name in values]
        if given:
            in_force = {name: config.get(f"group.{name}") for name in (session, heartbeat)} | values
            if group_number(in_force, session) <= group_number(in_force, heartbeat):
                raise _invalid(f"{session} must be greater than {heartbeat}")
    _check_dead_letter_queue(str(values.get(_DLQ_TOPIC, "")))


def _check_bounds(
    config: BrokerConfig, name: str, value: int, lowest: str | None, highest: str | None
) -> None:
    least = None if lowest is None else config.get_int(lowest)
    most = None if highest is None else config.get_int(highest)
    if (least is None or value >= least) and (most is None or value <= most):
        return
    if least is None:
        raise _invalid(f"{name} must be less than or equal to {most}")
    if most is None:
        raise _invalid(f"{name} must be greater than or equal to {least}")
    raise _invalid(f"{name} must be in the range {least} to {most} inclusive.")


def _check_dead_letter_queue(topic: str) -> None:
    """Raises KafkaError for the name of an internal topic (KIP-1191). Other problems show when the topic is
    used; meanwhile rejected records are archived without a dead letter."""
    if topic.startswith("__"):
        raise _invalid(f"{_DLQ_TOPIC}: DLQ topic name must not start with '__'")


def _split(text: str) -> list[str]:
    """Return a list's elements as written, including empty and repeated ones."""
    stripped = trimmed(text)
    return [part.strip(" \t\n\x0b\f\r") for part in stripped.split(",")] if stripped else []


def _invalid(message: str) -> KafkaError:
    return KafkaError(Error.INVALID_CONFIG, message)
