"""Pushes of client metrics, written field by field."""

from __future__ import annotations

import struct
from collections.abc import Mapping


def varint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def field(number: int, data: bytes) -> bytes:
    """Encode a field of bytes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def point(value: float, attributes: Mapping[str, str] | None = None) -> bytes:
    pairs = b"".join(
        field(7, field(1, key.encode()) + field(2, field(1, text.encode())))
        for key, text in (attributes or {}).items()
    )
    number = (
        varint(6 << 3 | 1) + struct.pack("<q", value)
        if isinstance(value, int)
        else varint(4 << 3 | 1) + struct.pack("<d", value)
    )
    return pairs + number


def gauge(name: str, *points: bytes) -> bytes:
    return field(1, name.encode()) + field(5, b"".join(field(1, each) for each in points))


def delta_sum(name: str, *points: bytes) -> bytes:
    data = b"".join(field(1, each) for each in points) + varint(2 << 3) + varint(1)
    return field(1, name.encode()) + field(7, data)


def push(*metrics: bytes) -> bytes:
    return field(1, field(1, b"") + field(2, b"".join(field(2, each) for each in metrics)))
