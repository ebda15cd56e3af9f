"""DescribeConfigs: a setting's value, source and synonyms (Kafka's ConfigHelper)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from broker.config.broker_config import SHOWN_AS_GIVEN
from broker.config.broker_definitions import BROKER_ROWS, broker_definition, synonyms_of
from broker.config.definitions import ConfigEntry, ConfigSource, ConfigSynonym, ConfigType, value_text
from broker.config.topic_config import TOPIC_SYNONYMS, topic_definition, topic_values

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Return a topic's settings for DescribeConfigs, limited to `names` if there are any."""
    entries = []
    for name, value in topic_values(config, overrides).items():
        if names and name not in names:
            continue
        definition = topic_definition(name)
        assert definition is not None
        synonyms: list[ConfigSynonym] = []
        if name in TOPIC_SYNONYMS:
            broker_name = TOPIC_SYNONYMS[name][0][0]
            synonyms = _synonyms(config, broker_name, synonyms_of(broker_name), sensitive=False)
        text = overrides[name] if definition.internal else value_text(value)
        if name in overrides:
            synonyms.insert(0, ConfigSynonym(name, text, ConfigSource.TOPIC_CONFIG))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        entries.append(ConfigEntry(name, text, source, False, False, definition.type, tuple(synonyms)))
    return entries + unknown_entries(overrides, names, topic_definition, ConfigSource.TOPIC_CONFIG)


def unknown_entries(
    overrides: Mapping[str, str],
    names: Collection[str] | None,
    known: Callable[[str], object],
    source: ConfigSource,
) -> list[ConfigEntry]:
    """Return a resource's settings in the log that this broker doesn't know. They may be passwords."""
    return [
        ConfigEntry(name, None, source, True, False, ConfigType.UNKNOWN, (ConfigSynonym(name, None, source),))
        for name in overrides
        if known(name) is None and (not names or name in names)
    ]


def describe_broker(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """Return this broker's settings for DescribeConfigs: all of Kafka's, and any others that are set."""
    every = {*BROKER_ROWS, *config.effective_names()}
    return [
        _broker_entry(config, name, every_source=True) for name in sorted(every) if not names or name in names
    ]


def describe_cluster_defaults(
    config: BrokerConfig, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Return the settings for all brokers, for DescribeConfigs of the broker named ""."""
    return [
        _broker_entry(config, name, every_source=False)
        for name in sorted(config.dynamic_cluster)
        if not names or name in names
    ]


def _broker_entry(config: BrokerConfig, name: str, *, every_source: bool) -> ConfigEntry:
    synonym_names = synonyms_of(name)
    definition = broker_definition(name)
    known = definition
    for other in synonym_names:
        known = known or broker_definition(other)
    sensitive = known is None or known.sensitive  # an unknown setting may be anything
    synonyms = _synonyms(config, name, synonym_names, sensitive=sensitive)
    if not every_source:
        synonyms = [s for s in synonyms if s.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG]
    if sensitive:
        value = None
    elif not every_source:
        value = config.dynamic_cluster[name]
    elif definition is None or definition.internal:
        value = config.text_given(name)
    else:
        value = value_text(config.get(name))
    return ConfigEntry(
        name,
        value,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        sensitive,
        definition is None or not definition.dynamic,
        ConfigType.UNKNOWN if known is None else known.type,
        tuple(synonyms),
    )


def broker_synonyms(config: BrokerConfig, name: str) -> list[ConfigSynonym]:
    """Return a broker setting's synonyms, for the topic or group setting that it backs."""
    return _synonyms(config, name, synonyms_of(name), sensitive=False)


def _synonyms(
    config: BrokerConfig, name: str, synonym_names: tuple[str, ...], *, sensitive: bool
) -> list[ConfigSynonym]:
    """Return every place that sets a value, in order of precedence.

    Kafka drops those before the first one with the setting's own name: `log.retention.ms` has no synonyms if
    only `log.retention.hours` is set.
    """
    static = {other: config.static[other].value for other in synonym_names if other in config.static}
    defaults: dict[str, str] = {}
    for other in synonym_names:
        definition = broker_definition(other)
        text = None if definition is None else config.default_text(definition)
        if text is not None and other not in SHOWN_AS_GIVEN:
            defaults[other] = text
    found = [
        ConfigSynonym(other, None if sensitive else texts[other], source)
        for texts, source in (
            (config.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (config.dynamic_cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (static, ConfigSource.STATIC_BROKER_CONFIG),
            (defaults, ConfigSource.DEFAULT_CONFIG),
        )
        for other in synonym_names
        if other in texts
    ]
    own = next((position for position, synonym in enumerate(found) if synonym.name == name), len(found))
    return found[own:]
