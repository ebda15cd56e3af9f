"""The columns of a Kafka sink, as Spark's own has them (`KafkaWriter.validateQuery`, `KafkaRowWriter`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.errors import ColumnsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

HEADERS = "array<struct<key:string,value:binary>>"

TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS,),
    "partition": ("int",),
    "topic": ("string",),
}


@dataclass(frozen=True, slots=True)
class RecordForm:
    """Which of the columns there are, by the DataFrame's own spelling, in the order of `TYPES`."""

    names: dict[str, str]

    @property
    def is_placed(self) -> bool:
        """Whether a row itself says which partition it belongs to."""
        return "key" in self.names or "partition" in self.names

    def select(self, batch: DataFrame) -> DataFrame:
        """The batch with these columns alone, under their plain names."""
        return batch.select(*[batch[f"`{spelled}`"].alias(name) for name, spelled in self.names.items()])


def record_form(schema: StructType, topic: str | None) -> RecordForm:
    """What the batch's columns are. Raises ColumnsError where one is missing, of another type or there twice."""
    found: dict[str, str] = {}
    for name, types in TYPES.items():
        # Spark's names of columns are the same in any case, unless it is told otherwise.
        spelled = [field for field in schema.fields if field.name.lower() == name]
        if not spelled:
            continue
        if len(spelled) > 1:
            raise ColumnsError(f"there are {len(spelled)} columns of the name {name!r}")
        is_type = spelled[0].dataType.simpleString()
        if is_type not in types:
            raise ColumnsError(
                f"the column {name!r} is of type {is_type}, and must be {' or '.join(types)}: cast it, "
                f"or serialize it, for example with to_json"
            )
        if name != "topic" or topic is None:
            found[name] = spelled[0].name
    columns = ", ".join(field.name for field in schema.fields) or "none"
    if "value" not in found:
        raise ColumnsError(
            f"a sink to Kafka needs the column 'value', string or binary; the batch has: {columns}"
        )
    if topic is None and "topic" not in found:
        raise ColumnsError(
            f"where should the rows go? Give the sink a topic=..., or the batch a column 'topic'; it has: {columns}"
        )
    return RecordForm(found)
