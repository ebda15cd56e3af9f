"""Which settings of a broker may be altered at run time, and what keeps an alteration from being put into
force.

First, each setting is checked by itself: whether it may be altered, at which level, and to which value
(DynamicBrokerConfig.validateConfigs). Then each part of the broker that follows settings checks them
(`DynamicBrokerConfig.processReconfiguration`, `validateReconfiguration`): listeners with their quotas and
threads (`ConnectionQuotas`, `DataPlaneAcceptor`), metrics reporters, the log cleaner, `DynamicThreadPool`,
`DynamicLogConfig`, `DynamicListenerConfig`, `DynamicRemoteLogConfig`. A part does so if the text of any of
its settings changes, and then checks all of them. So one alteration may be refused because of another
setting.

Kafka looks up a class name on its class path; whether the class fits shows later. This file lists Kafka's own
classes that fit some setting. Others, of users or of Java itself, don't exist here. At the start any name is
accepted, with a warning (`assembly`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from broker.config.broker_definitions import OWN_ROWS, broker_definition, listener_prefix, without_listener
from broker.config.definitions import (
    PER_BROKER,
    ConfigDef,
    ConfigError,
    ConfigType,
    invalid_value,
    parse_type,
    parse_value,
    validate,
)
from broker.config.topic_config import TOPIC_SYNONYMS

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


METRIC_REPORTERS = frozenset(
    ("org.apache.kafka.common.metrics.JmxReporter", "org.apache.kafka.tools.PushHttpMetricsReporter")
)
"""MetricsReporters that can be created without arguments."""

_SECURITY = (
    "authenticator.DefaultKafkaPrincipalBuilder",
    "authenticator.DefaultLogin",
    "authenticator.SaslClientCallbackHandler",
    "authenticator.SaslServerCallbackHandler",
    "kerberos.KerberosClientCallbackHandler",
    "kerberos.KerberosLogin",
    "oauthbearer.BrokerJwtValidator",
    "oauthbearer.ClientCredentialsJwtRetriever",
    "oauthbearer.ClientJwtValidator",
    "oauthbearer.DefaultJwtRetriever",
    "oauthbearer.DefaultJwtValidator",
    "oauthbearer.FileJwtRetriever",
    "oauthbearer.JwtBearerJwtRetriever",
    "oauthbearer.OAuthBearerLoginCallbackHandler",
    "oauthbearer.OAuthBearerValidatorCallbackHandler",
    "oauthbearer.internals.OAuthBearerRefreshingLogin",
    "oauthbearer.internals.OAuthBearerSaslClientCallbackHandler",
    "oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
    "oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    "plain.internals.PlainServerCallbackHandler",
    "scram.internals.ScramServerCallbackHandler",
    "ssl.DefaultSslEngineFactory",
)

CLASSES = METRIC_REPORTERS | {f"org.apache.kafka.common.security.{name}" for name in _SECURITY}
"""Valid values of settings of type CLASS."""


# --- What may be altered, at which level, and to which values -----------------------------------------------

CLEANER_THREADS = "log.cleaner.threads"

# Kafka binds and unbinds at run time. Here that is refused, instead of being accepted without effect.
ONLY_AT_START = ("listeners", "listener.security.protocol.map")

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

# SocketServer.LISTENER_RECONFIGURABLE_CONFIGS. Their definitions allow 0, with which nobody could connect.
CONNECTION_QUOTAS = ("max.connections", "max.connection.creation.rate")
NETWORK_THREADS = "num.network.threads"

CLUSTER_LEVEL_OF_LISTENERS = (*CONNECTION_QUOTAS, NETWORK_THREADS)
"""Settings of a listener that may be set for all brokers. Others may only be set for one broker."""


def check_dynamic(wanted: Mapping[str, str], *, per_broker: bool) -> None:
    """Check like DynamicBrokerConfig.validateConfigs: all names first, then the values, then the level."""
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
        # As given: in a file, repeated elements count once (Kafka 4.4: `DynamicConfig.Broker.validate`).
        validate(definition.name, parse_type(definition.name, text, definition.type), definition.validator)
        check_value(definition, text)


def check_only_at_start(wanted: Mapping[str, str], in_force: Mapping[str, str]) -> None:
    """Raises ConfigError if this broker's `wanted` settings differ from its dynamic ones `in_force` in a
    setting that only takes effect at the start."""
    for name in ONLY_AT_START:
        if wanted.get(name) != in_force.get(name):
            raise ConfigError(f"Cannot update these configs dynamically: [{name}] (this broker can't yet)")


def check_value(definition: ConfigDef, text: str) -> None:
    """Raises ConfigError if Kafka couldn't read this value at run time. A class has to exist."""
    value = parse_value(definition, text)
    if definition.type is ConfigType.CLASS and value not in CLASSES:
        raise invalid_value(definition.name, text, f"Class {text} could not be found.")


