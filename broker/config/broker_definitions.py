"""The 340 settings of a Kafka 4.3 broker, its hidden ones, those that can only be set while it runs, and our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.definitions import ConfigDef, definition_of
from broker.config.rows import coordinators, logs, remote, security, server

if TYPE_CHECKING:
    from broker.config.definitions import Row

BROKER_ROWS: dict[str, Row] = {
    **server.ROWS,
    **logs.ROWS,
    **coordinators.ROWS,
    **remote.ROWS,
    **security.ROWS,
}
"""By name; what DescribeConfigs lists for a broker."""

INTERNAL_BROKER_ROWS: dict[str, Row] = {
    **server.INTERNAL_ROWS,
    **logs.INTERNAL_ROWS,
    **coordinators.INTERNAL_ROWS,
    **remote.INTERNAL_ROWS,
}

# QuotaConfig.brokerQuotaConfigs: no file can hold them, IncrementalAlterConfigs can.
DYNAMIC_ONLY_ROWS: dict[str, Row] = {
    "follower.replication.throttled.rate": (
        "LONG",
        "9223372036854775807",
        "[0,...]",
        "MEDIUM",
        "cluster-wide",
    ),
    "leader.replication.throttled.rate": ("LONG", "9223372036854775807", "[0,...]", "MEDIUM", "cluster-wide"),
    "replica.alter.log.dirs.io.max.bytes.per.second": (
        "LONG",
        "9223372036854775807",
        "[0,...]",
        "MEDIUM",
        "cluster-wide",
    ),
}

INTER_BROKER_REQUESTS = "barnabas.inter.broker.requests"

OWN_ROWS: dict[str, Row] = {INTER_BROKER_REQUESTS: ("BOOLEAN", "true", "", "MEDIUM", "read-only")}
"""What Kafka doesn't have, and passes over in a file: described only where set."""

# DynamicBrokerConfig.brokerConfigSynonyms: names of one setting in several units, the first that is set wins.
BROKER_SYNONYMS: dict[str, tuple[str, ...]] = {
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.minutes": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.hours": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.hours": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}

# SASL settings that a listener may have per mechanism: listener.name.<listener>.<mechanism>.<setting>.
_PER_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def broker_definition(name: str) -> ConfigDef | None:
    """The definition of a broker's setting, whichever kind it is of; None if there is none."""
    row = BROKER_ROWS.get(name)
    if row is not None:
        return definition_of(name, row)
    row = INTERNAL_BROKER_ROWS.get(name)
    if row is not None:
        return definition_of(name, row, internal=True)
    row = DYNAMIC_ONLY_ROWS.get(name) or OWN_ROWS.get(name)
    return None if row is None else definition_of(name, row)


def listener_prefix(listener: str) -> str:
    """How the names of settings begin that are for one listener (Kafka: `ListenerName.configPrefix`)."""
    return f"listener.name.{listener.lower()}."


def without_listener(name: str) -> str | None:
    """The setting that `listener.name.<listener>.<setting>` is for one listener; None for other names."""
    if not name.startswith("listener.name."):
        return None
    listener, dot, setting = name[len("listener.name.") :].partition(".")
    if not dot or not listener:
        return None
    for own in OWN_ROWS:
        if name.endswith(f".{own}"):
            return own
    for per_mechanism in _PER_MECHANISM:
        if setting.endswith(per_mechanism):
            return per_mechanism
    return setting


def synonyms_of(name: str) -> tuple[str, ...]:
    """The names under which a setting's value may stand, the strongest first; itself at least."""
    synonyms = BROKER_SYNONYMS.get(name)
    if synonyms is not None:
        return synonyms
    base = without_listener(name)
    return (name,) if base is None else (name, base)
