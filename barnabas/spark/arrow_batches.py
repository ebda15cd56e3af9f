"""Kafka record batches (magic 2) from Arrow columns, without a Python object per record, and each key's partition.

Lengths and varints are computed as columns; then Arrow joins prefix, key, value and headers of each row into one
buffer, whose slices are the batches' payloads. The bytes are those that kafka-python's builder makes. A key goes to the
partition that Java's default partitioner chooses, `toPositive(murmur2(key)) % partitions`: Austin Appleby's MurmurHash2
with the seed of `org.apache.kafka.common.utils.Utils.murmur2`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from barnabas.spark.batch_format import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER,
    LENGTH_END,
    MAGIC,
    PRODUCER_AT,
    TRANSACTIONAL,
)
from barnabas.spark.errors import RowError

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
SHIFT = 24
MASK = 0xFFFFFFFF

# The columns are hashed word by word, all rows together. A longer key would hold up all others.
LONGEST_TOGETHER = 256

Uint32s = npt.NDArray[np.uint32]


def murmur2(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Uint32s:
    """The hashes of the keys `data[offsets[i]:offsets[i + 1]]`, as unsigned numbers; shape (len(offsets) - 1,)."""
    starts = offsets[:-1].astype(np.int64)
    lengths = offsets[1:] - starts
    hashes = np.uint32(SEED) ^ lengths.astype(np.uint32)
    multiplier = np.uint32(MULTIPLIER)
    long = lengths > LONGEST_TOGETHER
    words = np.where(long, 0, lengths // 4)
    # Read whole words anywhere in the buffer. Up to three bytes of the last one may lie past its end.
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    all_words: Uint32s = np.ndarray((len(data) + 1,), np.dtype("<u4"), padded.data, strides=(1,))
    most = int(words.max(initial=0))
    fewest = int(words.min(initial=0)) if not long.any() else 0
    for number in range(most):
        rows = slice(None) if number < fewest else np.flatnonzero(words > number)
        word = all_words[starts[rows] + 4 * number] * multiplier
        word ^= word >> np.uint32(SHIFT)
        word *= multiplier
        hashes[rows] = (hashes[rows] * multiplier) ^ word
    rest = np.where(long, 0, lengths & 3)
    if rest.any():
        tail = all_words[starts + 4 * words] & np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)[rest]
        np.copyto(hashes, (hashes ^ tail) * multiplier, where=rest > 0)
    hashes ^= hashes >> np.uint32(13)
    hashes *= multiplier
    hashes ^= hashes >> np.uint32(15)
    for row in np.flatnonzero(long):
        hashes[row] = murmur2_of(data[starts[row] : offsets[row + 1]].tobytes())
    return hashes


def murmur2_of(key: bytes) -> int:
    """The hash of one key, as an unsigned number."""
    value = SEED ^ len(key)
    whole = len(key) & ~3
    for place in range(0, whole, 4):
        word = int.from_bytes(key[place : place + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> SHIFT) * MULTIPLIER & MASK
        value = (value * MULTIPLIER & MASK) ^ word
    if whole < len(key):
        value = (value ^ int.from_bytes(key[whole:], "little")) * MULTIPLIER & MASK
    value = (value ^ value >> 13) * MULTIPLIER & MASK
    return value ^ value >> 15


def partitions_of(hashes: Uint32s, counts: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
    """Return the partition of each hash. `counts` is the topic's number of partitions: one for all rows, or one per
    row."""
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % counts


# --- Batches ------------------------------------------------------------------------------------------------

MAX_RECORDS = 1 << 20

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Compress = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Columns:
    """The rows to write. Equal lengths; `key` and `headers` may be missing altogether.

    key, value: binary arrays, with nulls.
    headers: a list array of structs of a string and a binary, with nulls but for the strings.
    """

    key: Any
    value: Any
    headers: Any

    def __len__(self) -> int:
        return len(self.value)

    def take(self, rows: Ints) -> Columns:
        """Return these rows, in this order."""
        wanted = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows.astype(np.int64))])
        return Columns(
            None if self.key is None else self.key.take(wanted),
            self.value.take(wanted),
            None if self.headers is None else self.headers.take(wanted),
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch that lacks only its producer, sequence and checksum (see `stamp`).

    header: everything before the records. body: the records, perhaps compressed; a view of what Arrow joined.
    """

    records: int
    header: bytearray
    body: memoryview | bytes

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return len(self.header) + len(self.body)

    @property
    def pieces(self) -> tuple[bytearray, memoryview | bytes]:
        """Its bytes, without a copy."""
        return self.header, self.body

    @property
    def data(self) -> bytes:
        """A copy of its bytes."""
        return b"".join(self.pieces)


