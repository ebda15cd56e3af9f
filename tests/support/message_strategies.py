"""Hypothesis strategies for messages, derived from their declarations."""

from typing import Any

from hypothesis import strategies as st

from protocol.wire.schema import Field, Message, Struct
from tests.support.declared_messages import declared_messages

VERSIONS = [
    (message, version)
    for _, message in sorted(declared_messages().items())
    for version in range(message.VERSIONS[0], message.VERSIONS[1] + 1)
]
"""Every declared message in each of its versions."""

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def messages(cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    """Return messages that this version can encode: fields that it doesn't have keep their defaults."""
    return _structs(cls, version)


def _structs(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    present = [field for field in cls.FIELDS if field.in_version(version)]
    return st.builds(cls, **{field.name: _values(field, version) for field in present})


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _present_values(field, version)
    nullable = field.nullable_in(version)
    if field.kind == "struct" and field.tag >= 0 and not nullable:
        # A struct with only defaults isn't written, and comes back as None.
        default = field.element()  # type: ignore[operator]
        return st.none() | values.filter(lambda value: value != default)
    return st.none() | values if nullable else values


def _present_values(field: Field, version: int) -> st.SearchStrategy[Any]:
    kind = field.kind
    if kind in _BITS:
        bound = 1 << _BITS[kind] - 1
        return st.integers(-bound, bound - 1)
    if kind in ("uint16", "uint32"):
        return st.integers(0, 2 ** int(kind[4:]) - 1)
    if kind == "array":
        element = field.element
        items = (
            _structs(element, version)
            if isinstance(element, type)
            else _present_values(Field(str(element), "0+", None), version)
        )
        return st.lists(items, max_size=3)
    if kind == "struct":
        return _structs(field.element, version)  # type: ignore[arg-type]
    return {
        "boolean": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
        "binary": st.binary(max_size=200),
        "records": st.binary(max_size=200),
        "uuid": st.binary(min_size=16, max_size=16),
    }[kind]
