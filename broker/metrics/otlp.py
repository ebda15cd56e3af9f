"""Reads clients' pushes: the few messages of OpenTelemetry's protocol that a push has, in protobuf's format.

A message is a sequence of fields. Unknown ones are skipped. Names, points and fields are bounded, so that no push takes
longer than a request may.
Source: `opentelemetry/proto/metrics/v1/metrics.proto`, `ClientTelemetryUtils`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

MOST_POINTS = 1_000
"""Points that are read of one push."""
MOST_FIELDS = 60_000
"""Most fields of one push, each counted as often as it is read: some 50 ms."""
MOST_CHARACTERS = 200
"""The longest name or attribute's value. A longer one is cut."""
MOST_ATTRIBUTES = 16
"""Attributes that are kept of one point."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE = Struct("<d")
_INT64 = Struct("<q")
_DELTA = 1


class OtlpError(ValueError):
    """The bytes aren't a push, or it is too long."""


class Point(NamedTuple):
    """One number of a client's metrics."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    """(name, value), sorted."""
    value: float
    is_delta: bool
    """True if the value was added since the last push."""


def points_in(data: bytes | memoryview) -> Iterator[Point]:
    """Yield the points of gauges and sums. Histograms, which no Kafka client pushes, are skipped. Raises OtlpError."""
    fields = _Fields()
    left = MOST_POINTS
    for resource_metrics in fields.messages(memoryview(data), 1):
        for scope_metrics in fields.messages(resource_metrics, 2):
            for metric in fields.messages(scope_metrics, 2):
                for point in _points_of(fields, metric):
                    if not left:
                        return
                    left -= 1
                    yield point


def _points_of(fields: _Fields, metric: memoryview) -> Iterator[Point]:
    name = ""
    data: memoryview | None = None
    is_sum = False
    for number, value in fields.of(metric):
        if number == 1 and isinstance(value, memoryview):
            name = _text(value)
        elif number in (5, 7) and isinstance(value, memoryview):
            data, is_sum = value, number == 7
    if not name or data is None:
        return
    is_delta = is_sum and any(number == 2 and value == _DELTA for number, value in fields.of(data))
    for point in fields.messages(data, 1):
        found: float | None = None
        attributes: dict[str, str] = {}
        for number, value in fields.of(point):
            if not isinstance(value, memoryview):
                continue
            if number in (4, 6) and len(value) == _INT64.size:
                found = float((_DOUBLE if number == 4 else _INT64).unpack(value)[0])
            elif number == 7 and len(attributes) < MOST_ATTRIBUTES:
                key, text = _attribute(fields, value)
                attributes[key] = text
        if found is not None:
            yield Point(name, tuple(sorted(attributes.items())), found, is_delta)


def _attribute(fields: _Fields, pair: memoryview) -> tuple[str, str]:
    key = text = ""
    for number, value in fields.of(pair):
        if number == 1 and isinstance(value, memoryview):
            key = _text(value)
        elif number == 2 and isinstance(value, memoryview):
            text = _any_value(fields, value)
    return key, text


def _any_value(fields: _Fields, value: memoryview) -> str:
    for number, each in fields.of(value):
        if number == 1 and isinstance(each, memoryview):
            return _text(each)
        if number == 2:
            return "true" if each else "false"
        if number == 3 and isinstance(each, int):
            return str(each - (1 << 64) if each >> 63 else each)
        if number == 4 and isinstance(each, memoryview) and len(each) == _DOUBLE.size:
            return str(_DOUBLE.unpack(each)[0])
    return ""


def _text(data: memoryview) -> str:
    return bytes(data[: MOST_CHARACTERS * 4]).decode("utf-8", "replace")[:MOST_CHARACTERS]


# --- The wire -------------------------------------------------------------------------------------------------


class _Fields:
    """Reads the fields of one push."""

    def __init__(self) -> None:
        self._left = MOST_FIELDS

    def messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        """The bytes of each field with this number."""
        return (
            value for number, value in self.of(data) if number == wanted and isinstance(value, memoryview)
        )

    def of(self, data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
        """Yield the number and value of each field. The value is an int or bytes."""
        at, end = 0, len(data)
        while at < end:
            if not self._left:
                raise OtlpError(f"more than {MOST_FIELDS} fields")
            self._left -= 1
            tag, at = _varint(data, at)
            kind = tag & 7
            if kind == _VARINT:
                value, at = _varint(data, at)
                yield tag >> 3, value
                continue
            if kind == _BYTES:
                size, at = _varint(data, at)
            elif kind in (_FIXED64, _FIXED32):
                size = 8 if kind == _FIXED64 else 4
            else:
                raise OtlpError(f"wire type {kind}")
            if size > end - at:
                raise OtlpError("a field is longer than its message")
            yield tag >> 3, data[at : at + size]
            at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise OtlpError("a number has no end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
    raise OtlpError("a number of more than 64 bits")
