"""The broker's checks of a batch that a producer sends, and how it is stored.

This is Kafka's `LogValidator`, with the preceding checks of `ProduceRequest.validateRecords` and
`UnifiedLog.analyzeAndValidateRecords`.

A batch is checked in place, and stored as it came, except for its largest timestamp and the type of its timestamps.
It is only rebuilt if the topic asks for another codec. The log assigns base offset and leader epoch.

Compressed batches are decompressed to check their records. If the codec's library isn't installed, only the
header is checked, and they are stored in their own codec. Some checks are stricter than Kafka's: the sizes of
records in compressed batches must be right (Kafka ignores them, and its consumers then fail); a batch may
decompress to at most `compression.MAX_DECOMPRESSED_BYTES` (MESSAGE_TOO_LARGE, so that producers split it);
and null records, which Kafka never answers, are INVALID_RECORD.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from protocol.errors import Error, KafkaError
from protocol.records import compression
from protocol.records.batch import (
    ATTRIBUTES_LOW_BYTE_POS,
    ATTRIBUTES_POS,
    BASE_OFFSET_POS,
    BATCH_LENGTH_POS,
    BATCH_OVERHEAD,
    CONTROL_BIT,
    CRC_POS,
    CREATE_TIME,
    HEADER,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POS,
    MIN_BATCH_LENGTH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PRODUCER_EPOCH_POS,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    UINT32,
    BatchHeader,
    CorruptRecordError,
    Record,
    WritableBytes,
    build_batch,
    crc32c,
    parse_records,
    parse_stretch,
    patch_max_timestamp,
    read_header,
    seal_batch,
)
from protocol.records.stretches import follow_shape, layout_of, measure_run
from protocol.records.validation_budget import ANY, Effort, TooMuchEffortError, Unpacked
from protocol.wire.primitives import VarintTooLongError, read_varint, read_varlong, to_int64

_INT64 = Struct(">q")
_INT32 = Struct(">i")
_INT32_MAX = 2**31 - 1
_new_tuple = tuple.__new__  # each batch makes one: a call of the class is twice as slow
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

TARGET_CODECS = {
    "uncompressed": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}
"""The values of `compression.type`, except "producer", which keeps each batch's own codec."""


@dataclass(frozen=True, slots=True)
class RecordRules:
    """A topic's settings for batches, with Kafka 4.4's defaults."""

    max_message_bytes: int = 1_048_588
    max_decompressed_message_bytes: int = _INT32_MAX
    """The limit for one record of a compressed batch: for its body, without its length."""
    message_timestamp_type: str = "CreateTime"
    before_max_ms: int = _INT64_MAX
    after_max_ms: int = 3_600_000
    compacted: bool = False
    compression_type: str = "producer"
    compression_level: int | None = None
    """For the codec in `compression_type`; None for its default."""


class CheckedBatch(NamedTuple):
    """A batch ready to be stored, and its header."""

    batch: bytearray | memoryview
    header: BatchHeader


class RequestFailedError(Exception):
    """Bytes on which Kafka fails as a whole: every partition of the request gets this error."""

    def __init__(self, error: Error, message: str | None = None) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message


# ---- the form of the bytes, before the topic matters


def check_shape(records: memoryview | bytes | None, api_version: int) -> int:
    """Return the size of the one batch in a partition's records. An incomplete batch after it is ignored.

    Raises `KafkaError` if the partition is refused (INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE, and
    CORRUPT_MESSAGE for garbage after the batch), `RequestFailedError` if the request is.
    """
    if records is None:
        raise KafkaError(Error.INVALID_RECORD)
    left = len(records)
    size = _INT32.unpack_from(records, BATCH_LENGTH_POS)[0] + LOG_OVERHEAD if left >= BATCH_OVERHEAD else 0
    if (
        not BATCH_OVERHEAD <= size <= left or records[MAGIC_POS] != MAGIC
    ):  # else it is whole, as nearly always
        try:
            size = _whole_batch_size(records, 0)
        except CorruptRecordError as error:
            raise RequestFailedError(Error.CORRUPT_MESSAGE, str(error)) from None
        if size is None or records[MAGIC_POS] != MAGIC:
            raise KafkaError(Error.INVALID_RECORD)
    if api_version < 7:
        codec = records[ATTRIBUTES_LOW_BYTE_POS] & compression.CODEC_MASK
        if codec == compression.ZSTD:
            raise KafkaError(Error.UNSUPPORTED_COMPRESSION_TYPE)
        if codec > compression.ZSTD:
            raise RequestFailedError(Error.UNKNOWN_SERVER_ERROR)
    if size < left:
        try:
            second = _whole_batch_size(records, size)
        except CorruptRecordError as error:
            raise KafkaError(Error.CORRUPT_MESSAGE) from error
        if second is not None:
            raise KafkaError(Error.INVALID_RECORD)
    if size < PRODUCER_EPOCH_POS:
        # Kafka reads past the end here, for the producer id.
        raise RequestFailedError(Error.UNKNOWN_SERVER_ERROR)
    return size


