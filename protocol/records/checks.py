"""What a broker checks of a batch that a producer sends, and what it makes of it.

This is Kafka's `LogValidator`, with the checks that come before it in `ProduceRequest.validateRecords` and
`UnifiedLog.analyzeAndValidateRecords`.

A batch is judged where it lies, and stored as it came but for its largest timestamp and the type of its timestamps.
Only where the topic asks for another codec is it built anew. Base offset and leader epoch are the log's to assign.

Compressed batches are unpacked to look at their records; where the codec's library isn't installed they are stored
after the checks on the header, in the codec they came in. Stricter than Kafka: the sizes of records in compressed
batches must be right (Kafka passes over them, and its consumers then fail), a batch may unpack to
`compression.MAX_DECOMPRESSED_BYTES` at most (MESSAGE_TOO_LARGE, on which producers split it), and null records, which
Kafka never answers, are INVALID_RECORD.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from protocol.errors import Error, KafkaError
from protocol.records import compression
from protocol.records.batch import (
    BASE_OFFSET_POS,
    BATCH_LENGTH_POS,
    BATCH_OVERHEAD,
    CONTROL_BIT,
    CREATE_TIME,
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
    BatchHeader,
    CorruptRecordError,
    WritableBytes,
    crc_is_valid,
    patch_max_timestamp,
    read_header,
)
from protocol.records.records import Record, build_batch, parse_records, parse_stretch, seal_batch
from protocol.records.validation_budget import ANY, Effort, TooMuchEffortError, Unpacked
from protocol.records.walk import (
    RecordSizeVarintError,
    RecordsShape,
    sizes_of_bodies,
    walk_records,
    walk_stretches,
)
from protocol.wire.primitives import read_varint, read_varlong, to_int64

_INT64 = Struct(">q")
_INT32 = Struct(">i")
_ATTRIBUTES_LOW_BYTE_POS = 22
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
"""The values of `compression.type` but for "producer", which keeps each batch's own codec."""


@dataclass(frozen=True, slots=True)
class RecordRules:
    """What a topic's configuration says of batches; the defaults are those of Kafka 4.4."""

    max_message_bytes: int = 1_048_588
    max_decompressed_message_bytes: int = _INT32_MAX
    """Of one record of a compressed batch: its body, without its length."""
    message_timestamp_type: str = "CreateTime"
    before_max_ms: int = _INT64_MAX
    after_max_ms: int = 3_600_000
    compacted: bool = False
    compression_type: str = "producer"
    compression_level: int | None = None
    """Of the codec in `compression_type`; None for its default."""


class CheckedBatch(NamedTuple):
    """A batch fit to be stored, and its header as it stands there."""

    batch: bytearray | memoryview
    header: BatchHeader


class RequestFailedError(Exception):
    """Bytes on which Kafka fails as a whole: every partition of the request is answered with this."""

    def __init__(self, error: Error, message: str | None = None) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message


# ---- the shape of what came, before anything is asked of its topic


def check_shape(records: memoryview | bytes | None, api_version: int) -> int:
    """The size of the one batch in a partition's records; an incomplete one behind it counts for nothing.

    Raises `KafkaError` where the partition is refused (INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE, and
    CORRUPT_MESSAGE for rubbish behind the batch), `RequestFailedError` where the request is.
    """
    if records is None:
        raise KafkaError(Error.INVALID_RECORD)
    try:
        size = _whole_batch_size(records, 0)
    except CorruptRecordError as error:
        raise RequestFailedError(Error.CORRUPT_MESSAGE, str(error)) from None
    if size is None or records[MAGIC_POS] != MAGIC:
        raise KafkaError(Error.INVALID_RECORD)
    if api_version < 7:
        codec = records[_ATTRIBUTES_LOW_BYTE_POS] & compression.CODEC_MASK
        if codec == compression.ZSTD:
            raise KafkaError(Error.UNSUPPORTED_COMPRESSION_TYPE)
        if codec > compression.ZSTD:
            raise RequestFailedError(Error.UNKNOWN_SERVER_ERROR)
    if size < len(records):
        try:
            second = _whole_batch_size(records, size)
        except CorruptRecordError as error:
            raise KafkaError(Error.CORRUPT_MESSAGE) from error
        if second is not None:
            raise KafkaError(Error.INVALID_RECORD)
    if size < PRODUCER_EPOCH_POS:
        # Here Kafka reads past the end for the producer id.
        raise RequestFailedError(Error.UNKNOWN_SERVER_ERROR)
    return size