def build(
    columns: Columns, timestamp_ms: int, max_bytes: int, codec: int = 0, compress: Compress | None = None
) -> list[Batch]:
    """Transactional batches of these rows, in their order.

    timestamp_ms: the timestamp of every record.
    max_bytes: the most for a batch before compression. A batch of a single record may be larger.
    codec: its number in the attributes. `compress` does it; a batch that it makes no smaller stays uncompressed.
    """
    bounds = np.array([0, len(columns)])
    return [batch for _, batch in build_groups(columns, bounds, timestamp_ms, max_bytes, codec, compress)]


def build_groups(
    columns: Columns,
    bounds: npt.NDArray[np.integer[Any]],
    timestamp_ms: int,
    max_bytes: int,
    codec: int = 0,
    compress: Compress | None = None,
) -> Iterator[tuple[int, Batch]]:
    """Like `build`, for consecutive groups of rows: group i is rows bounds[i] up to bounds[i + 1].

    Yields each batch with its group's number: the first batches of all groups, then the second ones, and
    so on, so that groups can be sent side by side.
    """
    count = len(columns)
    key_lengths = None if columns.key is None else _lengths(columns.key)
    value_lengths = _lengths(columns.value)
    header_counts, headers, header_sizes = _headers(columns.headers, count)

    # The size of a record without its length and its position in the batch.
    sizes = 3 + np.maximum(value_lengths, 0) + _varint_sizes(_zigzag(value_lengths)) + header_sizes
    if key_lengths is not None:
        sizes += np.maximum(key_lengths, 0) + _varint_sizes(_zigzag(key_lengths)) - 1
    starts = _batch_starts(sizes, bounds, max_bytes)

    ends = np.append(starts[1:], count)
    places = np.arange(count) - np.repeat(starts, ends - starts)
    place_varints = _zigzag(places)
    bodies = sizes + _varint_sizes(place_varints)
    front: list[Ints | int] = [_zigzag(bodies), 0, 0, place_varints]
    middle = [_zigzag(value_lengths)]
    if key_lengths is None:
        pieces = [_joined_varints([*front, 1, *middle], count)]
    else:
        pieces = [
            _joined_varints([*front, _zigzag(key_lengths)], count),
            columns.key,
            _joined_varints(middle, count),
        ]
    pieces.append(columns.value)
    if headers is None:
        pieces.append(_NO_HEADERS)
    else:
        pieces += [_joined_varints([_zigzag(header_counts)], count), headers]
    joined = pc.binary_join_element_wise(*pieces, _NOTHING, null_handling="replace", null_replacement=b"")
    offsets, data = _buffers(joined)
    payload = memoryview(data.data)
    del (
        columns,
        pieces,
        joined,
        headers,
    )  # from here on only the payload is needed, until its last batch is taken

    cuts = offsets[np.append(starts, count)].tolist()
    counts = (ends - starts).tolist()
    for one, group in _in_turns(starts, bounds):
        yield group, _sealed(payload[cuts[one] : cuts[one + 1]], counts[one], timestamp_ms, codec, compress)


def _in_turns(starts: Ints, bounds: npt.NDArray[np.integer[Any]]) -> Iterator[tuple[int, int]]:
    """Yield each batch's number and its group: the first batches of all groups, then the second ones, …"""
    firsts = np.searchsorted(starts, bounds)
    sizes = np.diff(firsts)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    rounds = np.arange(len(starts)) - np.repeat(firsts[:-1], sizes)
    order = np.argsort(rounds, kind="stable")
    yield from zip(order.tolist(), groups[order].tolist(), strict=True)


def stamp(batch: Batch, producer_id: int, epoch: int, sequence: int) -> None:
    """Give a batch its producer and first sequence, and compute its checksum."""
    header = batch.header
    struct.pack_into(">qhi", header, PRODUCER_AT, producer_id, epoch, sequence)
    checksum = crc32c(batch.body, crc32c(memoryview(header)[ATTRIBUTES_AT:]))
    struct.pack_into(">I", header, CRC_AT, checksum)


def binary(column: Any) -> Any:
    """Return a string or binary column, chunked or not, large or not, as a binary array. Avoids a copy if it can."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column if column.type == pa.binary() else column.cast(pa.binary())


def spans(column: Any) -> tuple[Ints, Bytes]:
    """A binary array's offsets, shape (n + 1,), and its bytes, which they point into."""
    return _buffers(column)


def _sealed(
    payload: memoryview, count: int, timestamp_ms: int, codec: int, compress: Compress | None
) -> Batch:
    attributes = TRANSACTIONAL
    body: memoryview | bytes = payload
    if compress is not None:
        packed = compress(bytes(payload))
        if len(packed) < len(payload):
            body = packed
            attributes |= codec
    length = HEADER.size + len(body) - LENGTH_END
    fields = (
        0, length, 0, MAGIC, 0, attributes, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count,
    )  # fmt: skip
    return Batch(count, bytearray(HEADER.pack(*fields)), body)


