"""Settings as the admin APIs show them."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from broker.config.definitions import ConfigType


class ConfigSource(IntEnum):
    """Where a value comes from, with the numbers of DescribeConfigs (v1 and later)."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """A place that has something to say about a setting's value."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting as the admin APIs show it. A sensitive one has no value."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    read_only: bool
    config_type: ConfigType
    synonyms: tuple[ConfigSynonym, ...] = ()
