"""A subscription to clients' metrics (KIP-714): what it may say, and what DescribeConfigs says of it.

Kafka's ClientMetricsConfigs. There is no receiver of metrics here, as in a plain Kafka: subscriptions are kept and
shown, and no client is asked to push anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from broker.config.definitions import definition_of
from broker.config.entries import ConfigEntry, ConfigSource, ConfigSynonym
from broker.config.parsing import parse_value
from broker.config.value_text import value_text

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
