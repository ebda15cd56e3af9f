"""A walk over the uncompressed records of a batch that proves their shape and makes no object per record.

Every record that a producer sends uncompressed passes through here, so that speed counts: one after the other, in a
loop with the varints of one and two bytes written out (about 0.45 µs each), and whole stretches at once where the
records that follow look like the last one.

What is proven: each record's size lies within the batch, its fields fit it exactly, header keys aren't null, there
are as many records as said, and no bytes are left over. A negative size of a key or a value means null, as in Kafka.
Source: org.apache.kafka.common.record.DefaultRecord and DefaultRecordBatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from protocol.records.batch import CorruptRecordError
from protocol.records.validation_budget import ANY, Effort, TooMuchEffortError
from protocol.wire.primitives import VarintTooLongError, read_varint, read_varlong

_new_tuple = tuple.__new__  # each batch makes one: a call of the class is twice as slow

_WORTHWHILE = 20
"""Records left from which on a stretch is looked for: to look costs as much as some ten records."""
_MAX_PATIENCE = 64
"""Records walked one by one between two looks, where looking didn't pay."""
_COPY_BELOW_BYTES = 256
"""Average size of a record up to which the batch is copied first: bytes are read several times faster than a
memoryview. Of larger records that look alike so little is read that the copy would cost more than it saves."""
_COPY_UNLIKE_BELOW_BYTES = 4096
"""The same where they don't look alike, so that each is walked. Larger records are too few for it to matter."""


class RecordSizeVarintError(CorruptRecordError):
    """A record's size that goes on past five bytes: for this Kafka has an answer of its own."""


class RecordsShape(NamedTuple):
    """What the checks of a batch need to know of its records. Deltas are those that stand in the records, in ms."""

    min_timestamp_delta: int
    max_timestamp_delta: int
    has_null_key: bool
    offsets_are_consecutive: bool
    """Whether the offset deltas are 0, 1, 2 …"""


def walk_records(data: bytes | memoryview, count: int, effort: Effort = ANY) -> RecordsShape:
    """Proves that `data` is exactly `count` > 0 records, and sums them up.

    `data` must end where the batch ends: that is what stops a size that reaches too far.
    Raises `RecordSizeVarintError`, else `CorruptRecordError`; `TooMuchEffortError`.
    """
    if count > effort.records:
        raise TooMuchEffortError
    if count >= _WORTHWHILE and len(data) < _COPY_BELOW_BYTES * count:
        data = bytes(data)
    walk = _Walk(data)
    walk.headers_left = effort.pieces
    patience = 1
    try:
        while walk.index < count:
            walk.go_on(min(count, walk.index + patience))
            if count - walk.index < _WORTHWHILE:
                patience = _WORTHWHILE
            elif walk.skip_alike(count) < patience:
                patience = min(2 * patience, _MAX_PATIENCE)
                if len(data) < _COPY_UNLIKE_BELOW_BYTES * count:
                    walk.data = bytes(walk.data)
            else:
                patience = 1
    except IndexError:
        raise CorruptRecordError(f"the batch ends before its {count} records") from None
    except VarintTooLongError as error:
        raise CorruptRecordError(str(error)) from None
    if walk.pos != len(data):
        raise CorruptRecordError(f"{len(data) - walk.pos} bytes behind the last record")
    return _new_tuple(RecordsShape, (walk.min_delta, walk.max_delta, walk.has_null_key, walk.consecutive))


def walk_stretches(data: bytes, count: int, length: int) -> Iterator[tuple[int, RecordsShape]]:
    """Sums up records that `walk_records` has proven, `length` of them at a time: where in `data` these begin, and
    their shape, but for whether offsets are consecutive."""
    walk = _Walk(data)
    while walk.index < count:
        pos = walk.pos
        walk.min_delta, walk.max_delta, walk.has_null_key = 1 << 63, -1 << 63, False
        walk.go_on(min(count, walk.index + length))
        yield pos, RecordsShape(walk.min_delta, walk.max_delta, walk.has_null_key, walk.consecutive)


def sizes_of_bodies(data: bytes | memoryview, count: int) -> Iterator[int]:
    """What the length of each of `count` records says: the bytes behind it. Raises as a walk does where they can't be
    gone through, when it comes to that: `CorruptRecordError`, `IndexError`."""
    pos = 0
    for _ in range(count):
        at, end = _read_record_size(data, pos)
        yield end - at
        pos = end