def _whole_batch_size(records: memoryview | bytes, pos: int) -> int | None:
    """None if the batch isn't whole. Raises `CorruptRecordError` with the text of Kafka's answer."""
    left = len(records) - pos
    if left < LOG_OVERHEAD:
        return None
    length: int = _INT32.unpack_from(records, pos + BATCH_LENGTH_POS)[0]
    if length > _INT32_MAX - LOG_OVERHEAD and pos == 0:
        raise RequestFailedError(Error.UNKNOWN_SERVER_ERROR)  # Kafka's size of it overflows
    if length < MIN_BATCH_LENGTH:
        raise CorruptRecordError(
            f"Record size {length} is less than the minimum record overhead ({MIN_BATCH_LENGTH})"
        )
    if left < HEADER_SIZE_UP_TO_MAGIC:
        return None
    magic = records[pos + MAGIC_POS]
    if magic > MAGIC:
        raise CorruptRecordError(f"Invalid magic found in record: {magic if magic < 0x80 else magic - 0x100}")
    size = length + LOG_OVERHEAD
    return None if left < size else size


# ---- one batch, and how it is stored


def validate(
    batch: WritableBytes,
    rules: RecordRules,
    now_ms: int,
    topic: str,
    partition: int,
    effort: Effort = ANY,
    unpacked: Unpacked | None = None,
) -> CheckedBatch:
    """Check `batch`, which is one whole batch (see `check_shape`), and make it ready to be stored.

    Its largest timestamp, the type of its timestamps, and the CRC are patched in place if they differ.
    `topic` and `partition` only occur in texts. `unpacked` gets the decompressed size of the batch, if the
    effort allows to find out.

    Raises `KafkaError`: INVALID_RECORD, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR if Kafka
    fails on the batch; as `RecordValidationError` INVALID_RECORD and INVALID_TIMESTAMP. `TooMuchEffortError`,
    before anything is patched, if it takes more than `effort` allows.
    """
    # 1. Check the header.
    size = len(batch)
    if _INT64.unpack_from(batch, BASE_OFFSET_POS)[0]:
        raise KafkaError(Error.INVALID_RECORD)
    if size > rules.max_message_bytes:
        raise KafkaError(Error.MESSAGE_TOO_LARGE)
    whole = batch if isinstance(batch, memoryview) else memoryview(batch)
    if size < BATCH_OVERHEAD or crc32c(whole[ATTRIBUTES_POS:]) != UINT32.unpack_from(batch, CRC_POS)[0]:
        raise KafkaError(Error.CORRUPT_MESSAGE)
    header = _new_tuple(BatchHeader, HEADER.unpack_from(batch))
    attributes, count = header.attributes, header.records_count
    codec = attributes & compression.CODEC_MASK
    if codec > compression.ZSTD:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
    if (
        count <= 0
        or header.last_offset_delta != count - 1
        or attributes & CONTROL_BIT
        or (header.base_sequence < 0 and header.producer_id > NO_PRODUCER_ID)
    ):
        raise KafkaError(Error.INVALID_RECORD)
    target = TARGET_CODECS.get(rules.compression_type, codec)
    if target != codec and not compression.is_available(target):
        target = codec
    # 2. Decompress it.
    payload: bytes | memoryview = whole[BATCH_OVERHEAD:]
    if codec != compression.NONE:
        if codec == compression.ZSTD and not payload:
            raise KafkaError(Error.INVALID_RECORD)  # Kafka's decompressor sees an empty stream
        try:
            payload = compression.decompress(codec, payload, effort)
        except compression.CodecUnavailableError:
            return _store(batch, header, rules, now_ms, _largest_unread(header, rules, now_ms))
        except compression.DecompressedTooLargeError as error:
            if unpacked is not None:
                unpacked.size_bytes = compression.MAX_DECOMPRESSED_BYTES
            raise KafkaError(Error.MESSAGE_TOO_LARGE) from error
        except compression.DecompressionError as error:
            if unpacked is not None:  # at most that far
                unpacked.size_bytes = min(effort.unpacked_bytes, compression.MAX_DECOMPRESSED_BYTES)
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR) from error
        if unpacked is not None:
            unpacked.size_bytes = len(payload)
        if len(payload) > rules.max_decompressed_message_bytes:
            _check_bodies(payload, header.records_count, rules.max_decompressed_message_bytes, effort)
    # 3. Check the shape of its records, and find out whether any of them may be wrong.
    try:
        shape = walk_records(payload, count, effort)
    except RecordSizeVarintError as error:
        compressed = codec != compression.NONE
        raise KafkaError(Error.INVALID_RECORD if compressed else Error.UNKNOWN_SERVER_ERROR) from error
    except CorruptRecordError as error:
        raise KafkaError(Error.INVALID_RECORD) from error
    skimmed = codec == target != compression.NONE
    # The smallest and the largest timestamp, if they don't overflow.
    if attributes & TIMESTAMP_TYPE_BIT:
        least = largest = header.max_timestamp
    else:
        least = header.base_timestamp + shape.min_timestamp_delta
        largest = header.base_timestamp + shape.max_timestamp_delta
    if not all_are_fine(header, shape, rules, now_ms, least, largest):
        if count > effort.suspects:
            raise TooMuchEffortError
        suspects = Suspects(header, rules, now_ms, f"{topic}-{partition}", skimmed)
        least, largest = suspects.check(bytes(payload))
    # 4. Make what is stored.
    if target != codec:
        if len(payload) > effort.rebuilt_bytes:
            raise TooMuchEffortError
        return _rebuild(header, payload, shape, least, largest, target, rules, now_ms)
    if skimmed and not shape.offsets_are_consecutive:
        # Kafka wants to rebuild such a batch, and fails because it has only skimmed the records.
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
    if (
        largest == header.max_timestamp >= NO_TIMESTAMP
        and rules.message_timestamp_type == "CreateTime"
        and not attributes & TIMESTAMP_TYPE_BIT
    ):
        return _new_tuple(CheckedBatch, (batch, header))  # as nearly always
    return _store(batch, header, rules, now_ms, largest)


