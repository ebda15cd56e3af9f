"""Stretches of records that look alike, proven faster than record by record.

Both ways start from a record that the walk has proven, and assume the same positions of fields for its
neighbours. What doesn't fit ends the stretch and is left to the walk: only that decides what is corrupt.

- A *run* has records of one size, as many producers send. All bytes that determine a record's shape (its
  size, the sizes of key, value, headers) then form columns with one stride. A slice with a step fetches a
  column at the speed of C, and one comparison shows that it repeats a single byte. Timestamps may differ as
  long as their varints keep their width. Less than 0.1 µs per record.
- Records of different sizes still have most fields at the same position, so one `struct` unpacks all of a record.
  Sizes and expected offset deltas are looked up in tables instead of computed. About 0.3 µs per record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from protocol.wire.primitives import read_varint, read_varlong

_MIN_RUN = 24
"""The least records of a run: for fewer, the columns cost more than they save."""
MOST_AT_ONCE = 16_384
"""The most records of a run: a slice with a step holds the interpreter until it is done, and so does
unpacking a column."""
MOST_HEADERS = 100
"""The most headers of a record for which runs are tried: millions of them would be as many columns."""
_FOLLOWED_AT_ONCE = 256
_CELL_BYTES = 8
_CONTINUING = bytes(range(0x80, 0x100))
_IMPOSSIBLE = -1 << 40
"""The tables' value for a varint that can't be a size: no sum with it fits."""
_OFFSET_LIMITS = (0, 64, 8192, 1 << 20)
"""For each width of a varint the first offset delta that needs a wider one."""


class Layout(NamedTuple):
    """The positions of a proven record's fields, relative to its start."""

    start: int
    size: int
    """The whole record, including the varint of its size."""
    lengths: list[int]
    """Every byte of the sizes and the count that determine the record's shape."""
    size_width: int
    timestamp: range
    offset: range
    key: int
    """The position of the key's size."""
    key_width: int
    key_size: int
    value_width: int
    headers: int


class Stretch(NamedTuple):
    """Consecutive records of one layout: their number, the start and end of the last one, the bounds of their
    timestamps."""

    records: int
    last_start: int
    end: int
    min_delta: int
    max_delta: int


def layout_of(data: bytes | memoryview, start: int) -> Layout | None:
    """The layout of the record at `start`, which must have been proven; None if it has too many headers."""
    size, fields = read_varint(data, start)
    _, offset = read_varlong(data, fields + 1)
    _, key = read_varint(data, offset)
    key_size, at = read_varint(data, key)
    key_width = at - key
    value = at + max(key_size, 0)
    value_size, at = read_varint(data, value)
    value_width = at - value
    lengths = [*range(fields - start), *range(key - start, key - start + key_width)]
    lengths.extend(range(value - start, at - start))
    at += max(value_size, 0)
    headers, behind = read_varint(data, at)
    if headers > MOST_HEADERS:
        return None
    lengths.extend(range(at - start, behind - start))
    for _ in range(2 * headers):
        at = behind
        header_size, behind = read_varint(data, at)
        lengths.extend(range(at - start, behind - start))
        behind += max(header_size, 0)
    return Layout(
        start=start,
        size=fields - start + size,
        lengths=lengths,
        size_width=fields - start,
        timestamp=range(fields + 1 - start, offset - start),
        offset=range(offset - start, key - start),
        key=key - start,
        key_width=key_width,
        key_size=key_size,
        value_width=value_width,
        headers=headers,
    )


