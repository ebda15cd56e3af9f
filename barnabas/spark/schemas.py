"""Spark's schemas as text, and what Arrow calls them."""

from __future__ import annotations

import pyarrow as pa

TYPES = {"string": pa.string(), "int": pa.int32(), "long": pa.int64(), "boolean": pa.bool_()}


def arrow_schema(columns: str) -> pa.Schema:
    """Of `name type, name type, …`, as `mapInArrow` takes it, with the types of `TYPES`."""
    pairs = (column.split() for column in columns.split(", "))
    return pa.schema([(name, TYPES[kind]) for name, kind in pairs])
