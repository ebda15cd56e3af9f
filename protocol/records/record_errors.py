"""Which records of a batch their topic doesn't take: those without a key where it is compacted, and those of a time
that is too far away.

Sources: `LogValidator.validateRecord`, `validateKey`, `validateTimestamp`, `processRecordErrors`; KIP-467.
"""

from typing import NamedTuple

from protocol.errors import Error, KafkaError
from protocol.records.batch import LOG_APPEND_TIME, NO_TIMESTAMP, TIMESTAMP_TYPE_BIT, BatchHeader
from protocol.records.records import Record, parse_stretch
from protocol.records.rules import RecordRules
from protocol.records.walk import RecordsShape, walk_stretches
from protocol.wire.varint import to_int64

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
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
