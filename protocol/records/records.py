"""The records inside a batch, one object each: for markers, internal topics, compaction and tests.

Produce and Fetch never come here. Source: org.apache.kafka.common.record.DefaultRecord, MemoryRecordsBuilder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from protocol.records import compression
from protocol.records.batch import (
    ATTRIBUTES_POS,
    BATCH_OVERHEAD,
    CONTROL_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptRecordError,
    UnsupportedMagicError,
    crc32c,
    increment_sequence,
    read_header,
)
from protocol.wire.primitives import (
    SHORT_VARINTS,
    Bytes,
    VarintTooLongError,
    encode_varint,
    read_varint,
    read_varlong,
    to_int64,
)

Headers = Sequence[tuple[bytes, bytes | None]]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]
"""Timestamp in ms, key, value, headers."""

ABORT = 0
COMMIT = 1

_UNCOVERED = Struct(">qiibI")
"""The header up to the CRC, and with it."""
_COVERED = Struct(">hiqqqhii")
"""The header from the attributes on, all of which the CRC covers."""

_NULL = encode_varint(-1)
"""The size of a key or a value that is null."""

_CONTROL_KEY = Struct(">hh")
_END_TXN_VALUE = Struct(">hi")


class Record(NamedTuple):
    """A record as a consumer sees it; `timestamp` is the batch's append time where the topic keeps that one."""

    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def read_records(batch: Bytes) -> list[Record]:
    """The records of the batch at the start of `batch`, decompressed where needed; what follows it is not looked at.

    The CRC is not checked. Raises `CorruptRecordError` where the records don't parse, aren't as many as the header
    says or leave bytes over; `UnsupportedMagicError` for formats 0 and 1;
    `compression.DecompressionError` and `compression.CodecUnavailableError`.
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
        return parse_records(header, bytes(compression.decompress(header.compression, payload)))
    return parse_records(header, bytes(payload))


def parse_records(header: BatchHeader, payload: bytes) -> list[Record]:
    """The records of `payload`, which is uncompressed and holds nothing else. Raises `CorruptRecordError`."""
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
        raise CorruptRecordError(f"{len(payload) - pos} bytes behind the last record")
    return records


def parse_stretch(header: BatchHeader, payload: bytes, pos: int, count: int) -> Iterator[Record]:
    """So many records from `pos` on, one after the other, of a payload whose shape is proven."""
    for _ in range(count):
        record, pos = _parse_record(header, payload, pos)
        yield record


def _parse_record(header: BatchHeader, data: bytes, pos: int) -> tuple[Record, int]:
    size, pos = read_varint(data, pos)
    end = pos + size
    if size < 0 or end > len(data):
        raise CorruptRecordError(f"a record of {size} bytes, {len(data) - pos} are left")
    timestamp_delta, pos = read_varlong(data, pos + 1)  # the byte passed over: a record's attributes, unused
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
    """Appends one record in the form of format 2, its length first."""
    key_size = -1 if key is None else len(key)
    value_size = -1 if value is None else len(value)
    body = b"".join(
        (
            # a record's attributes, of which none are defined; then most often two zeros
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
    """A batch of at least one record at consecutive offsets.

    With `log_append_time` (ms) the batch's timestamps are of that type, and it is its largest; the records keep the
    deltas of their own. Raises `compression.CodecUnavailableError`.
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
    """Keys and values that are made ready for their batch as they are added: some thousands take many turns of the loop
    to become a batch, which `build_batch_of_one_time` then only has to seal."""

    __slots__ = ("payload",)

    def __init__(self) -> None:
        super().__init__()
        self.payload = bytearray()

    def add(self, key: bytes, value: bytes | None) -> None:
        _append_plain(self.payload, len(self), key, value)
        self.append((key, value))


def _append_plain(out: bytearray, offset_delta: int, key: bytes, value: bytes | None) -> None:
    """`append_record` of one that has the batch's time and no headers, in half the time."""
    delta = SHORT_VARINTS[offset_delta] if offset_delta < 256 else encode_varint(offset_delta)
    key_size = SHORT_VARINTS[len(key)] if len(key) < 256 else encode_varint(len(key))
    if value is None:
        body = b"".join((b"\0\0", delta, key_size, key, _NULL, b"\0"))
    else:
        body = b"".join((b"\0\0", delta, key_size, key, encode_varint(len(value)), value, b"\0"))
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
    """A batch as coordinators write theirs: keys and values, all of the same time in ms; with a producer id it is part
    of that one's transaction.

    What `build_batch` makes of the same, in half the time where there are few records.
    """
    if isinstance(records, RecordsOfOneTime):
        payload, count = records.payload, len(records)
    else:
        payload = bytearray()
        count = 0
        for key, value in records:
            _append_plain(payload, count, key, value)
            count += 1
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


def build_control_batch(
    key: bytes,
    value: bytes,
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    transactional: bool = False,
) -> bytearray:
    """A batch of a single control record, as for the messages of the quorum in the metadata log."""
    return build_batch(
        [(timestamp, key, value, ())],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
        control=True,
    )


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
    """The 78 bytes that end a transaction in a partition, `control_type` being `ABORT` or `COMMIT`.

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
    """A control record's type, whatever its version. Raises `CorruptRecordError` where the key is too short."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptRecordError(f"control record key {key!r}")
    control_type: int = _CONTROL_KEY.unpack_from(key)[1]
    return control_type


def read_coordinator_epoch(value: bytes | None) -> int:
    """The coordinator epoch in a marker's value. Raises `CorruptRecordError` where that is too short."""
    if value is None or len(value) < _END_TXN_VALUE.size:
        raise CorruptRecordError(f"end transaction marker {value!r}")
    coordinator_epoch: int = _END_TXN_VALUE.unpack_from(value)[1]
    return coordinator_epoch


class EndTransactionMarker(NamedTuple):
    """The record inside a transaction marker, and what its writer said besides.

    Key `int16 version | int16 type` (0 abort, 1 commit), value `int16 version | int32 coordinator epoch`; later
    versions only add to them. Source: org.apache.kafka.common.record EndTransactionMarker, ControlRecordType.
    """

    commit: bool
    coordinator_epoch: int
    timestamp_ms: int
    transaction_version: int = 0
    """That of the WriteTxnMarkers request, by which its epoch is checked; no record says it."""


def read_marker(batch: Bytes) -> EndTransactionMarker | None:
    """The marker that a control batch holds; None for another kind of control record, or no record at all.

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
    """`header` before `payload`, which is compressed with the header's codec; length and CRC are set here."""
    codec = header.attributes & compression.CODEC_MASK
    if codec != compression.NONE:
        payload = compression.compress(codec, payload, level)
    covered = _COVERED.pack(*header[5:])  # from its attributes on
    return _seal(header.base_offset, header.partition_leader_epoch, covered + payload)


def _seal(base_offset: int, leader_epoch: int, covered: bytes) -> bytearray:
    """The batch around what its CRC covers: the header from the attributes on, and the payload."""
    length = ATTRIBUTES_POS - LOG_OVERHEAD + len(covered)
    batch = bytearray(_UNCOVERED.pack(base_offset, length, leader_epoch, MAGIC, crc32c(covered)))
    batch += covered
    return batch