def check_stored(name: str, text: str) -> None:
    """Raises ConfigError for a value that could be stored before it was refused, and must not be put into
    force."""
    definition = broker_definition(name) if name in (*CONNECTION_QUOTAS, CLEANER_THREADS) else None
    if definition is not None and parse_value(definition, text) == 0:
        raise ConfigError(f"Invalid {name} 0", name)


# --- The checks of each part of the broker ------------------------------------------------------------------

_REPORTERS = "metric.reporters"

_THREADS = (
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
)

_FOLLOWER_THREADS = "remote.log.manager.follower.thread.pool.size"
_REMOTE_THREADS = (
    "remote.log.reader.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    _FOLLOWER_THREADS,
)

_LOG_SETTINGS = frozenset(names[0][0] for names in TOPIC_SYNONYMS.values()) | {"cordoned.log.dirs"}

_RETENTION_MS = (
    ("log.retention.ms", 1),
    ("log.retention.minutes", 60_000),
    ("log.retention.hours", 3_600_000),
)


def check_reconfiguration(now: BrokerConfig, after: BrokerConfig) -> None:
    """Raises ConfigError if Kafka wouldn't switch from `now`, which is in force, to `after`."""
    changed = {
        name
        for name in {*now.effective_names(), *after.effective_names()}
        if now.text_given(name) != after.text_given(name)
    }
    for listener in now.listeners:
        _check_values(listener.name, changed, after)
        _check_listener(listener.name, now, after)
    if _REPORTERS in changed:
        _check_reporters(after)
    for name in _THREADS:
        _check_threads(name, now.get_int(name), after.get_int(name))
    if changed & _LOG_SETTINGS:
        _check_local_retention(after)
        _check_remote_copy_lag(after)
    if any(_concerns_listeners(name) for name in changed):
        for listener in now.listeners:
            _check_fixed_settings(listener.name, now, after)
    if any(_is_remote(name) for name in changed):
        for name in _REMOTE_THREADS:
            _check_threads(name, _remote_threads_now(name, now), after.get_int(name))
    if now.get_boolean("log.cleaner.enable"):
        _check_cleaner_threads(now.get_int(CLEANER_THREADS), after.get_int(CLEANER_THREADS))


def _for_listener(config: BrokerConfig, listener: str, name: str) -> int:
    """Return a setting's value for one listener (AbstractConfig.valuesWithPrefixOverride)."""
    text = config.text_given(f"{listener_prefix(listener)}{name}")
    definition = broker_definition(name)
    assert definition is not None
    value = config.get(name) if text is None else parse_value(definition, text)
    assert isinstance(value, int)
    return value


def _check_values(listener: str, changed: Collection[str], after: BrokerConfig) -> None:
    """Check an existing listener's values, even those that can't be altered, for it or for one of its
    mechanisms."""
    prefix = listener_prefix(listener)
    for name in changed:
        text = after.text_given(name)
        if text is None or not name.startswith(prefix):
            continue
        setting = name.removeprefix(prefix)
        definition = broker_definition(setting) or broker_definition(setting.partition(".")[2])
        if definition is not None:
            check_value(definition, text)


def _check_listener(listener: str, now: BrokerConfig, after: BrokerConfig) -> None:
    quotas = {name: _for_listener(after, listener, name) for name in CONNECTION_QUOTAS}
    if any(_for_listener(now, listener, name) != value for name, value in quotas.items()):
        for name, value in quotas.items():
            if value <= 0:
                raise ConfigError(f"Invalid {name} {value}", name)
    _check_threads(
        NETWORK_THREADS,
        _for_listener(now, listener, NETWORK_THREADS),
        _for_listener(after, listener, NETWORK_THREADS),
    )


