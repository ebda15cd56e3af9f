"""A regular expression of subscriptions, resolved (Kafka: `ResolvedRegularExpression`)."""

from __future__ import annotations

from typing import NamedTuple

from coordinator.java.maps import JavaSet


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched. `version` is the metadata's at that time."""

    topics: JavaSet[str]
    version: int
    timestamp_ms: int
