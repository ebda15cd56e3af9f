"""One metadata record as the value of a log record (Kafka: `MetadataRecordSerde`).

unsigned varint frame version (1) | unsigned varint api key | unsigned varint version | the message
"""

from __future__ import annotations

from protocol.errors import CodecError
from protocol.messages import metadata_records
from protocol.wire.codec import decode, encode
from protocol.wire.primitives import encode_unsigned_varint, read_unsigned_varint
from protocol.wire.schema import Message

FRAME_VERSION = 1

_TYPES: dict[int, type[Message]] = {
    record.API_KEY: record
    for record in vars(metadata_records).values()
    if isinstance(record, type) and issubclass(record, Message) and record.API_KEY >= 0
}


def encode_metadata_record(record: Message, version: int) -> bytes:
    """The value of a record of `__cluster_metadata-0`."""
    return b"".join(
        (
            encode_unsigned_varint(FRAME_VERSION),
            encode_unsigned_varint(type(record).API_KEY),
            encode_unsigned_varint(version),
            encode(record, version),
        )
    )


def decode_metadata_record(value: bytes) -> Message:
    """The metadata record in a value. Raises CodecError for one that this version of Kafka doesn't have."""
    frame_version, pos = read_unsigned_varint(value, 0, len(value))
    if frame_version != FRAME_VERSION:
        raise CodecError(f"metadata record frame version {frame_version}")
    api_key, pos = read_unsigned_varint(value, pos, len(value))
    version, pos = read_unsigned_varint(value, pos, len(value))
    record_type = _TYPES.get(api_key)
    if record_type is None:
        raise CodecError(f"metadata record of the unknown type {api_key}")
    return decode(record_type, version, value, pos)
