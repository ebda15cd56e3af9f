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

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

REPEATED = "Spark repeated a stage, so that tasks may have seen other rows than those that wrote already"


def attempt(spark: SparkSession) -> Column:
    """An int column: how often the stage that computes it was tried before."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    jvm: Any = spark.sparkContext._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    objects = jvm.org.apache.spark.sql.catalyst.expressions.objects
    types = jvm.org.apache.spark.sql.types
    nothing = jvm.org.apache.spark.api.python.PythonUtils.toSeq([])
    context = jvm.org.apache.spark.util.Utils.classForName("org.apache.spark.TaskContext", True, False)
    # Null propagates (True); a call gives none, and is not deterministic: else the driver would compute it.
    of_task = objects.StaticInvoke(
        context,
        types.ObjectType(context),
        "get",
        nothing,
        nothing,
        True,
        False,
        False,
        jvm.scala.Option.empty(),
    )
    call = objects.Invoke(
        of_task, "stageAttemptNumber", types.DataTypes.IntegerType, nothing, nothing, True, False, False
    )
    return ClassicColumn(expressions.column(call))


def only_first(rows: DataFrame) -> DataFrame:
    """The same rows; the stage that computes them fails where it is repeated."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    again = F.raise_error(F.lit(REPEATED)).cast("boolean")
    return rows.where(F.when(attempt(rows.sparkSession) > 0, again).otherwise(F.lit(True)))
