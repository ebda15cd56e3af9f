"""Record batches, format 2: the header, 61 bytes that are read and patched in place, and the records after it.

    base_offset int64 | batch_length int32 | partition_leader_epoch int32 | magic int8 | crc uint32 |
    attributes int16 | last_offset_delta int32 | base_timestamp int64 | max_timestamp int64 |
    producer_id int64 | producer_epoch int16 | base_sequence int32 | records_count int32 | records

`batch_length` counts the bytes after it. The CRC-32C covers the attributes and everything after them. Base
offset and leader epoch aren't covered, so that the broker can assign both without reading the records.
Source: org.apache.kafka.common.record.DefaultRecordBatch, KIP-98.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from struct import Struct
from typing import NamedTuple

from protocol.records import compression
from protocol.wire.primitives import (
    SHORT_VARINTS,
    Bytes,
    VarintTooLongError,
    encode_varint,
    read_varint,
    read_varlong,
    to_int64,
)

WritableBytes = bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
BATCH_OVERHEAD = HEADER.size
LOG_OVERHEAD = 12
"""The bytes of base offset and batch length, which `batch_length` doesn't count."""
HEADER_SIZE_UP_TO_MAGIC = 17
MIN_BATCH_LENGTH = 14
"""The smallest `batch_length` in any format: the overhead of a record of format 0."""

BASE_OFFSET_POS = 0
BATCH_LENGTH_POS = 8
PARTITION_LEADER_EPOCH_POS = 12
MAGIC_POS = 16
CRC_POS = 17
ATTRIBUTES_POS = 21
ATTRIBUTES_LOW_BYTE_POS = 22
LAST_OFFSET_DELTA_POS = 23
MAX_TIMESTAMP_POS = 35
PRODUCER_ID_POS = 43
PRODUCER_EPOCH_POS = 51

MAGIC = 2

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
KNOWN_ATTRIBUTES_MASK = 0x7F

CREATE_TIME = 0
LOG_APPEND_TIME = 1

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
MAX_PRODUCER_EPOCH = 2**15 - 1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_PARTITION_LEADER_EPOCH = -1
MAX_SEQUENCE = 2**31 - 1

_new_tuple = tuple.__new__  # `_make` counts the fields first, as the struct has already done

_INT16 = Struct(">h")
INT32 = Struct(">i")
UINT32 = Struct(">I")
INT64 = Struct(">q")


class CorruptRecordError(Exception):
    """Bytes that aren't a record batch, or a batch that contradicts itself."""


UNREADABLE = (CorruptRecordError, compression.CodecUnavailableError, compression.DecompressionError)
"""The exceptions for a batch whose records can't be read."""


class UnsupportedMagicError(CorruptRecordError):
    """A whole entry of format 0 or 1, which Kafka stopped writing in 4.0 (KIP-724)."""


class BatchHeader(NamedTuple):
    """The fields in their order. None of them is checked."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch, with its header."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The last record's sequence, which wraps around to 0 after 2³¹ − 1; −1 if there is none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> int:
        """A codec's id of `protocol.records.compression`; 5 to 7 are unassigned."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME`, or `LOG_APPEND_TIME`. With the latter `max_timestamp` is the time of every record."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """True if `base_timestamp` is the time from which compaction drops tombstones and markers (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_BIT)


def read_header(data: Bytes, pos: int = 0) -> BatchHeader:
    """Read the header of the batch at `pos`. Raises `struct.error` if there are fewer than 61 bytes."""
    return _new_tuple(BatchHeader, HEADER.unpack_from(data, pos))


