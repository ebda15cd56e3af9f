"""What the pipeline wrote, under read_committed, and how it differs from what it should have written."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, TypeVar

from tests.spark.topics import read_committed

PARTITIONS = 4

Record = TypeVar("Record")

Records = Counter[tuple[int, bytes | None, bytes | None]]


class Outputs(NamedTuple):
    """Records as (partition, key, value), each with how often it is there."""

    enriched: Records
    delays: Records


class Difference(NamedTuple):
    """Records too many, and records that are missing. One that has changed counts as both."""

    doubled: int
    lost: int

    @property
    def is_none(self) -> bool:
        return self == (0, 0)


def read(bootstrap: str, prefix: str) -> Outputs:
    return Outputs(*(_read(bootstrap, f"{prefix}-{name}") for name in ("enriched", "delays")))


def difference(found: Counter[Record], expected: Counter[Record]) -> Difference:
    return Difference((found - expected).total(), (expected - found).total())


def _read(bootstrap: str, topic: str) -> Records:
    messages = read_committed(bootstrap, topic, PARTITIONS)
    return Counter((message.partition(), message.key(), message.value()) for message in messages)
