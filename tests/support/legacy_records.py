"""Records of formats 0 and 1, which logs from before Kafka 0.11 may still hold. They are only read, never written.

    offset int64 | size int32 | crc uint32 | magic int8 | attributes int8 | timestamp int64 (1 only) | key | value

Key and value are an int32 size, −1 for null, and bytes. A compressed message's value holds messages in turn: with
absolute offsets in format 0; in format 1 with relative ones, the last of which belongs to the outer message's offset.
Source: org.apache.kafka.common.record.LegacyRecord, AbstractLegacyRecordBatch; KIP-31, KIP-32.
"""

import zlib
from collections.abc import Iterator
from struct import Struct
from struct import error as StructError

from protocol.records.batch import (
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    CorruptRecordError,
    Record,
    compression,
)
from protocol.wire.primitives import Bytes

_ENTRY = Struct(">qi")
_HEAD = Struct(">Ibb")
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_CRC_SIZE = 4


def read_legacy_records(data: Bytes) -> list[Record]:
    """Return the records of whole entries of formats 0 and 1, unpacked if compressed. Sequences are −1.

    Raises `CorruptRecordError`, also for a wrong CRC; `compression.DecompressionError` and
    `compression.CodecUnavailableError`.
    """
    records = []
    for offset, magic, codec, timestamp, is_append_time, key, value in _entries(bytes(data)):
        if codec == compression.NONE:
            records.append(Record(offset, timestamp, NO_SEQUENCE, key, value))
            continue
        if value is None:
            raise CorruptRecordError("a compressed message without a value")
        inner = [*_entries(compression.decompress(codec, value))]
        shift = offset - inner[-1][0] if inner and magic == 1 else 0
        for inner_offset, _, inner_codec, inner_timestamp, _, inner_key, inner_value in inner:
            if inner_codec != compression.NONE:
                raise CorruptRecordError("a compressed message within another")
            records.append(
                Record(
                    inner_offset + shift,
                    timestamp if is_append_time else inner_timestamp,
                    NO_SEQUENCE,
                    inner_key,
                    inner_value,
                )
            )
    return records


_Entry = tuple[int, int, int, int, bool, bytes | None, bytes | None]
"""Offset, magic, codec, timestamp, True if that is the append time, key, value."""


def _entries(data: bytes) -> Iterator[_Entry]:
    pos = 0
    while pos < len(data):
        try:
            entry, pos = _entry(data, pos)
        except StructError as error:
            raise CorruptRecordError(f"the messages end within one: {error}") from error
        yield entry


def _entry(data: bytes, pos: int) -> tuple[_Entry, int]:
    offset, size = _ENTRY.unpack_from(data, pos)
    pos += _ENTRY.size
    end = pos + size
    if end > len(data):
        raise CorruptRecordError(f"a message of {size} bytes, {len(data) - pos} are left")
    crc, magic, attributes = _HEAD.unpack_from(data, pos)
    if magic not in (0, 1):
        raise CorruptRecordError(f"magic {magic} among messages of formats 0 and 1")
    if zlib.crc32(data[pos + _CRC_SIZE : end]) != crc:
        raise CorruptRecordError(f"the CRC of the message at offset {offset} is wrong")
    pos += _HEAD.size
    timestamp = NO_TIMESTAMP
    if magic == 1:
        timestamp = _INT64.unpack_from(data, pos)[0]
        pos += _INT64.size
    key, pos = _bytes(data, pos, end)
    value, pos = _bytes(data, pos, end)
    if pos != end:
        raise CorruptRecordError(f"{end - pos} bytes behind a message's value")
    is_append_time = magic == 1 and bool(attributes & TIMESTAMP_TYPE_BIT)
    return (offset, magic, attributes & compression.CODEC_MASK, timestamp, is_append_time, key, value), end


def _bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    size: int = _INT32.unpack_from(data, pos)[0]
    pos += _INT32.size
    if size < 0:
        return None, pos
    if size > end - pos:
        raise CorruptRecordError(f"{size} bytes in a message that has {end - pos} left")
    return data[pos : pos + size], pos + size
