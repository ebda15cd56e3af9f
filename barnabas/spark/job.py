"""The Spark jobs of a batch: rows go to the tasks that write their partitions, which write them.

They raise what a task reported, and where Spark fails TryFailedError, WorkerError or DriverGoneError.

Where Apache Kafka's client is on Spark's class path, as Spark's own connector brings it along, Spark's generated code
calls the client's own murmur2, and no row leaves the JVM for a key's hash. Otherwise a Python UDF hashes the keys; that
alone makes keyed batches cost half as much again. Spark has no public way to call a static method on bytes, so this
reaches into Catalyst; whatever there has moved in another release is answered with the UDF.
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
    """An int column: murmur2, signed as Java has it, of a string or binary column; null of null."""
    binary = key.cast("binary")
    try:
        return in_java(spark, binary)
    except Exception as error:  # of py4j: the class isn't there, or Catalyst is another one
        log.debug("keys are hashed in Python, because Spark can't call %s: %s", CLASS, error)
        return in_python(binary)


def in_java(spark: SparkSession, key: Column) -> Column:
    """As `hashes`, of a binary column, by Kafka's client."""
    return catalyst(spark).static_int(CLASS, "murmur2", key)


def in_python(key: Column) -> Column:
    """As `hashes`, of a binary column, by `partitioner.murmur2`."""
    from pyspark.sql.pandas import functions

    from barnabas.spark.key_hashes_udf import murmur2

    make: Any = functions.pandas_udf  # its overloads are typed by aliases that know of no such function
    hashed: Column = make(murmur2, "int")(key)
    return hashed


# --- Sends each row to the task that writes its partition, by Spark's own shuffle -----------------------------
#
# This decides where a row is written from, not where to: the writing task finds each row's partition anew, and the
# driver refuses a try in which two tasks wrote to one.
#
# `repartition(n, column)` puts a row where `pmod(hash(column), n)` says, Spark's own hash and not Kafka's: with the
# partition's number as the column, six partitions fell into three tasks of six. So the column holds numbers that this
# hash sends to the wanted task.

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
        found.append(hashes(rows.sparkSession, F.col("key")).bitwiseAND(POSITIVE) % count)
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


# --- The jobs -----------------------------------------------------------------------------------------------

# What crosses from Spark's JVM to a Python worker at a time. Spark's own bounds are 10,000 rows and 256 MB, for which
# it takes up to twice as much outside of the heap, in each task.
ARROW_BYTES = 8 << 20
ARROW_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
# Of topics that a batch may name by itself; each one is looked up, and has its partitions in the transaction.
MOST_TOPICS = 10_000


def write(rows: DataFrame, plan: Plan, *, is_placed: bool) -> tuple[PartitionReport, ...]:
    """Write the rows as the plan says. is_placed: as `RecordForm.is_placed`."""
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
    """Compute the rows, and do nothing with them."""
    with _told(rows.sparkSession):
        rows.write.format("noop").mode("overwrite").save()


def topics_of(rows: DataFrame) -> list[str]:
    """All that their column `topic` holds. Raises RowError for a null, and for more than `MOST_TOPICS`."""
    with _told(rows.sparkSession):
        found = [row[0] for row in rows.select("topic").distinct().limit(MOST_TOPICS + 1).collect()]
    if None in found:
        raise RowError("a row's topic is null; give the sink a topic=... for all rows, or fill the column")
    if len(found) > MOST_TOPICS:
        raise RowError(
            f"the column 'topic' holds more than {MOST_TOPICS:,} names, as {', '.join(map(repr, sorted(found)[:3]))}: "
            "a batch is one transaction over all partitions of its topics"
        )
    return sorted(found)


@contextmanager
def _small_arrow_batches(spark: SparkSession) -> Iterator[None]:
    """Bounds what this thread's jobs give to Python at a time by bytes, unless the session has a bound of its own.

    A task takes the session's setting where there is one, and else the property of the thread that began the job.
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
