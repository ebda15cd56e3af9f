"""Numbers that Spark's hash partitioning sends to a wanted task.

`repartition(n, column)` puts a row where `pmod(hash(column), n)` says, Spark's own hash and not Kafka's: with the
partition's number as the column, six partitions fell into three tasks of six. Any column would keep a partition's
blobs together; these numbers spread them evenly too.
"""

from __future__ import annotations

from itertools import count

MASK = 0xFFFFFFFF
SEED = 42


def salts(tasks: int) -> tuple[int, ...]:
    """For each of so many tasks, an int that goes to it."""
    found: dict[int, int] = {}
    for number in count():
        found.setdefault(spark_hash(number) % tasks, number)
        if len(found) == tasks:
            return tuple(found[task] for task in range(tasks))
    raise AssertionError("count() does not end")


def spark_hash(number: int) -> int:
    """Spark SQL's `hash` of an int: Murmur3_x86_32 with the seed 42, signed."""
    word = _rotated(number * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    value = (_rotated(SEED ^ word, 13) * 5 + 0xE6546B64) & MASK
    value ^= 4
    value = (value ^ value >> 16) * 0x85EBCA6B & MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & MASK
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & MASK
