"""What speaks against putting an altered configuration into force: Kafka's `validateReconfiguration`s.

Kafka asks each part of the broker that follows settings while it runs (`DynamicBrokerConfig.processReconfiguration`):
listeners with their quotas and threads (`ConnectionQuotas`, `DataPlaneAcceptor`), reporters of metrics, the log
cleaner, `DynamicThreadPool`, `DynamicLogConfig`, `DynamicListenerConfig`, `DynamicRemoteLogConfig`. A part is asked
where any setting that it follows has another text than before, and then looks at all of its own: so one alteration may
be refused for what another setting says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from broker.config.broker_definitions import broker_definition, listener_prefix
from broker.config.checks.dynamic import (
    CLEANER_THREADS,
    CLUSTER_LEVEL_OF_LISTENERS,
    CONNECTION_QUOTAS,
    NETWORK_THREADS,
    ONLY_PER_LISTENER,
    check_value,
)
from broker.config.definitions import PER_BROKER, ConfigType
from broker.config.errors import ConfigError, invalid_value
from broker.config.java_classes import METRIC_REPORTERS
from broker.config.parsing import parse_type, parse_value
from broker.config.topic_definitions import TOPIC_SYNONYMS

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig

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
    """Raises ConfigError where Kafka wouldn't go over from `now`, which is in force, to `after`."""
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
    if any(_concerns_listeners(name) for name in changed):
        for listener in now.listeners:
            _check_fixed_settings(listener.name, now, after)
    if any(_is_remote(name) for name in changed):
        for name in _REMOTE_THREADS:
            _check_threads(name, _remote_threads_now(name, now), after.get_int(name))
    if now.get_boolean("log.cleaner.enable"):
        _check_cleaner_threads(now.get_int(CLEANER_THREADS), after.get_int(CLEANER_THREADS))


def _for_listener(config: BrokerConfig, listener: str, name: str) -> int:
    """What a setting is for one listener (AbstractConfig.valuesWithPrefixOverride)."""
    text = config.text_given(f"{listener_prefix(listener)}{name}")
    definition = broker_definition(name)
    assert definition is not None
    value = config.get(name) if text is None else parse_value(definition, text)
    assert isinstance(value, int)
    return value


def _check_values(listener: str, changed: Collection[str], after: BrokerConfig) -> None:
    """Of a listener that is there even those that can't be altered: for it, or for one of its mechanisms."""
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
    """What the broker was started with may be anything, and one can always go back to it."""
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
    """Of a topic in tiered storage no more is kept here than in all; -2 is as much as in all."""
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