def _check_bodies(payload: bytes | memoryview, count: int, most: int, effort: Effort) -> None:
    """Check the sizes of records as Kafka does before it decompresses each (DefaultRecord.readFrom). The walk
    over the records reports impossible sizes."""
    if count > effort.suspects:
        raise TooMuchEffortError
    try:
        is_too_large = any(size > most for size in sizes_of_bodies(payload, count))
    except (CorruptRecordError, IndexError):
        return
    if is_too_large:
        raise KafkaError(Error.INVALID_RECORD)


def _largest_unread(header: BatchHeader, rules: RecordRules, now_ms: int) -> int:
    """The largest timestamp that the header claims, if the records can't be read. Raises `KafkaError`."""
    if rules.message_timestamp_type == "CreateTime":
        refused = header.max_timestamp > now_ms + rules.after_max_ms
    else:
        refused = header.timestamp_type == LOG_APPEND_TIME
    if refused:
        raise KafkaError(Error.INVALID_TIMESTAMP)
    return header.max_timestamp


def _store(
    batch: WritableBytes, header: BatchHeader, rules: RecordRules, now_ms: int, largest_timestamp: int
) -> CheckedBatch:
    if rules.message_timestamp_type == "CreateTime":
        timestamp_type = CREATE_TIME
        max_timestamp = largest_timestamp if largest_timestamp > NO_TIMESTAMP else NO_TIMESTAMP
    else:
        timestamp_type, max_timestamp = LOG_APPEND_TIME, now_ms
    is_append_time = bool(header.attributes & TIMESTAMP_TYPE_BIT)
    if header.max_timestamp == max_timestamp and is_append_time is (timestamp_type == LOG_APPEND_TIME):
        return _new_tuple(CheckedBatch, (batch, header))
    patch_max_timestamp(batch, 0, len(batch), timestamp_type, max_timestamp)
    return CheckedBatch(batch, read_header(batch))


