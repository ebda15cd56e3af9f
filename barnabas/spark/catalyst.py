"""Java methods as columns, by Catalyst's own expressions: Python has no function for these.

py4j asks the JVM for each part of a dotted name. A keyed batch would need some hundred such questions, which take
longer than a small batch's transaction. So they are asked once for each JVM. If another release of Spark has moved the
classes, calls raise what py4j or Python raises.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class Catalyst:
    """The parts of these expressions in one JVM."""

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
        """Return a column that is the same for all batches, made at the first call. It belongs to no session, because
        each batch of `foreachBatch` has another one."""
        found = self._columns.get(make)
        if found is None:
            found = self._columns[make] = make(self)
        return found

    def static_int(self, class_name: str, method: str, argument: Column) -> Column:
        """Return an int column: a deterministic static method of one argument. Null gives null."""
        call = self._static_invoke(
            self._class(class_name),
            self._int,
            method,
            self._to_seq([self._expression(argument._jc)]),
            self._none,  # the types that arguments are cast to
            True,  # null gives null, without a call
            False,  # a call never returns null
            True,  # the method is deterministic
            self._no_function,  # no function of a catalog
        )
        return self._as_column(call)

    def int_of_static(self, class_name: str, static_method: str, method: str) -> Column:
        """Return an int column: a method of the object that this class's static method returns, both without arguments.
        It is null if the static method returns null. It isn't deterministic, or the driver would compute it."""
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
    """Return the parts for the session's JVM."""
    return _of(spark.sparkContext._jvm)


@lru_cache(maxsize=1)
def _of(jvm: Any) -> Catalyst:
    return Catalyst(jvm)


# --- Did Spark repeat a stage of a try's job? Then its rows come from more than one computation -------------
#
# If a map output is lost after a stage has read it, Spark computes it again and repeats the reading stage for the tasks
# that haven't ended. The others keep what they wrote. If rows come out differently the second time, because of a random
# key or another order (SPARK-23207), they are written twice or not at all. No task's attempt number shows this: it
# begins at 0 again.
#
# The stage's attempt number does. Python's TaskContext doesn't have it, and the driver's listeners hear of it late, or
# never if their queue is full. So the task itself asks the JVM, by a Catalyst expression. Stages of the batch's own,
# before the sink's, are Spark's business: they are done before anything is written.

REPEATED = (
    "Spark repeated a stage, so tasks may have seen other rows than the tasks that have written already"
)


def attempt(spark: SparkSession) -> Column:
    """Return an int column: how often the stage that computes it was tried before."""
    return catalyst(spark).once(_attempt)


def _attempt(made_of: Catalyst) -> Column:
    return made_of.int_of_static("org.apache.spark.TaskContext", "get", "stageAttemptNumber")


def only_first(rows: DataFrame) -> DataFrame:
    """Return the same rows. The stage that computes them fails if it is repeated."""
    return rows.where(catalyst(rows.sparkSession).once(_is_first))


def _is_first(made_of: Catalyst) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    again = F.raise_error(F.lit(REPEATED)).cast("boolean")
    return F.when(made_of.once(_attempt) > 0, again).otherwise(F.lit(True))