def _check_reporters(after: BrokerConfig) -> None:
    """Check the reporters. Those from the start may be anything, and are always valid."""
    static = after.static.get(_REPORTERS)
    given = parse_type(_REPORTERS, None if static is None else static.value, ConfigType.LIST)
    known = METRIC_REPORTERS.union(given if isinstance(given, tuple) else ())
    missing = [name for name in after.get_list(_REPORTERS) if name not in known]
    if missing:
        raise ConfigError(
            f"No reporter of metrics: {', '.join(missing)}. There are {', '.join(sorted(known))}", _REPORTERS
        )


def _check_threads(name: str, now: int, wanted: int) -> None:
    failed = f"Dynamic thread count update validation failed for {name}={wanted}"
    if wanted < now // 2:
        raise ConfigError(f"{failed}, value should be at least half the current value {now}", name)
    if wanted > now * 2:
        raise ConfigError(f"{failed}, value should not be greater than double the current value {now}", name)


def _check_cleaner_threads(now: int, wanted: int) -> None:
    if wanted < now // 2:
        raise ConfigError(
            f"Log cleaner threads cannot be reduced to less than half the current value {now}",
            CLEANER_THREADS,
        )
    if wanted > now * 2:
        raise ConfigError(
            f"Log cleaner threads cannot be increased to more than double the current value {now}",
            CLEANER_THREADS,
        )


def _check_local_retention(after: BrokerConfig) -> None:
    """Check that a topic in tiered storage keeps no more here than in total. -2 means as much as in total."""
    for name, whole_name, whole in (
        ("log.local.retention.ms", "log.retention.ms", _retention_ms(after)),
        ("log.local.retention.bytes", "log.retention.bytes", max(after.get_int("log.retention.bytes"), -1)),
    ):
        local = after.get_int(name)
        if whole == -1 or local == -2:
            continue
        if local == -1:
            raise invalid_value(name, "-1", f"Value must not be -1 as {whole_name} value is set as {whole}.")
        if local > whole:
            raise invalid_value(
                name, str(local), f"Value must not be more than {whole_name} property value: {whole}"
            )


def _check_remote_copy_lag(after: BrokerConfig) -> None:
    """Check that a segment is copied to tiered storage before it is deleted here (KIP-1241)."""
    for name, local_name, whole in (
        ("log.remote.copy.lag.ms", "log.local.retention.ms", _retention_ms(after)),
        ("log.remote.copy.lag.bytes", "log.local.retention.bytes", after.get_int("log.retention.bytes")),
    ):
        lag, local = after.get_int(name), after.get_int(local_name)
        kept = whole if local == -2 else local
        if lag > 0 and 0 <= kept < lag:
            raise invalid_value(
                name, str(lag), f"Value must not exceed {local_name} (effective value: {kept})"
            )


def _retention_ms(config: BrokerConfig) -> int:
    for name, unit_ms in _RETENTION_MS:
        value = config.get_optional_int(name)
        if value is not None:
            return value * unit_ms if value >= 0 else -1
    raise AssertionError("log.retention.hours has a default")


def _concerns_listeners(name: str) -> bool:
    """DynamicListenerConfig.RECONFIGURABLE_CONFIGS."""
    if name in CLUSTER_LEVEL_OF_LISTENERS:
        return True
    definition = broker_definition(name)
    return definition is not None and definition.update_mode == PER_BROKER and name != "cordoned.log.dirs"


def _check_fixed_settings(listener: str, now: BrokerConfig, after: BrokerConfig) -> None:
    if dict(_fixed_settings(listener, now)) != dict(_fixed_settings(listener, after)):
        raise ConfigError(
            f"Configs cannot be updated dynamically for existing listener {listener}, restart the broker for that"
        )


def _fixed_settings(listener: str, config: BrokerConfig) -> Iterator[tuple[str, str | None]]:
    prefix = listener_prefix(listener)
    for name in config.effective_names():
        setting = name.removeprefix(prefix)
        if setting != name and setting not in ONLY_PER_LISTENER and setting not in CLUSTER_LEVEL_OF_LISTENERS:
            yield setting, config.text_given(name)


def _is_remote(name: str) -> bool:
    """DynamicRemoteLogConfig.RECONFIGURABLE_CONFIGS."""
    definition = broker_definition(name) if name.startswith("remote.") else None
    return definition is not None and definition.dynamic


def _remote_threads_now(name: str, now: BrokerConfig) -> int:
    if name == _FOLLOWER_THREADS and now.text_given(name) is None:
        return now.get_int("remote.log.manager.thread.pool.size")
    return now.get_int(name)
