"""Batches and records with arbitrary errors, for tests of validation."""

from collections.abc import Sequence
from typing import Any

from protocol.records.batch import BatchHeader, seal_batch
from protocol.wire.primitives import append_varint

NOW_MS = 1_700_000_000_000


def varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


def record(
    index: int,
    *,
    timestamp_delta: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Sequence[tuple[bytes | None, bytes | None]] = (),
    attributes: int = 0,
) -> bytes:
    """Return a record as a producer writes it at this index of a batch, with its length first. Header keys may be
    null."""
    body = bytes((attributes,)) + varint(timestamp_delta) + varint(index)
    for part in (key, value):
        body += sized(part)
    body += varint(len(headers))
    for header_key, header_value in headers:
        body += sized(header_key) + sized(header_value)
    return varint(len(body)) + body


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def batch(payload: bytes | Sequence[bytes], **fields: Any) -> bytearray:
    """Return a batch with the right CRC and length. Its other fields are those of a producer, unless given.

    The payload is compressed with the codec in `attributes`; `records_count` is the length of a sequence of records.
    """
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=1,
    )
    if not isinstance(payload, bytes):
        header = header._replace(records_count=len(payload), last_offset_delta=len(payload) - 1)
        payload = b"".join(payload)
    return seal_batch(header._replace(**fields), payload, None)