def walk_batches(data: Bytes, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Iterate over whole batches with their positions. An incomplete tail ends the walk silently, as in a
    Fetch answer.

    It only checks what the walk itself needs, not the CRC or the records. Raises `CorruptRecordError` at a batch
    shorter than its own header or of an unknown format, `UnsupportedMagicError` at one of format 0 or 1.
    """
    end = len(data)
    while end - pos >= LOG_OVERHEAD:
        length: int = INT32.unpack_from(data, pos + BATCH_LENGTH_POS)[0]
        if length < MIN_BATCH_LENGTH:
            raise CorruptRecordError(f"batch length {length} at position {pos}")
        if end - pos < HEADER_SIZE_UP_TO_MAGIC:
            return
        magic = data[pos + MAGIC_POS]
        if magic > MAGIC:
            raise CorruptRecordError(f"magic {magic} at position {pos}")
        size = length + LOG_OVERHEAD
        if end - pos < size:
            return
        if magic < MAGIC:
            raise UnsupportedMagicError(f"magic {magic} at position {pos}")
        if size < BATCH_OVERHEAD:
            raise CorruptRecordError(f"batch of {size} bytes at position {pos}")
        yield pos, read_header(data, pos)
        pos += size


def compute_crc(data: Bytes, pos: int, size: int) -> int:
    """The correct CRC-32C for the batch of `size` bytes at `pos`."""
    return crc32c(memoryview(data)[pos + ATTRIBUTES_POS : pos + size])


def crc_is_valid(data: Bytes, pos: int, size: int) -> bool:
    stored: int = UINT32.unpack_from(data, pos + CRC_POS)[0]
    # the same as `compute_crc`, inlined because each produced batch passes here
    return crc32c(memoryview(data)[pos + ATTRIBUTES_POS : pos + size]) == stored


def patch_offset_and_epoch(data: WritableBytes, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Write the two fields outside the CRC, in place."""
    INT64.pack_into(data, pos, base_offset)
    INT32.pack_into(data, pos + PARTITION_LEADER_EPOCH_POS, leader_epoch)


def patch_max_timestamp(
    data: WritableBytes, pos: int, size: int, timestamp_type: int, max_timestamp_ms: int
) -> bool:
    """Set the timestamps' type and the largest of them in place, and the CRC if either has changed.

    Returns True if anything was written. Writing clears the attribute bits 7 to 15, as Kafka does. A batch
    that was right already keeps them.
    """
    attributes: int = _INT16.unpack_from(data, pos + ATTRIBUTES_POS)[0]
    old_max_timestamp_ms: int = INT64.unpack_from(data, pos + MAX_TIMESTAMP_POS)[0]
    old_type = LOG_APPEND_TIME if attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME
    if old_type == timestamp_type and old_max_timestamp_ms == max_timestamp_ms:
        return False
    attributes &= KNOWN_ATTRIBUTES_MASK & ~TIMESTAMP_TYPE_BIT
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    _INT16.pack_into(data, pos + ATTRIBUTES_POS, attributes)
    INT64.pack_into(data, pos + MAX_TIMESTAMP_POS, max_timestamp_ms)
    patch_crc(data, pos, size)
    return True


def patch_crc(data: WritableBytes, pos: int, size: int) -> None:
    """Write the correct CRC of the batch of `size` bytes at `pos`."""
    UINT32.pack_into(data, pos + CRC_POS, compute_crc(data, pos, size))


def increment_sequence(sequence: int, increment: int) -> int:
    """Move `increment` steps on; 0 follows 2³¹ − 1."""
    if sequence > MAX_SEQUENCE - increment:
        return increment - (MAX_SEQUENCE - sequence) - 1
    return sequence + increment


def decrement_sequence(sequence: int, decrement: int) -> int:
    """Move `decrement` steps back; 2³¹ − 1 precedes 0."""
    if sequence < decrement:
        return MAX_SEQUENCE - (decrement - sequence) + 1
    return sequence - decrement


# ---- its checksum, which producer snapshots use, too

Crc32c = Callable[[bytes | bytearray | memoryview], int]


def _load() -> Crc32c:
    """Load CRC-32C. The package `crc32c` looks up its own version on import, which costs a tenth of a
    broker's start.

    So this only loads its extension module, or the package if the module isn't where it is expected.
    """
    package = find_spec("crc32c")
    if package is not None and package.submodule_search_locations is not None:
        spec = PathFinder.find_spec("_crc32c", list(package.submodule_search_locations))
        if spec is not None and spec.loader is not None:
            extension = module_from_spec(spec)
            spec.loader.exec_module(extension)
            found: Crc32c = extension.crc32c
            return found
    from crc32c import crc32c

    return crc32c


crc32c = _load()


# --- The records inside a batch, one object each: for markers, internal topics, compaction and tests ----------
#
# Produce and Fetch never use this part. Source: org.apache.kafka.common.record.DefaultRecord, MemoryRecordsBuilder.

Headers = Sequence[tuple[bytes, bytes | None]]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]
"""Timestamp in ms, key, value, headers."""

ABORT = 0
COMMIT = 1

_UNCOVERED = Struct(">qiibI")
"""The header up to and including the CRC."""
_COVERED = Struct(">hiqqqhii")
"""The header from the attributes on, which the CRC covers."""

_NULL = encode_varint(-1)
"""The size of a null key or value."""

_CONTROL_KEY = Struct(">hh")
_END_TXN_VALUE = Struct(">hi")


