"""A record batch, byte by byte: each field with its position, its bytes and its meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct as Layout
from typing import Any, Final, NamedTuple

from cli.inspecting.values import shown, time_of
from protocol.errors import CodecError
from protocol.records.batch import BATCH_OVERHEAD, NO_SEQUENCE, BatchHeader, crc_is_valid, read_header
from protocol.wire.primitives import VarintTooLongError, read_varint, read_varlong

MOST_RECORDS: Final = 50
"""The most records whose fields are shown one by one."""


class ByteField(NamedTuple):
    """`depth` is 0 in a batch's header, 1 in one of its records, 2 in a record's header."""

    name: str
    at: int
    size: int
    value: str
    means: str
    depth: int = 0


def fields_of_batch(batch: bytes) -> list[ByteField]:
    """Return all fields of the batch. Compressed or invalid records are one field."""
    header = read_header(batch)
    found = [*_header(header, batch)]
    end = header.size_bytes
    if header.compression:
        what = "records, compressed together"
        found.append(ByteField("records", BATCH_OVERHEAD, end - BATCH_OVERHEAD, "", what))
        return found
    position = BATCH_OVERHEAD
    for number in range(header.records_count):
        if number == MOST_RECORDS:
            left = f"{header.records_count - number:,} more"
            found.append(ByteField("records", position, end - position, left, "not shown one by one"))
            break
        try:
            position = _record(batch, position, end, header, found)
        except (IndexError, CodecError, VarintTooLongError) as error:
            found.append(ByteField("records", position, end - position, "", f"they make no sense: {error}"))
            break
    return found


_HEADER: Final[tuple[tuple[str, str], ...]] = (
    ("baseOffset", ">q"),
    ("batchLength", ">i"),
    ("partitionLeaderEpoch", ">i"),
    ("magic", ">b"),
    ("crc", ">I"),
    ("attributes", ">h"),
    ("lastOffsetDelta", ">i"),
    ("baseTimestamp", ">q"),
    ("maxTimestamp", ">q"),
    ("producerId", ">q"),
    ("producerEpoch", ">h"),
    ("baseSequence", ">i"),
    ("recordsCount", ">i"),
)
"""The fields in the order of Kafka's `DefaultRecordBatch`."""
_CODECS: Final = ("no compression", "gzip", "snappy", "lz4", "zstd")


def _header(header: BatchHeader, batch: bytes) -> Iterator[ByteField]:
    meanings: dict[str, Callable[[int], str]] = {
        "baseOffset": lambda _: "offset of the first record",
        "batchLength": lambda value: f"bytes that follow; {value + 12:,} in all",
        "partitionLeaderEpoch": lambda _: "under which leader it was written",
        "magic": lambda _: "the format's number",
        "crc": lambda _: (
            "the CRC-32C of all that follows: right"
            if crc_is_valid(batch, 0, header.size_bytes)
            else "the CRC-32C of all that follows: WRONG"
        ),
        "attributes": lambda _: _attributes(header),
        "lastOffsetDelta": lambda _: f"the last record has offset {header.last_offset}",
        "baseTimestamp": time_of,
        "maxTimestamp": time_of,
        "producerId": lambda value: "whose records these are" if value >= 0 else "not an idempotent producer",
        "producerEpoch": lambda value: "older ones are fenced" if value >= 0 else "none",
        "baseSequence": lambda value: (
            "none" if value == NO_SEQUENCE else f"sequences {value} to {header.last_sequence}"
        ),
        "recordsCount": lambda value: "record" if value == 1 else "records",
    }
    at = 0
    for name, form in _HEADER:
        layout = Layout(form)
        (value,) = layout.unpack_from(batch, at)
        yield ByteField(name, at, layout.size, str(value), meanings[name](value))
        at += layout.size


def _attributes(header: BatchHeader) -> str:
    codec = header.compression
    words = [_CODECS[codec] if codec < len(_CODECS) else f"codec {codec}"]
    words.append("time of the append" if header.timestamp_type else "time of the producer")
    words.append("transactional" if header.is_transactional else "not transactional")
    if header.is_control:
        words.append("control")
    return ", ".join(words)


def _record(batch: bytes, position: int, end: int, header: BatchHeader, found: list[ByteField]) -> int:
    """Append a record's fields, and return where the next record begins."""

    def number(name: str, means: Callable[[int], str], depth: int = 1, *, long: bool = False) -> int:
        nonlocal position
        value, behind = (read_varlong if long else read_varint)(batch, position)
        found.append(ByteField(name, position, behind - position, str(value), means(value), depth))
        position = behind
        return value

    def text(name: str, size: int, depth: int = 1) -> None:
        nonlocal position
        if size > 0:
            if position + size > end:
                raise CodecError(f"{size} bytes where {end - position} are left")
            found.append(
                ByteField(name, position, size, shown(bytes(batch[position : position + size])), "", depth)
            )
            position += size

    number("length", lambda _: "of the record")
    if position >= end:
        raise CodecError("a record behind the end of its batch")
    found.append(ByteField("attributes", position, 1, str(batch[position]), "unused", 1))
    position += 1
    number("timestampDelta", lambda value: time_of(header.base_timestamp + value), long=True)
    number("offsetDelta", lambda value: f"offset {header.base_offset + value}")
    text("key", number("keyLength", lambda value: "no key" if value < 0 else "bytes"))
    text("value", number("valueLength", lambda value: "no value" if value < 0 else "bytes"))
    for _ in range(number("headersCount", lambda _: "headers")):
        text("headerKey", number("headerKeyLength", lambda _: "bytes", 2), 2)
        text("headerValue", number("headerValueLength", lambda _: "bytes", 2), 2)
    return position


def as_documents(fields: list[ByteField]) -> list[dict[str, Any]]:
    """Return the fields for programs."""
    return [each._asdict() for each in fields]