def _whole_batch_size(records: memoryview | bytes, pos: int) -> int | None:
    """None where the batch isn't whole. Raises `CorruptRecordError` with the text of Kafka's answer."""
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


# ---- one batch, and what is stored of it


def validate(
    batch: WritableBytes,
    rules: RecordRules,
    now_ms: int,
    topic: str,
    partition: int,
    effort: Effort = ANY,
    unpacked: Unpacked | None = None,
) -> CheckedBatch:
    """Checks the one whole batch that `batch` is (see `check_shape`), and makes it what is to be stored.

    Patched in place are its largest timestamp, the type of its timestamps, and the CRC where these were different.
    `topic` and `partition` are named in texts alone; `unpacked` is told what a compressed batch unpacks to, where the
    effort is enough for that. Raises `KafkaError`: INVALID_RECORD, MESSAGE_TOO_LARGE,
    CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR where Kafka fails on the batch; as `RecordValidationError` INVALID_RECORD and
    INVALID_TIMESTAMP. `TooMuchEffortError`, with nothing patched yet, where it takes more than `effort` allows.
    """
    # 1. The header.
    header = _check_header(batch, rules)
    codec = header.attributes & compression.CODEC_MASK
    target = TARGET_CODECS.get(rules.compression_type, codec)
    if target != codec and not compression.is_available(target):
        target = codec
    # 2. What it unpacks to.
    whole = batch if isinstance(batch, memoryview) else memoryview(batch)
    payload: bytes | memoryview = whole[BATCH_OVERHEAD:]
    if codec != compression.NONE:
        if codec == compression.ZSTD and not payload:
            raise KafkaError(Error.INVALID_RECORD)  # to Kafka's decompressor a stream of nothing
        try:
            payload = compression.decompress(codec, payload, effort)
        except compression.CodecUnavailableError:
            return _store(batch, header, rules, now_ms, _largest_unread(header, rules, now_ms))
        except compression.DecompressedTooLargeError as error:
            if unpacked is not None:
                unpacked.size_bytes = compression.MAX_DECOMPRESSED_BYTES
            raise KafkaError(Error.MESSAGE_TOO_LARGE) from error
        except compression.DecompressionError as error:
            if unpacked is not None:  # as far as that, at most
                unpacked.size_bytes = min(effort.unpacked_bytes, compression.MAX_DECOMPRESSED_BYTES)
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR) from error
        if unpacked is not None:
            unpacked.size_bytes = len(payload)
        if len(payload) > rules.max_decompressed_message_bytes:
            _check_bodies(payload, header.records_count, rules.max_decompressed_message_bytes, effort)
    # 3. The shape of its records, and which of them may be wrong.
    shape = _walk(payload, header, effort)
    skimmed = codec == target != compression.NONE
    # The least and the largest timestamp, if they don't overflow.
    if header.attributes & TIMESTAMP_TYPE_BIT:
        least = largest = header.max_timestamp
    else:
        least = header.base_timestamp + shape.min_timestamp_delta
        largest = header.base_timestamp + shape.max_timestamp_delta
    if not all_are_fine(header, shape, rules, now_ms, least, largest):
        if header.records_count > effort.suspects:
            raise TooMuchEffortError
        suspects = Suspects(header, rules, now_ms, f"{topic}-{partition}", skimmed)
        least, largest = suspects.check(bytes(payload))
    # 4. What is stored.
    if target != codec:
        if len(payload) > effort.rebuilt_bytes:
            raise TooMuchEffortError
        return _rebuild(header, payload, shape, least, largest, target, rules, now_ms)
    if skimmed and not shape.offsets_are_consecutive:
        # Kafka means to build such a batch anew, and fails since it has only skimmed the records.
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
    return _store(batch, header, rules, now_ms, largest)


