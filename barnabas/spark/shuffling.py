"""Sends each row to the task that writes its partition, by Spark's own shuffle.

This decides where a row is written from, not where to: the writing task finds each row's partition anew, and the driver
refuses a try in which two tasks wrote to one.

`repartition(n, column)` puts a row where `pmod(hash(column), n)` says, Spark's own hash and not Kafka's: with the
partition's number as the column, six partitions fell into three tasks of six. So the column holds numbers that this
hash sends to the wanted task.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING

from barnabas.spark import key_hashes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from barnabas.spark.plan import Plan

MASK = 0xFFFFFFFF
SEED = 42
POSITIVE = 0x7FFFFFFF


def to_owners(rows: DataFrame, plan: Plan) -> DataFrame:
    """The same rows in as many tasks as the plan has owners, each row with its partition's owner.

    Rows without a place of their own are dealt out by a hash of all that they hold, over the partitions of their
    topic: so that a row comes to the same task in whichever order its task computed it, should that be done again
    (SPARK-23207). Rows that are all the same thus come to one task; to number them instead, each task would have to
    sort its rows first, as Spark does for its own round robin. Rows of a topic that isn't there are dealt out over all
    tasks, for one to name.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    count = _partition_count(plan)
    # Long, since what a hash of all is taken modulo of must not overflow. In SQL, of which a text is one question to
    # the JVM, and each function of Python's some six.
    content = F.expr(f"xxhash64({', '.join(map(_quoted, rows.columns))}) & {POSITIVE}")
    number = F.coalesce(*_partitions(rows, count), content % count, content)
    # The shift of a batch is among the salts: in the columns it would have Spark compile them anew for each.
    found = salts(plan.owners)
    shift = plan.batch_id % plan.owners
    shifted = F.expr(f"array({', '.join(map(str, found[shift:] + found[:shift]))})")
    return rows.repartition(plan.owners, F.get(shifted, F.pmod(number, F.lit(plan.owners)).cast("int")))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _partitions(rows: DataFrame, count: Column | int) -> list[Column]:
    """A row's partition: the first of these columns that isn't null."""
    from pyspark.sql import functions as F  # noqa: N812

    found = []
    if "partition" in rows.columns:
        found.append(F.col("partition"))
    if "key" in rows.columns:
        found.append(key_hashes.hashes(rows.sparkSession, F.col("key")).bitwiseAND(POSITIVE) % count)
    return found


def _partition_count(plan: Plan) -> Column | int:
    """Of the row's topic; null for one that isn't there."""
    from pyspark.sql import functions as F  # noqa: N812

    if plan.topic is not None:
        return len(plan.targets)
    of_count: defaultdict[int, list[str]] = defaultdict(list)
    for topic, numbers in plan.ranges().items():
        of_count[len(numbers)].append(topic)
    return F.coalesce(
        *(F.when(F.col("topic").isin(topics), F.lit(partitions)) for partitions, topics in of_count.items())
    )


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
