"""Keys, values and headers as text, and back: unchanged, as numbers, in base64, or as JSON."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

Decode = Callable[[bytes], bytes]
Encode = Callable[[bytes], bytes]


class Format(NamedTuple):
    """`show` turns a record's bytes into the bytes to write; `read` turns text into the record's bytes. Each raises
    ValueError for data that doesn't fit."""

    show: Decode
    read: Encode


def _number(form: str, parse: Callable[[bytes], Any]) -> Format:
    packed = struct.Struct(form)

    def show(data: bytes) -> bytes:
        if len(data) != packed.size:
            raise ValueError(f"{len(data)} bytes where {packed.size} are needed")
        return str(packed.unpack(data)[0]).encode()

    def read(text: bytes) -> bytes:
        try:
            return packed.pack(parse(text))
        except struct.error as error:
            raise ValueError(str(error)) from None

    return Format(show, read)


def _same(data: bytes) -> bytes:
    return data


def _from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


FORMATS: Final[dict[str, Format]] = {
    "text": Format(_same, _same),
    "base64": Format(base64.b64encode, _from_base64),
    "hex": Format(lambda data: data.hex().encode(), lambda text: bytes.fromhex(text.decode())),
    "int32": _number(">i", int),
    "int64": _number(">q", int),
    "double": _number(">d", float),
}
"""The formats are those of Kafka's serializers with these names; text may be any bytes."""


def to_json(data: bytes | None) -> object:
    """Return a string if the bytes are UTF-8, an object with `base64` if they aren't, None for None."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def from_json(value: object, what: str) -> bytes | None:
    """Return the bytes of a `to_json` value. Other JSON values (a number, a list, an object) become their own text.
    Raises ValueError for wrong base64."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise ValueError(f"{what}: base64: {error}") from None
    import json

    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