class Record(NamedTuple):
    """A record as a consumer sees it. `timestamp` is the batch's append time if the topic uses that."""

    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def read_records(batch: Bytes) -> list[Record]:
    """Return the records of the batch at the start of `batch`, decompressed if needed. Bytes after it are ignored.

    It doesn't check the CRC. Raises `CorruptRecordError` if the records don't parse, aren't as many as the
    header says, or leave bytes over; `UnsupportedMagicError` for formats 0 and 1;
    `compression.DecompressionError` and `compression.CodecUnavailableError`.
    """
    return parse_records(*read_payload(batch))


def read_payload(batch: Bytes) -> tuple[BatchHeader, bytes]:
    """Return the header of the batch at the start of `batch`, and its records as bytes, decompressed if needed.

    Raises as `read_records` does, except for mistakes in records.
    """
    if len(batch) < BATCH_OVERHEAD:
        raise CorruptRecordError(f"{len(batch)} bytes are no batch")
    header = read_header(batch)
    if header.magic != MAGIC:
        raise UnsupportedMagicError(f"magic {header.magic}")
    if not BATCH_OVERHEAD <= header.size_bytes <= len(batch):
        raise CorruptRecordError(f"a batch of {header.size_bytes} bytes in {len(batch)}")
    payload = memoryview(batch)[BATCH_OVERHEAD : header.size_bytes]
    if header.compression != compression.NONE:
        return header, bytes(compression.decompress(header.compression, payload))
    return header, bytes(payload)


def parse_records(header: BatchHeader, payload: bytes) -> list[Record]:
    """Parse the records of `payload`, which is uncompressed and contains nothing else. Raises `CorruptRecordError`."""
    if header.records_count == 0:
        return []
    if header.records_count < 0:
        raise CorruptRecordError(f"a count of {header.records_count} records")
    records = []
    pos = 0
    try:
        for _ in range(header.records_count):
            record, pos = _parse_record(header, payload, pos)
            records.append(record)
    except (IndexError, VarintTooLongError) as error:
        raise CorruptRecordError(f"record {len(records)} doesn't parse: {error}") from error
    if pos != len(payload):
        raise CorruptRecordError(f"{len(payload) - pos} bytes after the last record")
    return records


def parse_from(header: BatchHeader, payload: bytes, offset: int) -> Iterator[Record]:
    """Iterate over the records of `payload` from the offset on. A caller that stops early only pays for a few.

    If no offset is missing, the records before it are skipped without parsing them. Raises as `parse_records`
    does, once it comes to the mistake.
    """
    passed, pos = 0, 0
    try:
        if header.last_offset - header.base_offset + 1 == header.records_count:
            while passed < header.records_count and header.base_offset + passed < offset:
                size, pos = read_varint(payload, pos)
                if size < 0:
                    raise CorruptRecordError(f"a record of {size} bytes")
                pos += size
                passed += 1
        while passed < header.records_count:
            record, pos = _parse_record(header, payload, pos)
            passed += 1
            if record.offset >= offset:
                yield record
    except (IndexError, VarintTooLongError) as error:
        raise CorruptRecordError(f"record {passed} doesn't parse: {error}") from error
    if pos != len(payload):
        raise CorruptRecordError(f"{len(payload) - pos} bytes after the last record")


def parse_stretch(header: BatchHeader, payload: bytes, pos: int, count: int) -> Iterator[Record]:
    """Iterate over `count` records from `pos` on, of a payload whose shape has been proven."""
    for _ in range(count):
        record, pos = _parse_record(header, payload, pos)
        yield record


def _parse_record(header: BatchHeader, data: bytes, pos: int) -> tuple[Record, int]:
    size, pos = read_varint(data, pos)
    end = pos + size
    if size < 0 or end > len(data):
        raise CorruptRecordError(f"a record of {size} bytes, {len(data) - pos} are left")
    timestamp_delta, pos = read_varlong(data, pos + 1)  # the skipped byte: a record's attributes, unused
    offset_delta, pos = read_varint(data, pos)
    key, pos = _parse_bytes(data, pos, end)
    value, pos = _parse_bytes(data, pos, end)
    count, pos = read_varint(data, pos)
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    if count:
        headers, pos = _parse_headers(data, pos, end, count)
    if pos != end:
        raise CorruptRecordError(f"a record that ends {end - pos} bytes before its length says")
    if header.attributes & TIMESTAMP_TYPE_BIT:
        timestamp = header.max_timestamp
    else:
        timestamp = to_int64(header.base_timestamp + timestamp_delta)
    sequence = NO_SEQUENCE
    if header.base_sequence >= 0:
        sequence = increment_sequence(header.base_sequence, offset_delta)
    return Record(header.base_offset + offset_delta, timestamp, sequence, key, value, headers), end


