"""The Spark jobs of a batch.

They raise what a task reported, and where Spark fails TryFailedError, WorkerError or DriverGoneError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.spark import failures, reports, stages, tasks
from barnabas.spark.errors import RowError, SinkError, TaskRepeatedError
from barnabas.spark.plan import Plan
from barnabas.spark.reports import PartitionReport
from barnabas.spark.shuffling import to_owners

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
            rows = to_owners(stages.only_first(rows), plan)
        else:
            rows = rows.coalesce(plan.owners)
        written = rows.mapInArrow(
            tasks.write_rows(plan, tasks.GATHERED_BYTES if is_placed else 1), reports.SCHEMA
        )
        told = written.select("*", stages.attempt(rows.sparkSession)).collect()
    try:
        return reports.check(told)
    except TaskRepeatedError as error:
        why = failures.first_failure(rows.sparkSession, error.stage)
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
        raise failures.as_sink_error(error, getattr(spark.sparkContext, "pythonExec", None)) from error
