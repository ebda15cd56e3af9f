"""Subscriptions to client metrics (KIP-714): valid settings, and their description in DescribeConfigs.

Source: Kafka's ClientMetricsConfigs. `broker.metrics.client_telemetry` decides which clients to ask for what.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from broker.config.definitions import (
    ConfigEntry,
    ConfigError,
    ConfigSource,
    ConfigSynonym,
    definition_of,
    parse_value,
    value_text,
)
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.config.definitions import Row


CLIENT_METRICS_ROWS: dict[str, Row] = {
    "metrics": ("LIST", "", "distinct", "MEDIUM", "cluster-wide"),
    "interval.ms": ("INT", "300000", "", "MEDIUM", "cluster-wide"),
    "match": ("LIST", "", "distinct", "MEDIUM", "cluster-wide"),
}


def describe_client_metrics(
    overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Return a subscription's settings for DescribeConfigs, limited to `names` if there are any."""
    entries = []
    for name, row in CLIENT_METRICS_ROWS.items():
        if names and name not in names:
            continue
        definition = definition_of(name, row)
        text = value_text(parse_value(definition, overrides.get(name, definition.default)))
        synonyms: tuple[ConfigSynonym, ...] = ()
        if name in overrides:
            synonyms = (ConfigSynonym(name, text, ConfigSource.CLIENT_METRICS_CONFIG),)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        entries.append(ConfigEntry(name, text, source, False, False, definition.type, synonyms))
    return entries


# --- Checking names, values and patterns (ClientMetricsConfigs.validate) ------------------------------------

MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 3_600_000

MOST_MATCH_CHARACTERS = 2_000
"""For all patterns of a subscription. Parsing them takes some 15 ms, in which nobody else is served."""

MATCHED = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def check_client_metrics_configs(overrides: Mapping[str, str]) -> None:
    """Raises KafkaError: INVALID_REQUEST for a name or an interval, INVALID_CONFIG for a value or a
    pattern."""
    for name in overrides:
        if name not in CLIENT_METRICS_ROWS:
            raise KafkaError(Error.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
    values = {}
    try:
        for name, row in CLIENT_METRICS_ROWS.items():
            if name in overrides:
                values[name] = parse_value(definition_of(name, row), overrides[name])
    except ConfigError as error:
        raise KafkaError(Error.INVALID_CONFIG, str(error)) from None
    interval_ms = values.get("interval.ms", MIN_INTERVAL_MS)
    assert isinstance(interval_ms, int)
    if not MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS:
        raise KafkaError(
            Error.INVALID_REQUEST,
            f"Invalid value {interval_ms} for interval.ms: it must be from {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}",
        )
    patterns = values.get("match", ())
    assert isinstance(patterns, tuple)
    if len(overrides.get("match", "")) > MOST_MATCH_CHARACTERS:
        raise KafkaError(
            Error.INVALID_CONFIG,
            f"The client matching patterns are longer than {MOST_MATCH_CHARACTERS} characters",
        )
    for pattern in patterns:
        _check_pattern(pattern)


def _check_pattern(text: str) -> None:
    """Check `name=regular expression`. Kafka takes Java's syntax. RE2's, which is used here, lacks what needs
    backtracking. Python would take minutes to parse some patterns, because it goes over each character of a
    case-insensitive class."""
    # Imported here, since few clusters have patterns: the start doesn't load it.
    from coordinator.java.re2 import PatternSyntaxError, compile_pattern

    parts = text.rstrip("=").split("=")
    legal = len(parts) == 2 and parts[0].strip() in MATCHED
    if legal:
        try:
            compile_pattern(parts[1].strip())
        except PatternSyntaxError:
            legal = False
    if not legal:
        raise KafkaError(Error.INVALID_CONFIG, f"Illegal client matching pattern: {text}")
