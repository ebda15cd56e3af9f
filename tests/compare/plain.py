"""Messages as plain dicts and lists, and back: scripts write requests and transcripts hold answers in this form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.errors import Error

from .batches import describe

ERROR_NAMES = {int(error): error.name for error in Error}


def message_from(cls: type, fields: Mapping[str, Any], version: int) -> Any:
    """Return the message that nested dicts describe.

    A field of another version is left out, so that one dict serves all versions. A field of no version is an error.
    """
    known = {field.name: field for field in cls.FIELDS}  # type: ignore[attr-defined]
    values = {}
    for name, value in fields.items():
        field = known.get(name)
        if field is None:
            raise KeyError(f"{cls.__name__} has no field {name}; it has {', '.join(known)}")
        if not field.in_version(version):
            continue
        if field.kind == "struct" and value is not None:
            value = message_from(field.element, value, version)
        elif field.kind == "array" and isinstance(field.element, type) and value is not None:
            value = [message_from(field.element, element, version) for element in value]
        values[name] = value
    return cls(**values)


def plain(message: Any, version: int) -> dict[str, Any]:
    """Return a message as a dict of that version's fields."""
    out = {}
    for field in type(message).FIELDS:
        if field.in_version(version):
            out[field.name] = _plain_value(field, getattr(message, field.name), version)
    return out


def _plain_value(field: Any, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.kind == "struct":
        return plain(value, version)
    if field.kind == "array":
        if isinstance(field.element, type):
            return [plain(element, version) for element in value]
        return [element.hex() if isinstance(element, bytes) else element for element in value]
    if field.kind == "records":
        return describe(bytes(value))
    if field.name == "error_code":
        return f"{value} {ERROR_NAMES.get(value, '?')}"
    if isinstance(value, bytes):
        return value.hex()
    return value