def stamped(checked: CheckedBatch, rules: RecordRules, now_ms: int) -> CheckedBatch:
    """Stamp a batch that was checked some time ago with its append time, if the topic wants that by now.

    Kafka checks and stamps under the partition's lock, so that such times never decrease.
    """
    batch, header = checked
    if rules.message_timestamp_type == "CreateTime":
        return checked
    return _store(batch, header, rules, now_ms, header.max_timestamp)


def _rebuild(
    header: BatchHeader,
    payload: bytes | memoryview,
    shape: RecordsShape,
    least_timestamp: int,
    largest_timestamp: int,
    target: int,
    rules: RecordRules,
    now_ms: int,
) -> CheckedBatch:
    """Rebuild the batch in the codec `target`, with consecutive offsets. Producer, sequence and the
    transactional flag stay.

    Source: LogValidator.buildRecordsAndAssignOffsets, MemoryRecordsBuilder.
    """
    if (
        least_timestamp < NO_TIMESTAMP
        or (header.is_transactional and header.producer_id == NO_PRODUCER_ID)
        or (
            header.producer_id != NO_PRODUCER_ID
            and (header.producer_epoch == NO_PRODUCER_EPOCH or header.base_sequence < 0)
        )
    ):
        # Allowed as long as nobody rebuilds such a batch. Kafka fails on that.
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
    append_time = None if rules.message_timestamp_type == "CreateTime" else now_ms
    size_end = read_varint(payload, 0)[1]
    first_delta, _ = read_varlong(payload, size_end + 1)
    if shape.offsets_are_consecutive and header.timestamp_type == CREATE_TIME and first_delta == 0:
        attributes = target | header.attributes & TRANSACTIONAL_BIT
        if append_time is not None:
            attributes |= TIMESTAMP_TYPE_BIT
        stored = seal_batch(
            header._replace(
                attributes=attributes,
                max_timestamp=largest_timestamp if append_time is None else append_time,
            ),
            payload,
            rules.compression_level,
        )
    else:
        records = parse_records(header, bytes(payload))
        stored = build_batch(
            [(record.timestamp, record.key, record.value, record.headers) for record in records],
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            codec=target,
            level=rules.compression_level,
            log_append_time=append_time,
        )
    if len(stored) > rules.max_message_bytes:
        raise KafkaError(Error.MESSAGE_TOO_LARGE)
    return CheckedBatch(stored, read_header(stored))


# ---- a walk over a batch's uncompressed records that proves their shape and makes no object per record
#
# Every record that a producer sends uncompressed passes here, so speed matters. The walk goes record by
# record, in a loop with inlined varints of one and two bytes (about 0.45 µs per record), or takes whole
# stretches at once if the next records look like the last one.
#
# It proves that each record's size lies within the batch, its fields fit in it exactly, header keys aren't
# null, the number of records is right, and no bytes are left over. A negative size of a key or a value means
# null, as in Kafka.
# Source: org.apache.kafka.common.record.DefaultRecord and DefaultRecordBatch.

_WORTHWHILE = 20
"""The least number of remaining records to look for a stretch: looking costs as much as some ten records."""
_MAX_PATIENCE = 64
"""The most records to walk one by one before looking again, if looking hasn't paid off."""
_COPY_BELOW_BYTES = 256
"""The average record size up to which the batch is copied first: bytes are read several times faster than a
memoryview. If larger records look alike, so little of them is read that copying would cost more than it saves."""
_COPY_UNLIKE_BELOW_BYTES = 4096
"""The same for records that don't look alike, so that each is walked. Larger ones are too few to matter."""


class RecordSizeVarintError(CorruptRecordError):
    """A record's size that takes more than five bytes. Kafka has its own answer for that."""


