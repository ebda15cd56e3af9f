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
    from pyspark.sql import Column, SparkSession


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