def _parse_bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    size, pos = read_varint(data, pos)
    if size < 0:
        return None, pos
    if size > end - pos:
        raise CorruptRecordError(f"{size} bytes in a record that has {end - pos} left")
    return data[pos : pos + size], pos + size


def _parse_headers(
    data: bytes, pos: int, end: int, count: int
) -> tuple[tuple[tuple[bytes, bytes | None], ...], int]:
    if not 0 <= count <= end - pos:
        raise CorruptRecordError(f"a count of {count} headers")
    headers = []
    for _ in range(count):
        key, pos = _parse_bytes(data, pos, end)
        if key is None:
            raise CorruptRecordError("a null header key")
        value, pos = _parse_bytes(data, pos, end)
        headers.append((key, value))
    return tuple(headers), pos


def append_record(
    out: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> None:
    """Append one record in format 2, its length first."""
    key_size = -1 if key is None else len(key)
    value_size = -1 if value is None else len(value)
    body = b"".join(
        (
            # a record's attributes, none of which are defined; then usually two zeros
            b"\0\0\0"
            if timestamp_delta == 0 == offset_delta
            else b"\0" + encode_varint(timestamp_delta) + encode_varint(offset_delta),
            SHORT_VARINTS[key_size] if 0 <= key_size < 256 else encode_varint(key_size),
            key or b"",
            SHORT_VARINTS[value_size] if 0 <= value_size < 256 else encode_varint(value_size),
            value or b"",
            _headers(headers) if headers else b"\0",
        )
    )
    size = len(body)
    out += SHORT_VARINTS[size] if size < 256 else encode_varint(size)
    out += body


def _headers(headers: Headers) -> bytes:
    chunks = [encode_varint(len(headers))]
    for key, value in headers:
        chunks += encode_varint(len(key)), key
        chunks += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(chunks)


def build_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    codec: int = compression.NONE,
    level: int | None = None,
    log_append_time: int | None = None,
) -> bytearray:
    """Build a batch of at least one record at consecutive offsets.

    With `log_append_time` (ms) the batch's timestamps are of that type, and that time is its largest; the
    records keep their own deltas. Raises `compression.CodecUnavailableError`.
    """
    attributes = codec
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    base_timestamp = records[0][0]
    max_timestamp = NO_TIMESTAMP
    offset_delta = 0
    payload = bytearray()
    for timestamp, key, value, headers in records:
        append_record(payload, timestamp - base_timestamp, offset_delta, key, value, headers)
        offset_delta += 1
        if timestamp > max_timestamp:
            max_timestamp = timestamp
    if log_append_time is not None:
        attributes |= TIMESTAMP_TYPE_BIT
        max_timestamp = log_append_time
    if codec != compression.NONE:
        payload = bytearray(compression.compress(codec, payload, level))
    covered = _COVERED.pack(
        attributes,
        offset_delta - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        offset_delta,
    )
    return _seal(base_offset, leader_epoch, covered + payload)


class RecordsOfOneTime(list[tuple[bytes, bytes | None]]):
    """Keys and values that are encoded for their batch when they are added.

    Some thousands of them take many turns of the loop. `build_batch_of_one_time` then only has to seal them.
    """

    __slots__ = ("payload",)

    def __init__(self) -> None:
        super().__init__()
        self.payload = bytearray()

    def add(self, key: bytes, value: bytes | None) -> None:
        _append_plain(self.payload, len(self), key, value)
        self.append((key, value))


def _append_plain(out: bytearray, offset_delta: int, key: bytes, value: bytes | None) -> None:
    """The same as `append_record` for a record with the batch's time and no headers, in half the time."""
    delta = SHORT_VARINTS[offset_delta] if offset_delta < 256 else encode_varint(offset_delta)
    key_size = SHORT_VARINTS[len(key)] if len(key) < 256 else encode_varint(len(key))
    if value is None:
        body = b"".join((b"\0\0", delta, key_size, key, _NULL, b"\0"))
    else:
        value_size = SHORT_VARINTS[len(value)] if len(value) < 256 else encode_varint(len(value))
        body = b"".join((b"\0\0", delta, key_size, key, value_size, value, b"\0"))
    size = len(body)
    out += SHORT_VARINTS[size] if size < 256 else encode_varint(size)
    out += body


