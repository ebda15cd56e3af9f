"""What a sink was told, and what is made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Compression by name, with its number in a batch's attributes."""

PREFIX = "__barnabas-spark-"


def is_of_marker(topic: str) -> bool:
    """Whether a query keeps its marker there."""
    return topic.startswith(PREFIX)


def of_marker(topic: str) -> str:
    """Why nothing else is written to it."""
    return (
        f"the topic {topic} holds the marker of the query {topic.removeprefix(PREFIX)!r}, by which the sink knows what "
        "is committed, and takes no rows: write them to another topic"
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of `ExactlyOnceKafkaSink`, checked."""

    bootstrap: str
    query: str
    topic: str | None
    topics: tuple[str, ...] | None
    compression: str
    group: str | None
    transaction_timeout_ms: int
    max_tries: int
    max_batch_bytes: int
    request_timeout_ms: int
    client: dict[str, Any]

    @property
    def transactional_id(self) -> str:
        return f"barnabas-spark-{self.query}"

    @property
    def marker_topic(self) -> str:
        return PREFIX + self.query