def measure_run(data: bytes | memoryview, layout: Layout, pos: int, index: int, stop: int) -> Stretch | None:
    """Measure the run of records at `pos`, the first of which has `index`, before the index `stop`. None if
    it is too short."""
    stride = layout.size
    limit = _OFFSET_LIMITS[min(len(layout.offset), 3)]
    records = min(stop - index, limit - index, (len(data) - pos) // stride, MOST_AT_ONCE)
    if records < _MIN_RUN or data[pos : pos + 2] != data[layout.start : layout.start + 2]:
        return None
    for at in layout.lengths:
        # Comparing a slice of a memoryview takes a third of the time of making bytes of it.
        column = data[pos + at : pos + records * stride : stride]
        same = bytes(data[layout.start + at : layout.start + at + 1])
        if column != same * records:
            records -= len(bytes(column).lstrip(same))
            if records < _MIN_RUN:
                return None
    offsets = [data[pos + at : pos + records * stride : stride] for at in layout.offset]
    if offsets != _offset_columns(index, records, len(offsets)):
        return None
    columns = [bytes(data[pos + at : pos + records * stride : stride]) for at in layout.timestamp]
    if not _are_varints(columns):
        return None
    end = pos + records * stride
    return Stretch(records, end - stride, end, *_extremes(columns))


def _offset_columns(first: int, records: int, width: int) -> list[bytes]:
    """The columns of the varints `first`, `first` + 1 …, all with `width` bytes."""
    columns = []
    for place in range(width):
        continues = 0x80 if place < width - 1 else 0
        if place == 0:
            cycle = bytes(raw | continues for raw in range(0, 128, 2))
            column = cycle * (records // 64 + 2)
            skipped = first % 64
        else:
            alike = 64 << 7 * (place - 1)  # this many neighbours share this byte
            values = range(first // alike, (first + records) // alike + 1)
            column = b"".join([bytes((value & 0x7F | continues,)) * alike for value in values])
            skipped = first % alike
        columns.append(column[skipped : skipped + records])
    return columns


def _are_varints(columns: list[bytes]) -> bool:
    """True if each varint ends in the last column, and none before."""
    if len(columns) > _CELL_BYTES or not columns[-1].isascii():
        return False
    return not any(column.translate(None, _CONTINUING) for column in columns[:-1])


def _extremes(columns: list[bytes]) -> tuple[int, int]:
    """The smallest and the largest of the varints whose first, second … bytes are in the columns."""
    # A cell per varint, read as a little-endian number, keeps the order of zigzag numbers: the even ones are
    # 0, 1, 2 …, the odd ones −1, −2 … So only the ends of both need to be decoded.
    records = len(columns[0])
    if all(column.count(column[:1]) == records for column in columns):
        delta, _ = read_varlong(bytes(column[0] for column in columns), 0)
        return delta, delta
    values: set[int] | tuple[int, ...]
    if len(columns) == 1:
        values = set(columns[0])
    else:
        cells = bytearray(_CELL_BYTES * records)
        for place, column in enumerate(columns):
            cells[place::_CELL_BYTES] = column
        values = Struct(f"<{records}Q").unpack(cells)
    ends: list[int] = []
    for same_sign in ([v for v in values if not v & 1], [v for v in values if v & 1]):
        if same_sign:
            ends += (min(same_sign), max(same_sign))
    deltas = [read_varlong(end.to_bytes(_CELL_BYTES, "little"), 0)[0] for end in ends]
    return min(deltas), max(deltas)


def follow_shape(data: bytes | memoryview, layout: Layout, pos: int, index: int, stop: int) -> Stretch | None:
    """Follow the records at `pos` whose deltas have varints as wide as those of the layout. None if there
    isn't even one.

    They have no headers, keys of less than 64 bytes (or none, like the layout's), and sizes below 8 KiB.
    """
    timestamp_width, offset_width = len(layout.timestamp), len(layout.offset)
    if layout.headers or layout.key_width != 1 or timestamp_width > 2 or offset_width > 2:
        return None
    if not _OFFSET_LIMITS[offset_width - 1] <= index < _OFFSET_LIMITS[offset_width]:
        return None
    mask, ending = (0x80, 0) if timestamp_width == 1 else (0x8080, 0x80)
    sizes = _sizes()
    stop = min(stop, _OFFSET_LIMITS[offset_width])
    first, last_start = index, pos
    min_delta, max_delta = 1 << 63, -1 << 63
    last_raw = -1
    try:
        while index < stop:
            before = index
            size_width = 1 if data[pos] < 0x80 else 2
            shapes = _shapes(size_width, timestamp_width, offset_width, layout.key_size < 0)
            key = size_width + 1 + timestamp_width + offset_width
            for expected in _offset_varints()[index : min(stop, index + _FOLLOWED_AT_ONCE)]:
                unpack, overhead = shapes[data[pos + key]]
                size, raw, offset, value_size = unpack(data, pos)
                size = sizes[size]
                if size - sizes[value_size] != overhead or offset != expected:
                    break
                end = pos + size
                if data[end - 1]:  # the count of headers
                    break
                if raw != last_raw:
                    if raw & mask != ending:
                        break
                    last_raw = raw
                    raw = (raw & 0x7F) + (raw >> 8) * 128
                    delta = (raw >> 1) ^ -(raw & 1)
                    if delta > max_delta:
                        max_delta = delta
                    if delta < min_delta:
                        min_delta = delta
                last_start = pos
                pos = end
                index += 1
            if index == before:
                break
    except (IndexError, StructError):
        pass
    if index == first:
        return None
    return Stretch(index - first, last_start, pos, min_delta, max_delta)


@cache
def _shapes(
    size_width: int, timestamp_width: int, offset_width: int, null_keys: bool
) -> list[tuple[Callable[..., tuple[int, ...]], int]]:
    """For each byte that a key's size may be: the function that unpacks such a record, and how much larger
    than its value the record is.

    It unpacks the varints of the record's size, the timestamp delta, the offset delta and the value's size,
    as little-endian numbers with their continuation bits; the sizes always as two bytes (see `_sizes`).
    """
    shapes: list[tuple[Callable[..., tuple[int, ...]], int]] = [(_unpack_nothing, 0)] * 256
    timestamp, offset = " BH"[timestamp_width], " BH"[offset_width]
    for byte in (1,) if null_keys else range(0, 128, 2):
        key_size = 0 if null_keys else byte // 2
        size = (
            "Hx" if size_width == 2 else "H"
        )  # if the size has one byte, the other is that of the attributes
        form = f"<{size}{timestamp}{offset}{1 + key_size}xH"
        # 3: attributes, the key's size, the count of headers.
        overhead = 3 + timestamp_width + offset_width + key_size
        shapes[byte] = (Struct(form).unpack_from, overhead + size_width)
    return shapes


def _unpack_nothing(data: bytes | memoryview, pos: int) -> tuple[int, ...]:
    return (0, 0, 0, 0)


@cache
def _sizes() -> list[int]:
    """A table from two bytes, read as a little-endian number, to a sum of bytes.

    The two bytes begin with the varint of a size. The sum is that of the varint's own bytes and the size. If
    the varint only has one byte, the other may be any. A negative size counts as 0, as for a null value.
    """
    sizes = [_IMPOSSIBLE] * 65536
    for low in range(128):
        sizes[low::256] = [1 if low & 1 else 1 + low // 2] * 256
    for size in range(8192):
        sizes[_two_bytes(size)] = 2 + size
    return sizes


@cache
def _offset_varints() -> tuple[int, ...]:
    """The varints of 0 to 8191, read as little-endian numbers."""
    return (*range(0, 128, 2), *map(_two_bytes, range(64, _OFFSET_LIMITS[2])))


def _two_bytes(value: int) -> int:
    raw = 2 * value
    return raw & 0x7F | 0x80 | raw >> 7 << 8
