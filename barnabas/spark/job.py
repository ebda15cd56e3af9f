"""The Spark jobs of a batch: rows go to the tasks that own their partitions, and these tasks write them.

They raise what a task reported, or TryFailedError, WorkerError or DriverGoneError if Spark fails.

If Apache Kafka's client is on Spark's class path, as with Spark's own connector, Spark's generated code calls the
client's own murmur2, and no row leaves the JVM for a key's hash. Otherwise a Python UDF hashes the keys; that alone
makes keyed batches half as expensive again. Spark has no public way to call a static method on bytes, so this reaches
into Catalyst. If another release has moved anything there, the UDF takes over.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from barnabas.spark import errors, tasks
from barnabas.spark import plan as reports
from barnabas.spark.catalyst import attempt, catalyst, only_first
from barnabas.spark.errors import RowError, SinkError, TaskRepeatedError
from barnabas.spark.plan import PartitionReport, Plan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


CLASS = "org.apache.kafka.common.utils.Utils"

log = logging.getLogger(__name__)


def hashes(spark: SparkSession, key: Column) -> Column:
    """Return an int column: the murmur2 of a string or binary column, signed as in Java. Null gives null."""
    binary = key.cast("binary")
    try:
        return in_java(spark, binary)
    except Exception as error:  # from py4j: the class isn't there, or this is another Catalyst
        log.debug("hashing keys in Python, because Spark can't call %s: %s", CLASS, error)
        return in_python(binary)


def in_java(spark: SparkSession, key: Column) -> Column:
    """Like `hashes`, for a binary column, by Kafka's client."""
    return catalyst(spark).static_int(CLASS, "murmur2", key)


def in_python(key: Column) -> Column:
    """Like `hashes`, for a binary column, by `arrow_batches.murmur2`."""
    from pyspark.sql.pandas import functions

    from barnabas.spark.key_hashes_udf import murmur2

    make: Any = functions.pandas_udf  # the type aliases of its overloads don't cover such a function
    hashed: Column = make(murmur2, "int")(key)
    return hashed


# --- Send each row to the task that writes its partition, by Spark's own shuffle -----------------------------
#
# This decides which task writes a row, not where to. The writing task computes each row's partition again, and the
# driver refuses a try in which two tasks wrote to one partition.
#
# `repartition(n, column)` puts a row into task `pmod(hash(column), n)`, by Spark's own hash and not Kafka's. With the
# partition's number as the column, six partitions fell into three of six tasks. So the column holds numbers that this
# hash sends to the wanted task.

MASK = 0xFFFFFFFF
SEED = 42
POSITIVE = 0x7FFFFFFF


def to_owners(rows: DataFrame, plan: Plan) -> DataFrame:
    """Return the same rows in as many tasks as the plan has owners, each row in its partition's owner.

    Rows without a partition of their own are spread over their topic's partitions by a hash of all columns. So a row
    reaches the same task if Spark computes it again, in whichever order (SPARK-23207). Equal rows thus all reach one
    task; to number them instead, each task would have to sort its rows first, as Spark does for its own round robin.
    Rows of a topic that doesn't exist are spread over all tasks, and one of these names the topic.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    count = _partition_count(plan)
    # The modulo of a hash of everything must not overflow, so this is a long. As SQL text it is one question to the
    # JVM; a Python function is about six.
    content = F.expr(f"xxhash64({', '.join(map(_quoted, rows.columns))}) & {POSITIVE}")
    number = F.coalesce(*_partitions(rows, count), content % count, content)
    # The batch's shift rotates the salts. As a column it would make Spark compile the query again for each batch.
    found = salts(plan.owners)
    shift = plan.batch_id % plan.owners
    shifted = F.expr(f"array({', '.join(map(str, found[shift:] + found[:shift]))})")
    return rows.repartition(plan.owners, F.get(shifted, F.pmod(number, F.lit(plan.owners)).cast("int")))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _partitions(rows: DataFrame, count: Column | int) -> list[Column]:
    """Return columns, of which the first that isn't null is a row's partition."""
    from pyspark.sql import functions as F  # noqa: N812

    found = []
    if "partition" in rows.columns:
        found.append(F.col("partition"))
    if "key" in rows.columns:
        found.append(hashes(rows.sparkSession, F.col("key")).bitwiseAND(POSITIVE) % count)
    return found


def _partition_count(plan: Plan) -> Column | int:
    """Return the number of partitions of the row's topic; null if there is no such topic."""
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
    """Return for each task an int that Spark's hash sends to it."""
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


# --- The jobs -----------------------------------------------------------------------------------------------

# The most that goes from Spark's JVM to a Python worker at a time. Spark's own limits are 10,000 rows and 256 MB. Each
# task takes up to twice as much outside of the heap.
ARROW_BYTES = 8 << 20
ARROW_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
# The most topics that a batch may name by itself. Each is looked up, and all its partitions join the transaction.
MOST_TOPICS = 10_000


def write(rows: DataFrame, plan: Plan, *, is_placed: bool) -> tuple[PartitionReport, ...]:
    """Write the rows according to the plan. `is_placed`: see `RecordForm.is_placed`."""
    if not plan.targets:
        return ()
    with _told(rows.sparkSession), _small_arrow_batches(rows.sparkSession):
        if is_placed and plan.owners > 1:
            rows = to_owners(only_first(rows), plan)
        else:
            rows = rows.coalesce(plan.owners)
        written = rows.mapInArrow(
            tasks.write_rows(plan, tasks.GATHERED_BYTES if is_placed else 1), reports.SCHEMA
        )
        told = written.select("*", attempt(rows.sparkSession)).collect()
    try:
        return reports.check(told)
    except TaskRepeatedError as error:
        why = errors.first_failure(rows.sparkSession, error.stage)
        raise TaskRepeatedError(f"{error}, and failed: {why or 'Spark does not say why'}") from error


def compute(rows: DataFrame) -> None:
    """Compute the rows without writing them."""
    with _told(rows.sparkSession):
        rows.write.format("noop").mode("overwrite").save()


def topics_of(rows: DataFrame) -> list[str]:
    """Return all topics in the column `topic`. Raises RowError for a null, and for more than `MOST_TOPICS`."""
    with _told(rows.sparkSession):
        found = [row[0] for row in rows.select("topic").distinct().limit(MOST_TOPICS + 1).collect()]
    if None in found:
        raise RowError("a row's topic is null; give the sink a topic=... for all rows, or fill the column")
    if len(found) > MOST_TOPICS:
        raise RowError(
            f"the column 'topic' holds over {MOST_TOPICS:,} names, such as {', '.join(map(repr, sorted(found)[:3]))}: "
            "a batch is one transaction over all partitions of its topics"
        )
    return sorted(found)


@contextmanager
def _small_arrow_batches(spark: SparkSession) -> Iterator[None]:
    """Limit by bytes what this thread's jobs hand to Python at a time, unless the session has a limit of its own.

    A task takes the session's setting if there is one, or else the property of the thread that began the job.
    """
    context = spark.sparkContext
    before = context.getLocalProperty(ARROW_SETTING)
    context.setLocalProperty(ARROW_SETTING, str(ARROW_BYTES))
    try:
        yield
    finally:
        context.setLocalProperty(ARROW_SETTING, before)  # type: ignore[arg-type]  # None takes it away


@contextmanager
def _told(spark: SparkSession) -> Iterator[None]:
    try:
        yield
    except SinkError:
        raise
    except Exception as error:
        raise errors.job_failure(error, getattr(spark.sparkContext, "pythonExec", None)) from error
