"""What of a broker's settings may be altered while it runs, at which level, and to which values.

Kafka's DynamicBrokerConfig.validateConfigs.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.config.broker_definitions import OWN_ROWS, broker_definition, without_listener
from broker.config.definitions import PER_BROKER, ConfigDef, ConfigType
from broker.config.errors import ConfigError, invalid_value
from broker.config.java_classes import CLASSES
from broker.config.parsing import parse_value

CLEANER_THREADS = "log.cleaner.threads"

# Kafka binds and unbinds while it runs. Refused, rather than taken without effect.
_ONLY_AT_START = ("listeners", "listener.security.protocol.map")

# SslConfigs.RECONFIGURABLE_CONFIGS: only with a listener's prefix.
ONLY_PER_LISTENER = frozenset(
    f"ssl.{setting}"
    for setting in (
        "key.password",
        "keystore.certificate.chain",
        "keystore.key",
        "keystore.location",
        "keystore.password",
        "keystore.type",
        "truststore.certificates",
        "truststore.location",
        "truststore.password",
        "truststore.type",
    )
)

# SocketServer.LISTENER_RECONFIGURABLE_CONFIGS: their definitions let 0 through, with which nobody could connect.
CONNECTION_QUOTAS = ("max.connections", "max.connection.creation.rate")
NETWORK_THREADS = "num.network.threads"

CLUSTER_LEVEL_OF_LISTENERS = (*CONNECTION_QUOTAS, NETWORK_THREADS)
"""What may be set for a listener of all brokers; other settings of listeners are for one broker."""


def check_dynamic(wanted: Mapping[str, str], *, per_broker: bool) -> None:
    """DynamicBrokerConfig.validateConfigs: all names first, then the values, then the level."""
    static = [name for name in wanted if _is_static(name)]
    if static:
        raise ConfigError(f"Cannot update these configs dynamically: [{', '.join(static)}]")
    without_prefix = [name for name in wanted if name in ONLY_PER_LISTENER]
    if without_prefix:
        raise ConfigError(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(without_prefix)}]"
        )
    for name, text in wanted.items():
        _check_dynamic_value(name, text)
    only_here = [] if per_broker else [name for name in wanted if _is_per_broker(name)]
    if only_here:
        raise ConfigError(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(only_here)}]"
        )


def _is_static(name: str) -> bool:
    definition = broker_definition(name)
    return without_listener(name) in OWN_ROWS or (definition is not None and not definition.dynamic)


def _is_per_broker(name: str) -> bool:
    definition = broker_definition(name)
    if definition is not None:
        return definition.update_mode == PER_BROKER
    base = without_listener(name)
    return base is not None and base not in CLUSTER_LEVEL_OF_LISTENERS


def _check_dynamic_value(name: str, text: str) -> None:
    definition = broker_definition(without_listener(name) or name)
    if definition is not None and definition.dynamic:
        check_value(definition, text)


def check_only_at_start(wanted: Mapping[str, str], in_force: Mapping[str, str]) -> None:
    """Raises ConfigError where this broker's `wanted` differ from its dynamic settings `in_force` in what it takes
    over at its start alone."""
    for name in _ONLY_AT_START:
        if wanted.get(name) != in_force.get(name):
            raise ConfigError(f"Cannot update these configs dynamically: [{name}] (this broker can't yet)")


def check_value(definition: ConfigDef, text: str) -> None:
    """Raises ConfigError where Kafka couldn't read this value while it runs: of a class, that there is one."""
    value = parse_value(definition, text)
    if definition.type is ConfigType.CLASS and value not in CLASSES:
        raise invalid_value(definition.name, text, f"Class {text} could not be found.")


def check_stored(name: str, text: str) -> None:
    """Raises ConfigError for what could be stored once, before it was refused, and mustn't come into force."""
    definition = broker_definition(name) if name in (*CONNECTION_QUOTAS, CLEANER_THREADS) else None
    if definition is not None and parse_value(definition, text) == 0:
        raise ConfigError(f"Invalid {name} 0", name)
