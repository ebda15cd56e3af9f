"""A walk over the uncompressed records of a batch that proves their shape and makes no object per record.

Every record that a producer sends uncompressed passes through here, so that speed counts: one after the other, in a
loop with the varints of one and two bytes written out (about 0.45 µs each), and whole stretches at once where the
records that follow look like the last one (`protocol.records.runs`).

What is proven: each record's size lies within the batch, its fields fit it exactly, header keys aren't null, there
are as many records as said, and no bytes are left over. A negative size of a key or a value means null, as in Kafka.
Source: org.apache.kafka.common.record.DefaultRecord and DefaultRecordBatch.
"""

from collections.abc import Iterator
from typing import NamedTuple

from protocol.records.batch import CorruptRecordError
from protocol.records.effort import ANY, Effort, TooMuchEffortError
from protocol.records.runs import follow_shape, layout_of, measure_run
from protocol.wire.varint import VarintTooLongError, read_varint, read_varlong

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
