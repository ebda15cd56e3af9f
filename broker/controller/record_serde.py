"""One metadata record as the value of a log record (Kafka: `MetadataRecordSerde`).

unsigned varint frame version (1) | unsigned varint api key | unsigned varint version | the message
"""

from __future__ import annotations

from functools import lru_cache

from protocol.errors import CodecError
from protocol.messages import metadata_records
from protocol.wire.codec import Decode, decoder, encoder
from protocol.wire.primitives import Bytes, encode_unsigned_varint, read_unsigned_varint
from protocol.wire.schema import Message

FRAME_VERSION = 1

_TYPES: dict[int, type[Message]] = {
    record.API_KEY: record
    for record in vars(metadata_records).values()
    if isinstance(record, type) and issubclass(record, Message) and record.API_KEY >= 0
}

_HEAD_BYTES = 3  # while there are fewer than 128 types and versions of each, which are varints of a byte
_decoders: dict[bytes, Decode] = {}  # by the head of a value


@lru_cache(maxsize=1024)
def _head(record_type: type[Message], version: int) -> bytes:
    return b"".join(map(encode_unsigned_varint, (FRAME_VERSION, record_type.API_KEY, version)))


def encode_metadata_record(record: Message, version: int) -> bytes:
    """The value of a record of `__cluster_metadata-0`."""
    record_type = type(record)
    chunks: list[Bytes] = [_head(record_type, version)]
    encoder(record_type, version)(record, chunks)
    return b"".join(chunks)


def decode_metadata_record(value: bytes) -> Message:
    """The metadata record in a value. Raises CodecError for one that this version of Kafka doesn't have."""
    head = value[:_HEAD_BYTES]
    decode = _decoders.get(head)
    if decode is not None:
        known: Message = decode(value, _HEAD_BYTES, len(value))[0]
        return known
    frame_version, pos = read_unsigned_varint(value, 0, len(value))
    if frame_version != FRAME_VERSION:
        raise CodecError(f"metadata record frame version {frame_version}")
    api_key, pos = read_unsigned_varint(value, pos, len(value))
    version, pos = read_unsigned_varint(value, pos, len(value))
    record_type = _TYPES.get(api_key)
    if record_type is None:
        raise CodecError(f"metadata record of the unknown type {api_key}")
    decode = decoder(record_type, version)
    if pos == _HEAD_BYTES:
        _decoders[head] = decode
    record: Message = decode(value, pos, len(value))[0]
    return record