class _Walk:
    """How far the walk has come: the next record has `index` and begins at `pos`, the last one began at `start`."""

    __slots__ = (
        "consecutive",
        "data",
        "has_null_key",
        "headers_left",
        "index",
        "max_delta",
        "min_delta",
        "pos",
        "start",
    )

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data
        self.index = 0
        self.pos = 0
        self.start = 0
        self.min_delta = 1 << 63
        self.max_delta = -1 << 63
        self.has_null_key = False
        self.consecutive = True
        self.headers_left = ANY.pieces

    def go_on(self, stop: int) -> None:
        """One record after the other up to the index `stop`. An `IndexError` means the end of the batch."""
        data, pos, start = self.data, self.pos, self.start
        min_delta, max_delta = self.min_delta, self.max_delta
        last_raw = -1
        for index in range(self.index, stop):
            start = pos
            # The record's size. All sizes are zigzag: a first byte that is odd means a negative one.
            byte = data[pos]
            if byte < 0x80:
                at = pos + 1
                end = at + (byte >> 1)
                if byte & 1:
                    raise CorruptRecordError(f"record {index} has a negative size")
            else:
                high = data[pos + 1]
                if high < 0x80 and not byte & 1:
                    at = pos + 2
                    end = at + high * 64 + (byte >> 1) - 64
                else:
                    at, end = _read_record_size(data, pos)

            # Its attributes, of which none are defined, and the timestamp delta, mostly that of the record before.
            raw = data[at + 1]
            at += 2
            if raw > 0x7F:
                high = data[at]
                if high < 0x80:
                    raw += high * 128 - 128
                    at += 1
                else:
                    delta, at = read_varlong(data, at - 1)
                    raw = (delta << 1) ^ (delta >> 63)
            if raw != last_raw:
                last_raw = raw
                delta = (raw >> 1) ^ -(raw & 1)
                if delta > max_delta:
                    max_delta = delta
                if delta < min_delta:
                    min_delta = delta

            # The offset delta, mostly the index.
            raw = data[at]
            if raw < 0x80:
                at += 1
            elif data[at + 1] < 0x80:
                raw += data[at + 1] * 128 - 128
                at += 2
            else:
                delta, at = read_varint(data, at)
                raw = (delta << 1) ^ (delta >> 31)
            if raw != index + index:
                self.consecutive = False

            # Key, value, headers.
            byte = data[at]
            if byte < 0x80:
                if byte & 1:
                    self.has_null_key = True
                    at += 1
                else:
                    at += 1 + (byte >> 1)
            else:
                size, at = read_varint(data, at)
                if size < 0:
                    self.has_null_key = True
                else:
                    at += size
            byte = data[at]
            if byte < 0x80:
                at += 1 if byte & 1 else 1 + (byte >> 1)
            else:
                high = data[at + 1]
                if high < 0x80 and not byte & 1:
                    at += high * 64 + (byte >> 1) - 62
                else:
                    size, at = read_varint(data, at)
                    if size > 0:
                        at += size
            if data[at]:
                at = self._skip_headers(at)
            else:
                at += 1
            if at != end:
                raise CorruptRecordError(f"record {index} ends {end - at} bytes before its size says")
            pos = at
        self.index, self.pos, self.start = stop, pos, start
        self.min_delta, self.max_delta = min_delta, max_delta

    def skip_alike(self, stop: int) -> int:
        """Past the records that look like the last one, at most up to the index `stop`. Returns how many they are."""
        layout = layout_of(self.data, self.start)
        if layout is None:
            return 0
        stretch = measure_run(self.data, layout, self.pos, self.index, stop)
        if stretch is None:
            stretch = follow_shape(self.data, layout, self.pos, self.index, stop)
        if stretch is None:
            return 0
        self.index += stretch.records
        self.pos = stretch.end
        self.start = stretch.last_start
        self.min_delta = min(self.min_delta, stretch.min_delta)
        self.max_delta = max(self.max_delta, stretch.max_delta)
        return stretch.records

    def _skip_headers(self, pos: int) -> int:
        data = self.data
        count, pos = read_varint(data, pos)
        if not 0 <= count <= len(data) - pos:
            raise CorruptRecordError(f"a count of {count} headers")
        self.headers_left -= count
        if self.headers_left < 0:
            raise TooMuchEffortError
        for _ in range(count):
            byte = data[pos]
            if byte < 0x80 and not byte & 1:
                pos += 1 + (byte >> 1)
            else:
                size, pos = read_varint(data, pos)
                if size < 0:
                    raise CorruptRecordError("a null header key")
                pos += size
            byte = data[pos]
            if byte < 0x80 and not byte & 1:
                pos += 1 + (byte >> 1)
            else:
                size, pos = read_varint(data, pos)
                if size > 0:
                    pos += size
        return pos


def _read_record_size(data: bytes | memoryview, pos: int) -> tuple[int, int]:
    """Where the record's fields begin and where they end."""
    try:
        size, at = read_varint(data, pos)
    except VarintTooLongError as error:
        raise RecordSizeVarintError(str(error)) from None
    if size < 0:
        raise CorruptRecordError(f"a record of {size} bytes")
    return at, at + size


# ---- stretches of records that look alike, proven faster than one after the other
#
# Both ways start from a record that the walk has proven, and take the positions of its fields for those of its
# neighbours; whatever doesn't fit ends the stretch and is left to the walk, which alone decides what is corrupt.
#
# - A *run* has records of one size, as many producers send: all bytes that give a record its shape (its size, the
#   sizes of key, value, headers) then stand in columns at one stride. A slice with a step fetches a column at the speed
#   of C, and one comparison says that it repeats a single byte. Timestamps may differ while their varints keep their
#   width. Less than 0.1 µs a record.
# - Records that differ in size still have most fields at the same place, so that one `struct` unpacks all of a record.
#   Sizes and expected offset deltas are looked up in tables rather than computed. About 0.3 µs a record.

