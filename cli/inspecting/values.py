"""Values as JSON and as text."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum

from cli.formats import to_json
from protocol.wire.primitives import uuid_to_text
from protocol.wire.schema import Struct

_SHOWN = 200
"""The most characters of a key or value that people see. Programs get all."""


def plain(value: object) -> object:
    """Return the value for JSON: a struct by its fields, bytes as text if they are text, otherwise in base64."""
    if isinstance(value, Struct):
        return {
            field.name: uuid_to_text(found)
            if field.kind == "uuid" and isinstance(found, bytes)
            else plain(found)
            for field in type(value).FIELDS
            for found in [getattr(value, field.name)]
        }
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [uuid_to_text(each) if _is_uuid(each) else plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return to_json(bytes(value))
    return value


def _is_uuid(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == 16


def shown(data: bytes | None) -> str:
    """Return text for people: quoted, or hexadecimal, with the end of a long one left out."""
    if data is None:
        return "null"
    try:
        text = repr(data[: 4 * _SHOWN].decode())
    except UnicodeDecodeError:
        text = f"0x{data[:_SHOWN].hex()}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(data):,} bytes)"


def shown_fields(value: object) -> str:
    """Return a decoded record on one line, without empty fields."""
    if isinstance(value, dict):
        parts = (
            f"{name}={shown_fields(each)}" for name, each in value.items() if each not in (None, [], {}, "")
        )
        return "{" + " ".join(parts) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown_fields, value)) + "]"
    return str(value)


def time_of(timestamp_ms: int) -> str:
    """Return the time in UTC, or the number if it isn't a time."""
    if timestamp_ms < 0:
        return "no time"
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"