class RecordsShape(NamedTuple):
    """The properties of a batch's records that the checks need. Deltas are those in the records, in ms."""

    min_timestamp_delta: int
    max_timestamp_delta: int
    has_null_key: bool
    offsets_are_consecutive: bool
    """True if the offset deltas are 0, 1, 2 …"""


def walk_records(data: bytes | memoryview, count: int, effort: Effort = ANY) -> RecordsShape:
    """Prove that `data` is exactly `count` > 0 records, and return their properties.

    `data` must end where the batch ends: that catches a size that reaches too far. Raises
    `RecordSizeVarintError`, else `CorruptRecordError`; `TooMuchEffortError`.
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
        raise CorruptRecordError(f"{len(data) - walk.pos} bytes after the last record")
    return _new_tuple(RecordsShape, (walk.min_delta, walk.max_delta, walk.has_null_key, walk.consecutive))


def walk_stretches(data: bytes, count: int, length: int) -> Iterator[tuple[int, RecordsShape]]:
    """Iterate over records that `walk_records` has proven, `length` at a time: their position in `data`, and
    their properties, except for whether offsets are consecutive."""
    walk = _Walk(data)
    while walk.index < count:
        pos = walk.pos
        walk.min_delta, walk.max_delta, walk.has_null_key = 1 << 63, -1 << 63, False
        walk.go_on(min(count, walk.index + length))
        yield pos, RecordsShape(walk.min_delta, walk.max_delta, walk.has_null_key, walk.consecutive)


def sizes_of_bodies(data: bytes | memoryview, count: int) -> Iterator[int]:
    """Iterate over the sizes that the lengths of `count` records give, without the length itself.

    Raises as a walk does when it comes to a mistake: `CorruptRecordError`, `IndexError`.
    """
    pos = 0
    for _ in range(count):
        at, end = _read_record_size(data, pos)
        yield end - at
        pos = end


class _Walk:
    """The state of the walk: the next record has `index` and begins at `pos`, the last one began at `start`."""

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
        """Walk record by record up to the index `stop`. An `IndexError` means the end of the batch."""
        data, pos, start = self.data, self.pos, self.start
        min_delta, max_delta = self.min_delta, self.max_delta
        last_raw = -1
        for index in range(self.index, stop):
            start = pos
            # The record's size. All sizes are zigzag: an odd first byte means a negative one.
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

            # Its attributes, none of which are defined, and the timestamp delta, usually that of the record before.
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

            # The offset delta, usually the index.
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
        """Skip the records that look like the last one, at most up to the index `stop`. Returns their number."""
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
    """The start and the end of the record's fields."""
    try:
        size, at = read_varint(data, pos)
    except VarintTooLongError as error:
        raise RecordSizeVarintError(str(error)) from None
    if size < 0:
        raise CorruptRecordError(f"a record of {size} bytes")
    return at, at + size


# ---- records that their topic refuses: without a key if it is compacted, or with a time too far away
#
# Sources: `LogValidator.validateRecord`, `validateKey`, `validateTimestamp`, `processRecordErrors`; KIP-467.

_RECORD_ERRORS_IN_MESSAGE = 3
_STRETCH = 32
"""The records to judge together, before each is judged by itself."""

MOST_RECORD_ERRORS = 100
"""The most wrong records of a batch to report; no others are looked for. Reporting a million takes seconds
and hundreds of megabytes. Kafka reports all."""