def _batch_starts(sizes: Ints, bounds: npt.NDArray[np.integer[Any]], max_bytes: int) -> Ints:
    """Return the first row of each batch. A batch holds as many rows as fit, at least one, and never rows of two
    groups."""
    # A record's position takes at most four bytes, with as many records as a batch may hold, and its length five.
    ends = np.cumsum(sizes + 4 + 5)
    room = max_bytes - HEADER.size
    starts = []
    for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        row = first
        while row < end:
            starts.append(row)
            before = ends[row - 1] if row else 0
            fitting = int(np.searchsorted(ends, before + room, side="right"))
            row = min(max(fitting, row + 1), end, row + MAX_RECORDS)
    return np.array(starts, np.int64)


def _headers(column: Any, count: int) -> tuple[Ints, Any, Ints | int]:
    """
    both together, including the count itself.
    """
    if column is None:
        return np.zeros(0, np.int64), None, 1
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = column.flatten()
    keys = binary(pc.struct_field(flat, 0))
    values = binary(pc.struct_field(flat, 1))
    if keys.null_count:
        raise RowError("a header has no key; Kafka takes headers without a value, but none without a key")
    joined = pc.binary_join_element_wise(
        _joined_varints([_zigzag(_lengths(keys))], len(keys)),
        keys,
        _joined_varints([_zigzag(_lengths(values))], len(keys)),
        values,
        _NOTHING,
        null_handling="replace",
        null_replacement=b"",
    )
    offsets, data = _buffers(joined)
    rows = offsets[np.concatenate([[0], np.cumsum(counts)])]
    per_row = _binary_array(rows, data)
    return counts, per_row, np.diff(rows) + _varint_sizes(_zigzag(counts))


def from_bytes(values: Sequence[bytes | None]) -> Any:
    """Return a binary array of these. `pa.array` would import pandas for input that isn't numpy's, which
    would be a third of a worker's start-up time and of its memory.
    """
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(one or b"") for one in values], out=offsets[1:])
    data = np.frombuffer(b"".join(one or b"" for one in values), np.uint8)
    is_there = np.packbits(np.array([one is not None for one in values], np.bool_), bitorder="little")
    return _binary_array(offsets, data, is_there)


def _lengths(column: Any) -> Ints:
    """Return each row's number of bytes, -1 for null."""
    offsets, _ = _buffers(column)
    lengths = np.diff(offsets)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return lengths


def _buffers(column: Any) -> tuple[Ints, Bytes]:
    _, offsets, data = column.buffers()
    width = (
        np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
        if offsets
        else np.zeros(1, np.int32)
    )
    return width.astype(np.int64), np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)


def _binary_array(offsets: Ints, data: Bytes, is_there: Bytes | None = None) -> Any:
    """`is_there` has a bit for each row, in Arrow's order."""
    valid = None if is_there is None else pa.py_buffer(is_there)
    buffers = [valid, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _zigzag(values: Ints) -> Ints:
    return (values << 1) ^ (values >> 63)


def _varint_sizes(zigzags: Ints) -> Ints:
    sizes = np.ones(len(zigzags), np.int64)
    most = int(zigzags.max(initial=0))
    bits = 7
    while most >> bits:
        sizes += zigzags >= 1 << bits
        bits += 7
    return sizes


def _joined_varints(columns: Sequence[Ints | int], count: int) -> Any:
    """Return a binary array of each row's varints, concatenated. A number stands for a column of that one byte."""
    cells: list[Bytes] = []
    used: list[npt.NDArray[np.bool_] | None] = []  # None if every row has the byte
    for column in columns:
        if isinstance(column, int):
            cells.append(np.full(count, column, np.uint8))
            used.append(None)
            continue
        most = int(column.max(initial=0))
        bits = 0
        while True:
            more = most >> bits + 7 > 0
            septets = (column >> bits) & 0x7F
            if more:
                septets |= (column >= 1 << bits + 7) * 0x80
            cells.append(septets.astype(np.uint8))
            used.append(column >= 1 << bits if bits else None)
            if not more:
                break
            bits += 7
    table = np.stack(cells, axis=1)
    sometimes = [one for one in used if one is not None]
    if not sometimes:
        return _binary_array(np.arange(count + 1) * len(cells), table.reshape(-1))
    widths = np.full(count, len(cells) - len(sometimes), np.int64)
    for one in sometimes:
        widths += one
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(widths, out=offsets[1:])
    mask = np.ones(table.shape, np.bool_)
    for place, here in enumerate(used):
        if here is not None:
            mask[:, place] = here
    return _binary_array(offsets, table[mask])


_NO_HEADERS, _NOTHING = from_bytes([b"\0", b""])