def build_batch_of_one_time(
    timestamp: int,
    records: Sequence[tuple[bytes, bytes | None]],
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> bytearray:
    """Build a batch as coordinators write it: keys and values, all with the same time in ms.

    With a producer id it is part of that producer's transaction. The result is the same as that of
    `build_batch`, in half the time if there are few records.
    """
    if isinstance(records, RecordsOfOneTime):
        payload, count = records.payload, len(records)
    else:
        payload = bytearray()
        count = 0
        for key, value in records:
            _append_plain(payload, count, key, value)
            count += 1
    return seal_of_one_time(timestamp, payload, count, producer_id, producer_epoch)


def seal_of_one_time(
    timestamp: int,
    payload: Bytes,
    count: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> bytearray:
    """Build the batch of `count` records that were already appended one after the other, and all have its time.

    With a producer id it is part of that producer's transaction.
    """
    covered = _COVERED.pack(
        0 if producer_id == NO_PRODUCER_ID else TRANSACTIONAL_BIT,
        count - 1,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        count,
    )
    return _seal(0, NO_PARTITION_LEADER_EPOCH, covered + payload)


def build_end_txn_marker(
    control_type: int,
    *,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Build the 78 bytes that end a transaction in a partition. `control_type` is `ABORT` or `COMMIT`.

    Source: org.apache.kafka.common.record.EndTransactionMarker.
    """
    covered = _COVERED.pack(
        TRANSACTIONAL_BIT | CONTROL_BIT, 0, timestamp, timestamp, producer_id, producer_epoch, NO_SEQUENCE, 1
    )
    return _seal(base_offset, leader_epoch, covered + _marker_record(control_type, coordinator_epoch))


@lru_cache
def _marker_record(control_type: int, coordinator_epoch: int) -> bytes:
    record = bytearray()
    key, value = _CONTROL_KEY.pack(0, control_type), _END_TXN_VALUE.pack(0, coordinator_epoch)
    append_record(record, 0, 0, key, value, ())
    return bytes(record)


def read_control_type(key: bytes | None) -> int:
    """A control record's type, whatever its version. Raises `CorruptRecordError` if the key is too short."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptRecordError(f"control record key {key!r}")
    control_type: int = _CONTROL_KEY.unpack_from(key)[1]
    return control_type


def read_coordinator_epoch(value: bytes | None) -> int:
    """The coordinator epoch in a marker's value. Raises `CorruptRecordError` if that is too short."""
    if value is None or len(value) < _END_TXN_VALUE.size:
        raise CorruptRecordError(f"end transaction marker {value!r}")
    coordinator_epoch: int = _END_TXN_VALUE.unpack_from(value)[1]
    return coordinator_epoch


class EndTransactionMarker(NamedTuple):
    """The record inside a transaction marker, with its time, and the writer's transaction version.

    Key `int16 version | int16 type` (0 abort, 1 commit), value `int16 version | int32 coordinator epoch`. Later
    versions only add fields to these. Source: org.apache.kafka.common.record EndTransactionMarker, ControlRecordType.
    """

    commit: bool
    coordinator_epoch: int
    timestamp_ms: int
    transaction_version: int = 0
    """The version in the WriteTxnMarkers request, which decides how the epoch is checked. No record has it."""


def read_marker(batch: Bytes) -> EndTransactionMarker | None:
    """The marker in a control batch; None for another kind of control record, or no record at all.

    Compaction may have emptied the batch. Raises `CorruptRecordError`.
    """
    for record in read_records(batch):
        control_type = read_control_type(record.key)
        if control_type in (ABORT, COMMIT):
            return EndTransactionMarker(
                control_type == COMMIT, read_coordinator_epoch(record.value), record.timestamp
            )
        return None
    return None


def seal_batch(header: BatchHeader, payload: Bytes, level: int | None) -> bytearray:
    """Put `header` before `payload`, compressed with the header's codec. Sets length and CRC."""
    codec = header.attributes & compression.CODEC_MASK
    if codec != compression.NONE:
        payload = compression.compress(codec, payload, level)
    covered = _COVERED.pack(*header[5:])  # from its attributes on
    return _seal(header.base_offset, header.partition_leader_epoch, covered + payload)


def _seal(base_offset: int, leader_epoch: int, covered: bytes) -> bytearray:
    """Build the batch around the bytes that its CRC covers: the header from the attributes on, and the payload."""
    length = ATTRIBUTES_POS - LOG_OVERHEAD + len(covered)
    batch = bytearray(_UNCOVERED.pack(base_offset, length, leader_epoch, MAGIC, crc32c(covered)))
    batch += covered
    return batch
