"""What a sink was told, and what is made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Compression by name, with its number in a batch's attributes."""

PREFIX = "__barnabas-spark-"


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