def _check_header(batch: WritableBytes, rules: RecordRules) -> BatchHeader:
    size = len(batch)
    base_offset: int = _INT64.unpack_from(batch, BASE_OFFSET_POS)[0]
    if base_offset:
        raise KafkaError(Error.INVALID_RECORD)
    if size > rules.max_message_bytes:
        raise KafkaError(Error.MESSAGE_TOO_LARGE)
    if size < BATCH_OVERHEAD or not crc_is_valid(batch, 0, size):
        raise KafkaError(Error.CORRUPT_MESSAGE)
    header = read_header(batch)
    if header.attributes & compression.CODEC_MASK > compression.ZSTD:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
    if (
        header.records_count <= 0
        or header.last_offset_delta != header.records_count - 1
        or header.attributes & CONTROL_BIT
        or (header.base_sequence < 0 and header.producer_id > NO_PRODUCER_ID)
    ):
        raise KafkaError(Error.INVALID_RECORD)
    return header


def _walk(payload: bytes | memoryview, header: BatchHeader, effort: Effort) -> RecordsShape:
    try:
        return walk_records(payload, header.records_count, effort)
    except RecordSizeVarintError as error:
        compressed = header.compression != compression.NONE
        raise KafkaError(Error.INVALID_RECORD if compressed else Error.UNKNOWN_SERVER_ERROR) from error
    except CorruptRecordError as error:
        raise KafkaError(Error.INVALID_RECORD) from error


def _check_bodies(payload: bytes | memoryview, count: int, most: int, effort: Effort) -> None:
    """Kafka looks at a record's size before it unpacks the record (DefaultRecord.readFrom). Where sizes make no sense
    it is the walk that says so."""
    if count > effort.suspects:
        raise TooMuchEffortError
    try:
        is_too_large = any(size > most for size in sizes_of_bodies(payload, count))
    except (CorruptRecordError, IndexError):
        return
    if is_too_large:
        raise KafkaError(Error.INVALID_RECORD)


def _largest_unread(header: BatchHeader, rules: RecordRules, now_ms: int) -> int:
    """The largest timestamp that the header claims, where the records can't be read. Raises `KafkaError`."""
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
    if header.max_timestamp == max_timestamp and header.timestamp_type == timestamp_type:
        return _new_tuple(CheckedBatch, (batch, header))
    patch_max_timestamp(batch, 0, len(batch), timestamp_type, max_timestamp)
    return CheckedBatch(batch, read_header(batch))


def stamped(checked: CheckedBatch, rules: RecordRules, now_ms: int) -> CheckedBatch:
    """A batch that was checked some time ago, with the time of its append where the topic wants that by now. Kafka
    checks and stamps under the partition's lock, so that such times never go back."""
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
    """The batch in the codec `target`, with consecutive offsets. Producer, sequence and the transaction's flag stay.

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
        # Fine as long as nobody builds such a batch: on that Kafka fails.
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


# ---- records of a batch that their topic doesn't take: without a key where it is compacted, of a time too far away
#
# Sources: `LogValidator.validateRecord`, `validateKey`, `validateTimestamp`, `processRecordErrors`; KIP-467.

_RECORD_ERRORS_IN_MESSAGE = 3
_STRETCH = 32
"""Records that are judged together, before each by itself."""

MOST_RECORD_ERRORS = 100
"""So many records of a batch are told to be wrong, and no further one is looked for: to tell of a million takes seconds
and hundreds of megabytes. Kafka tells of each."""


class RecordValidationError(KafkaError):
    """Records that their topic doesn't take: each with its index in the batch and the reason (KIP-467)."""

    def __init__(self, error: Error, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(error, message)
        self.record_errors = record_errors


def _range_of_timestamps(header: BatchHeader, shape: RecordsShape) -> tuple[int, int]:
    """The least and the largest one, if they don't overflow."""
    if header.attributes & TIMESTAMP_TYPE_BIT:
        return header.max_timestamp, header.max_timestamp
    return (
        header.base_timestamp + shape.min_timestamp_delta,
        header.base_timestamp + shape.max_timestamp_delta,
    )


def all_are_fine(
    header: BatchHeader, shape: RecordsShape, rules: RecordRules, now_ms: int, least: int, largest: int
) -> bool:
    """Whether the range of the timestamps and the shape of the records say that no single one can be wrong."""
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
    """A batch among whose records there may be wrong ones: it is gone through in short stretches, and records are made
    only of those that may hold such."""

    header: BatchHeader
    rules: RecordRules
    now_ms: int
    topic_partition: str
    skimmed: bool

    def check(self, payload: bytes) -> tuple[int, int]:
        """The least and the largest timestamp. Raises `RecordValidationError`."""
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
