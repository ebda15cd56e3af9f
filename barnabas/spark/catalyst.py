"""Java methods as columns, by Catalyst's own expressions: Python has no function for these.

py4j asks the JVM for each part of a dotted name. What a keyed batch needs of them would be some hundred questions, more
than a small batch takes for its transaction; so they are asked once for each JVM. Where another release of Spark has
moved them, what is called raises what py4j or Python does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class Catalyst:
    """What these expressions are made of, of one JVM."""

    def __init__(self, jvm: Any) -> None:
        objects = jvm.org.apache.spark.sql.catalyst.expressions.objects
        types = jvm.org.apache.spark.sql.types
        utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
        self._static_invoke, self._invoke = objects.StaticInvoke, objects.Invoke
        self._expression, self._column = utils.expression, utils.column
        self._object_type, self._int = types.ObjectType, types.DataTypes.IntegerType
        self._to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        self._class_for_name = jvm.org.apache.spark.util.Utils.classForName
        self._none = self._to_seq([])
        self._no_function = jvm.scala.Option.empty()
        self._classes: dict[str, Any] = {}
        self._columns: dict[Callable[[Catalyst], Column], Column] = {}

    def once(self, make: Callable[[Catalyst], Column]) -> Column:
        """A column that is the same for all batches, made when it is asked for first. It belongs to no session: within
        `foreachBatch` each batch has another one."""
        found = self._columns.get(make)
        if found is None:
            found = self._columns[make] = make(self)
        return found

    def static_int(self, class_name: str, method: str, argument: Column) -> Column:
        """An int column: a static method of one argument, the same for the same one; null of null."""
        call = self._static_invoke(
            self._class(class_name),
            self._int,
            method,
            self._to_seq([self._expression(argument._jc)]),
            self._none,  # the types that arguments are cast to
            True,  # null gives null, without a call
            False,  # a call gives no null
            True,  # is deterministic
            self._no_function,  # of a catalog
        )
        return self._as_column(call)

    def int_of_static(self, class_name: str, static_method: str, method: str) -> Column:
        """An int column: a method of the object of this class that a static method gives, both without arguments; null
        where that gives null. Not deterministic: else the driver would compute it."""
        found = self._class(class_name)
        of_task = self._static_invoke(
            found,
            self._object_type(found),
            static_method,
            self._none,
            self._none,
            True,
            False,
            False,
            self._no_function,
        )
        return self._as_column(
            self._invoke(of_task, method, self._int, self._none, self._none, True, False, False)
        )

    def _class(self, name: str) -> Any:
        found = self._classes.get(name)
        if found is None:
            found = self._classes[name] = self._class_for_name(name, True, False)
        return found

    def _as_column(self, expression: Any) -> Column:
        from pyspark.sql.classic.column import Column as ClassicColumn

        return ClassicColumn(self._column(expression))


def catalyst(spark: SparkSession) -> Catalyst:
    """Of the session's JVM."""
    return _of(spark.sparkContext._jvm)


@lru_cache(maxsize=1)
def _of(jvm: Any) -> Catalyst:
    return Catalyst(jvm)


# --- Whether Spark repeated a stage of a try's job: then its rows are not one computation's any more ----------
#
# Where a map output is lost after a stage has read it, Spark computes it anew and repeats the reading stage for the
# tasks that have not ended; the others keep what they wrote. Rows that come out otherwise the second time, by a key
# that is random or by an order that isn't the same (SPARK-23207), are written twice, or by nobody. No task's attempt
# number tells, since it begins at 0 again.
#
# The stage's does. Python's TaskContext lacks it, and the listeners of the driver hear of it late, or not at all
# where their queue is full; so the JVM is asked in the task itself, by an expression of Catalyst's. Stages of the
# batch's own, ahead of the sink's, are Spark's affair: what they come to, they came to before anything is written.

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
