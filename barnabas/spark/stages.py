"""Whether Spark repeated a stage of a try's job: then its rows are not one computation's any more.

Where a map output is lost after a stage has read it, Spark computes it anew and repeats the reading stage for the tasks
that have not ended; the others keep what they wrote. Rows that come out otherwise the second time, by a key that is
random or by an order that isn't the same (SPARK-23207), are written twice, or by nobody. No task's attempt number
tells, since it begins at 0 again.

The stage's does. Python's TaskContext lacks it, and the listeners of the driver hear of it late, or not at all where
their queue is full; so the JVM is asked in the task itself, by an expression of Catalyst's. Stages of the batch's own,
ahead of the sink's, are Spark's affair: what they come to, they came to before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark.catalyst import Catalyst, catalyst

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

REPEATED = "Spark repeated a stage, so that tasks may have seen other rows than those that wrote already"


def attempt(spark: SparkSession) -> Column:
    """An int column: how often the stage that computes it was tried before."""
    return catalyst(spark).once(_attempt)


def _attempt(made_of: Catalyst) -> Column:
    return made_of.int_of_static("org.apache.spark.TaskContext", "get", "stageAttemptNumber")


def only_first(rows: DataFrame) -> DataFrame:
    """The same rows; the stage that computes them fails where it is repeated."""
    return rows.where(catalyst(rows.sparkSession).once(_is_first))


def _is_first(made_of: Catalyst) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    again = F.raise_error(F.lit(REPEATED)).cast("boolean")
    return F.when(made_of.once(_attempt) > 0, again).otherwise(F.lit(True))
