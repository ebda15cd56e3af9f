"""A subscription to clients' metrics (KIP-714): what it may say, and what DescribeConfigs says of it.

Kafka's ClientMetricsConfigs. Who is asked for what by them: `broker.metrics.client_telemetry`.
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
    """A subscription's settings for DescribeConfigs; only those in `names` where there are any."""
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


# --- Checked: names, values and patterns (ClientMetricsConfigs.validate) ------------------------------------

MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 3_600_000

MOST_MATCH_CHARACTERS = 2_000
"""Of all patterns of a subscription: reading them takes some 15 ms, in which nobody else is served."""

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
    """Raises KafkaError: INVALID_REQUEST for a name or interval, INVALID_CONFIG for a value or pattern."""
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
    """`name=regular expression`. Kafka takes Java's syntax. RE2's lacks what matches by backtracking, and Python would
    read some for minutes: it goes over each character of a class that ignores case."""
    # Few clusters have one: no start waits for it.
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
