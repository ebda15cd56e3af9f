"""The Spark jobs of a batch. Raise TryFailedError where Spark fails, and what a task reported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.spark import reports, stages, tasks
from barnabas.spark.errors import RowError, SinkError, TryFailedError
from barnabas.spark.plan import Plan
from barnabas.spark.reports import PartitionReport
from barnabas.spark.shuffling import to_owners

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRACEBACK = "Traceback (most recent call last):"


def write(rows: DataFrame, plan: Plan, *, is_placed: bool) -> tuple[PartitionReport, ...]:
    """Write the rows as the plan says. is_placed: as `RecordForm.is_placed`."""
    if not plan.targets:
        return ()
    with _told():
        if is_placed and plan.owners > 1:
            rows = to_owners(stages.only_first(rows), plan)
        else:
            rows = rows.coalesce(plan.owners)
        written = rows.mapInArrow(
            tasks.write_rows(plan, tasks.GATHERED_BYTES if is_placed else 1), reports.SCHEMA
        )
        return reports.check(written.select("*", stages.attempt(rows.sparkSession)).collect())


def compute(rows: DataFrame) -> None:
    """Compute the rows, and do nothing with them."""
    with _told():
        rows.write.format("noop").mode("overwrite").save()


def topics_of(rows: DataFrame) -> list[str]:
    """All that their column `topic` holds. Raises RowError for a null."""
    with _told():
        found = [row[0] for row in rows.select("topic").distinct().collect()]
    if None in found:
        raise RowError("a row's topic is null; give the sink a topic=... for all rows, or fill the column")
    return sorted(found)


def reason(error: Exception) -> str:
    """What Spark's error says in one line: where it tells of Python's, that one with its own message."""
    text = str(error)
    _, is_python, trace = text.rpartition(TRACEBACK)
    # Of a trace, the frames are indented.
    lines = trace.splitlines() if is_python else text.splitlines()
    begins = re.compile(r"\S" if is_python else r".*\S")
    return next((line.strip() for line in lines if begins.match(line)), type(error).__name__)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except SinkError:
        raise
    except Exception as error:
        raise TryFailedError(f"the Spark job failed: {reason(error)}") from error