_MIN_RUN = 24
"""Records that a run must have: the columns of fewer cost more than they save."""
MOST_AT_ONCE = 16_384
"""Records of a run: a slice with a step holds the interpreter until it is done, and so does a column's unpacking."""
MOST_HEADERS = 100
"""Of a record whose neighbours may look like it; millions of them would be as many columns."""
_FOLLOWED_AT_ONCE = 256
_CELL_BYTES = 8
_CONTINUING = bytes(range(0x80, 0x100))
_IMPOSSIBLE = -1 << 40
"""Stands in the tables for a varint that isn't one of a size: no sum with it fits."""
_OFFSET_LIMITS = (0, 64, 8192, 1 << 20)
"""For each width of a varint the first offset delta that has a wider one."""


class Layout(NamedTuple):
    """Where the fields of a proven record stand, relative to its start."""

    start: int
    size: int
    """The whole record, with the varint of its size."""
    lengths: list[int]
    """Every byte of the sizes and the count that give the record its shape."""
    size_width: int
    timestamp: range
    offset: range
    key: int
    """Where the key's size stands."""
    key_width: int
    key_size: int
    value_width: int
    headers: int


class Stretch(NamedTuple):
    """So many records of one layout in a row: where the last begins and ends, and their timestamps' bounds."""

    records: int
    last_start: int
    end: int
    min_delta: int
    max_delta: int


def layout_of(data: bytes | memoryview, start: int) -> Layout | None:
    """The layout of the record at `start`, which must have been proven; None where it has too many headers for that."""
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
    """The run of records at `pos`, whose first one has `index`, before the index `stop`. None: hardly any."""
    stride = layout.size
    limit = _OFFSET_LIMITS[min(len(layout.offset), 3)]
    records = min(stop - index, limit - index, (len(data) - pos) // stride, MOST_AT_ONCE)
    if records < _MIN_RUN or data[pos : pos + 2] != data[layout.start : layout.start + 2]:
        return None
    for at in layout.lengths:
        # To compare a slice of a memoryview takes a third of the time that it takes to make bytes of it.
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
    """The columns of the varints `first`, `first` + 1 …, all of `width` bytes."""
    columns = []
    for place in range(width):
        continues = 0x80 if place < width - 1 else 0
        if place == 0:
            cycle = bytes(raw | continues for raw in range(0, 128, 2))
            column = cycle * (records // 64 + 2)
            skipped = first % 64
        else:
            alike = 64 << 7 * (place - 1)  # so many neighbours share this byte
            values = range(first // alike, (first + records) // alike + 1)
            column = b"".join([bytes((value & 0x7F | continues,)) * alike for value in values])
            skipped = first % alike
        columns.append(column[skipped : skipped + records])
    return columns


def _are_varints(columns: list[bytes]) -> bool:
    """Whether a varint ends in the last column and in none before."""
    if len(columns) > _CELL_BYTES or not columns[-1].isascii():
        return False
    return not any(column.translate(None, _CONTINUING) for column in columns[:-1])


def _extremes(columns: list[bytes]) -> tuple[int, int]:
    """The least and the largest of the varints whose first, second … bytes stand in the columns."""
    # A cell per varint, read as a little-endian number, keeps the order of the zigzag numbers: the even ones are
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
    """The records at `pos` whose deltas have varints as wide as those of the layout. None: not even one.

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
    """For each byte that a key's size may be: what unpacks such a record, and how much larger it is than its value.

    Unpacked are the varints of the record's size, the timestamp delta, the offset delta and the value's size, as
    little-endian numbers with their continuation bits; the sizes always as two bytes (see `_sizes`).
    """
    shapes: list[tuple[Callable[..., tuple[int, ...]], int]] = [(_unpack_nothing, 0)] * 256
    timestamp, offset = " BH"[timestamp_width], " BH"[offset_width]
    for byte in (1,) if null_keys else range(0, 128, 2):
        key_size = 0 if null_keys else byte // 2
        size = "Hx" if size_width == 2 else "H"  # one byte of size: the other one is that of the attributes
        form = f"<{size}{timestamp}{offset}{1 + key_size}xH"
        # 3: attributes, the key's size, the count of headers.
        overhead = 3 + timestamp_width + offset_width + key_size
        shapes[byte] = (Struct(form).unpack_from, overhead + size_width)
    return shapes


def _unpack_nothing(data: bytes | memoryview, pos: int) -> tuple[int, ...]:
    return (0, 0, 0, 0)


@cache
def _sizes() -> list[int]:
    """From two bytes, read as a little-endian number, to the bytes that follow from them.

    They begin with the varint of a size: of its bytes and those that it announces this is the sum. Where the varint
    has only one byte the other may be any. A negative size announces nothing, as for a null value.
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