class RecordValidationError(KafkaError):
    """Records that their topic refuses, each with its index in the batch and the reason (KIP-467)."""

    def __init__(self, error: Error, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(error, message)
        self.record_errors = record_errors


def _range_of_timestamps(header: BatchHeader, shape: RecordsShape) -> tuple[int, int]:
    """The smallest and the largest timestamp, if they don't overflow."""
    if header.attributes & TIMESTAMP_TYPE_BIT:
        return header.max_timestamp, header.max_timestamp
    return (
        header.base_timestamp + shape.min_timestamp_delta,
        header.base_timestamp + shape.max_timestamp_delta,
    )


def all_are_fine(
    header: BatchHeader, shape: RecordsShape, rules: RecordRules, now_ms: int, least: int, largest: int
) -> bool:
    """True if the range of timestamps and the shape of the records exclude any wrong record."""
    if rules.compacted and shape.has_null_key:
        return False
    if least < _INT64_MIN or largest > _INT64_MAX:
        return False
    is_append_time = header.attributes & TIMESTAMP_TYPE_BIT
    if rules.message_timestamp_type != "CreateTime":
        return not is_append_time
    if is_append_time and least == NO_TIMESTAMP:
        return False
    return least >= now_ms - rules.before_max_ms and largest <= now_ms + rules.after_max_ms


class Suspects(NamedTuple):
    """A batch that may have wrong records. It is checked in short stretches, and only suspicious ones are parsed."""

    header: BatchHeader
    rules: RecordRules
    now_ms: int
    topic_partition: str
    skimmed: bool

    def check(self, payload: bytes) -> tuple[int, int]:
        """Return the smallest and the largest timestamp. Raises `RecordValidationError`."""
        header, count = self.header, self.header.records_count
        is_append_time = header.timestamp_type == LOG_APPEND_TIME
        least, largest = _INT64_MAX, _INT64_MIN
        errors: list[tuple[int, Error, str]] = []
        index = 0
        for pos, shape in walk_stretches(payload, count, _STRETCH):
            length = min(_STRETCH, count - index)
            first, last = _range_of_timestamps(header, shape)
            if all_are_fine(header, shape, self.rules, self.now_ms, first, last):
                least, largest = min(least, first), max(largest, last)
                index += length
                continue
            for record in parse_stretch(header, payload, pos, length):
                timestamp = record.timestamp
                least, largest = min(least, timestamp), max(largest, timestamp)
                error = _record_error(
                    record, is_append_time, self.rules, self.now_ms, self.topic_partition, self.skimmed
                )
                if error is not None:
                    if len(errors) == MOST_RECORD_ERRORS:
                        raise _as_record_errors(errors, " or more")
                    errors.append((index, *error))
                index += 1
        if errors:
            raise _as_record_errors(errors)
        return least, largest


def _record_error(
    record: Record,
    is_append_time: bool,
    rules: RecordRules,
    now_ms: int,
    topic_partition: str,
    skimmed: bool,
) -> tuple[Error, str] | None:
    if rules.compacted and record.key is None:
        text = f"Compacted topic cannot accept message without key in topic partition {topic_partition}"
        return Error.INVALID_RECORD, text
    if rules.message_timestamp_type == "CreateTime" and record.timestamp != NO_TIMESTAMP:
        age_ms = to_int64(now_ms - record.timestamp)
        if age_ms > rules.before_max_ms or to_int64(-age_ms) > rules.after_max_ms:
            first, last = to_int64(now_ms - rules.before_max_ms), to_int64(now_ms + rules.after_max_ms)
            return Error.INVALID_TIMESTAMP, (
                f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
                f"The timestamp should be within [{first}, {last}]"
            )
    elif is_append_time:
        null_size = -1 if skimmed else 0
        key_size = null_size if record.key is None else len(record.key)
        value_size = null_size if record.value is None else len(record.value)
        return Error.INVALID_TIMESTAMP, (
            f"Invalid timestamp type in message {'Partial' if skimmed else ''}DefaultRecord("
            f"offset={record.offset}, timestamp={record.timestamp}, key={key_size} bytes, "
            f"value={value_size} bytes). Producer should not set timestamp type to LogAppendTime."
        )
    return None


def _as_record_errors(errors: list[tuple[int, Error, str]], or_more: str = "") -> RecordValidationError:
    entries = [(index, text) for index, _, text in errors]
    if any(error == Error.INVALID_TIMESTAMP for _, error, _ in errors):
        message = "One or more records have been rejected due to invalid timestamp"
        return RecordValidationError(Error.INVALID_TIMESTAMP, message, entries)
    shown = ", ".join(
        f"RecordError(batchIndex={index}, message='{text}')"
        for index, text in entries[:_RECORD_ERRORS_IN_MESSAGE]
    )
    message = (
        f"One or more records have been rejected due to {len(entries)}{or_more} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    return RecordValidationError(Error.INVALID_RECORD, message, entries)
