"""Record batches made by hand, with every lie that a client could tell; and batches read back for a transcript."""

from __future__ import annotations

import gzip
import hashlib
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import cramjam
import crc32c

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

LOG_APPEND_TIME = 1 << 3
TRANSACTIONAL = 1 << 4
CONTROL = 1 << 5
DELETE_HORIZON = 1 << 6

T0 = 1_700_000_000_000
"""The timestamp (ms) of records without one."""

_FIXED = struct.Struct(">qiibI")
_REST = struct.Struct(">hiqqqhii")
OVERHEAD = _FIXED.size + _REST.size


def varint(value: int) -> bytes:
    """Encode a zigzag varint, as in records."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value & ~0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def sized(data: bytes | None, length: int | None = None) -> bytes:
    if length is None:
        length = -1 if data is None else len(data)
    return varint(length) + (data or b"")


def record(
    value: bytes | None = b"value",
    *,
    key: bytes | None = b"key",
    offset_delta: int = 0,
    timestamp_delta: int = 0,
    headers: Sequence[tuple[bytes | None, bytes | None]] = (),
    attributes: int = 0,
    length: int | None = None,
    key_length: int | None = None,
    value_length: int | None = None,
    header_count: int | None = None,
    behind: bytes = b"",
) -> bytes:
    """Return one record of a batch. Lengths and counts may be lies."""
    body = struct.pack("b", attributes) + varint(timestamp_delta) + varint(offset_delta)
    body += sized(key, key_length) + sized(value, value_length)
    body += varint(len(headers) if header_count is None else header_count)
    for name, content in headers:
        body += sized(name) + sized(content)
    body += behind
    return varint(len(body) if length is None else length) + body


def records_of(values: Iterable[bytes | None]) -> list[bytes]:
    return [record(value, offset_delta=i) for i, value in enumerate(values)]


def compress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == LZ4:
        return lz4_frame(data)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return data


def lz4_frame(data: bytes, *, linked: bool = False) -> bytes:
    """Return an LZ4 frame. Kafka only reads frames of independent blocks."""
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=linked)
    compressor.compress(data)
    return bytes(compressor.finish())


def xerial_snappy(data: bytes, *, block_bytes: int = 32 * 1024) -> bytes:
    """Return Snappy data in the frame of Java's producer."""
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for start in range(0, len(data), block_bytes):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + block_bytes]))
        out += struct.pack(">i", len(block)) + block
    return out


def decompress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.decompress(data)
    if codec == SNAPPY:
        if not data.startswith(b"\x82SNAPPY\x00"):
            return bytes(cramjam.snappy.decompress_raw(data))
        out, pos = b"", 16
        while pos < len(data):
            (size,) = struct.unpack_from(">i", data, pos)
            out += bytes(cramjam.snappy.decompress_raw(data[pos + 4 : pos + 4 + size]))
            pos += 4 + size
        return out
    if codec == LZ4:
        return bytes(cramjam.lz4.decompress(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.decompress(data))
    return data


def batch(
    records: Sequence[bytes] | int = 1,
    *,
    base_offset: int = 0,
    length: int | None = None,
    leader_epoch: int = -1,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    codec: int = NONE,
    last_offset_delta: int | None = None,
    base_timestamp: int = T0,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    count: int | None = None,
    payload: bytes | None = None,
) -> bytes:
    """Return one batch of v2. `records` are records, or how many plain ones to make. Everything else may be a lie."""
    if isinstance(records, int):
        records = records_of([b"value %d" % i for i in range(records)])
    if payload is None:
        payload = compress(codec, b"".join(records))
    rest = _REST.pack(
        attributes | codec,
        len(records) - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        base_timestamp if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records) if count is None else count,
    )
    rest += payload
    if crc is None:
        crc = crc32c.crc32c(rest)
    size = 9 + len(rest) if length is None else length
    return _FIXED.pack(base_offset, size, leader_epoch, magic, crc) + rest


def legacy_message_set(magic: int, value: bytes = b"value") -> bytes:
    """Return a message of v0 or v1, as producers before 0.11 wrote it."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", T0) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def describe(data: bytes) -> list[dict[str, Any]]:
    """Describe what a Fetch returned, batch by batch, and a torn batch at the end by its size."""
    out = []
    pos = 0
    while pos < len(data):
        left = len(data) - pos
        if left < 12 or left < 12 + struct.unpack_from(">i", data, pos + 8)[0]:
            out.append({"torn_bytes": left})
            break
        size = 12 + struct.unpack_from(">i", data, pos + 8)[0]
        out.append(_describe_batch(data[pos : pos + size]))
        pos += size
    return out


def _describe_batch(data: bytes) -> dict[str, Any]:
    base_offset, _, leader_epoch, magic, crc = _FIXED.unpack_from(data)
    (
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = _REST.unpack_from(data, _FIXED.size)
    codec = attributes & 7
    payload = data[OVERHEAD:]
    described = {
        "base_offset": base_offset,
        "leader_epoch": leader_epoch,
        "magic": magic,
        "crc": "right" if crc32c.crc32c(data[_FIXED.size :]) == crc else "wrong",
        "attributes": attributes,
        "last_offset_delta": last_offset_delta,
        "base_timestamp": base_timestamp,
        "max_timestamp": max_timestamp,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
        "count": count,
        "records": _records(codec, payload),
    }
    if codec != NONE:
        described["compressed"] = digest(payload)
    return described


def _records(codec: int, payload: bytes) -> str:
    if not 0 < codec <= ZSTD:
        return digest(payload)
    try:
        return digest(decompress(codec, payload))
    except (cramjam.DecompressionError, OSError, EOFError, zlib.error, struct.error):
        return "our decompressor can't read them"


def digest(data: bytes) -> str:
    """Return short bytes as they are, long ones as their size and a hash."""
    if len(data) <= 64:
        return data.hex()
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()[:16]}"
