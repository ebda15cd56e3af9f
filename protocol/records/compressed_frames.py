"""Snappy and LZ4 in the framing of Kafka's clients. Imported with the first such batch, because it needs `cramjam`.

Snappy: the Java client uses the framing of the library xerial/snappy-java: a header of 16 bytes, then {int32 size,
block} …; librdkafka writes a single plain block. Kafka reads both. The framing of the snappy project itself is
another one, which Kafka doesn't know. Source: org.xerial.snappy SnappyOutputStream, SnappyInputStream.

LZ4: the frame format with independent blocks, as far as Kafka's clients can read it. Frames are built here
because the common libraries link blocks by default, which the Java client refuses; the library makes the
blocks themselves. As in Kafka, linked blocks, unknown versions and a header with a wrong checksum are
refused. A checksum of the whole content is ignored. Source:
org.apache.kafka.common.compress.Lz4BlockInputStream, Lz4BlockOutputStream; the LZ4 frame format 1.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

import cramjam

from protocol.records.validation_budget import ANY, Effort, TooMuchEffortError

# ---- snappy

MAGIC = b"\x82SNAPPY\x00"
_HEADER = MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # its version and the oldest compatible one
_INT32 = Struct(">i")
_BLOCK_BYTES = 32 * 1024
"""The uncompressed size, as in SnappyOutputStream."""


def compress_blocks(data: bytes | bytearray | memoryview) -> bytes:
    """Return the framed form."""
    view = memoryview(data)
    parts = [_HEADER]
    for start in range(0, len(view), _BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _BLOCK_BYTES]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def decompress_blocks(data: bytes, max_block_bytes: int, effort: Effort = ANY) -> Iterator[bytes]:
    """Iterate over each block's uncompressed bytes.

    A block names its uncompressed size, and that much is allocated. A size above `max_block_bytes` is refused
    before that. Raises `ValueError`, `struct.error`, `cramjam.DecompressionError`, `TooMuchEffortError`.
    """
    if not data.startswith(MAGIC):
        yield _decompress_block(data, max_block_bytes, effort)
        return
    if len(data) < len(_HEADER):
        raise ValueError("the stream ends within its header")
    pos = len(_HEADER)
    while len(data) - pos >= _INT32.size:
        if data.startswith(MAGIC, pos):  # another stream after the first
            pos += len(_HEADER)
            continue
        size: int = _INT32.unpack_from(data, pos)[0]
        pos += _INT32.size
        if not 0 <= size <= len(data) - pos:
            raise ValueError(f"a block of {size} bytes, {len(data) - pos} are left")
        yield _decompress_block(data[pos : pos + size], max_block_bytes, effort)
        pos += size


def _decompress_block(block: bytes, max_block_bytes: int, effort: Effort) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > max_block_bytes:
        raise ValueError(f"a block that claims {size} bytes")
    if size > effort.unpacked_bytes:
        raise TooMuchEffortError
    return bytes(cramjam.snappy.decompress_raw(block))


# ---- LZ4

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"
"""Version 1, independent blocks of at most 64 KiB, no checksums. The last byte is the header's own checksum."""
_LZ4_BLOCK_BYTES = 64 * 1024
FAST_LEVEL = 9
_UINT32 = Struct("<I")
_UNCOMPRESSED_BIT = 0x80000000

_VERSION_MASK = 0xC0
_VERSION_1 = 0x40
_INDEPENDENT_BIT = 0x20
_BLOCK_CHECKSUM_BIT = 0x10
_CONTENT_SIZE_BIT = 0x08
_CONTENT_CHECKSUM_BIT = 0x04
_RESERVED_MASK = 0x03


def compress_frame(data: bytes | bytearray | memoryview, level: int) -> bytes:
    """Return a frame of one or more blocks. A block that wouldn't shrink is stored as it is.

    As in Kafka the level only counts if it isn't `FAST_LEVEL`, its default.
    """
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        parts.append(_pack_fast(plain) if level == FAST_LEVEL else _pack(plain, level))
    parts.append(_UINT32.pack(0))
    return b"".join(parts)


def _pack_fast(plain: memoryview) -> bytes:
    block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
    if len(block) < len(plain):
        return _UINT32.pack(len(block)) + block
    return _UINT32.pack(len(plain) | _UNCOMPRESSED_BIT) + bytes(plain)


def _pack(plain: memoryview, level: int) -> bytes:
    # The library only has levels for frames. The block in a frame of a single block depends on no other.
    frame = bytes(cramjam.lz4.compress(plain, level=level))
    start = 15 if frame[4] & _CONTENT_SIZE_BIT else 7
    field: int = _UINT32.unpack_from(frame, start)[0]
    return frame[start : start + 4 + (field & ~_UNCOMPRESSED_BIT)]


def decompress_frame(data: bytes) -> Iterator[bytes]:
    """Iterate over each block's uncompressed bytes. Data after the frame is ignored.

    Raises `ValueError`, `struct.error`, `cramjam.DecompressionError`.
    """
    flags, block_limit, pos = _read_header(data)
    space = bytearray(block_limit)
    has_checksums = flags & _BLOCK_CHECKSUM_BIT
    while True:
        start = pos
        field: int = _UINT32.unpack_from(data, pos)[0]
        size = field & ~_UNCOMPRESSED_BIT
        pos += 4 + size
        if not size:
            break
        if size > block_limit:
            raise ValueError(f"a block of {size} bytes, the limit is {block_limit}")
        if len(data) - pos < (4 if has_checksums else 0):
            raise ValueError("the frame ends within a block")
        if has_checksums:
            # The library has no function for the checksum, but it checks a block in a frame of its own.
            pos += 4
            yield bytes(cramjam.lz4.decompress(_checked_header(data[5]) + data[start:pos] + bytes(4)))
        elif field & _UNCOMPRESSED_BIT:
            yield data[start + 4 : pos]
        else:
            used: int = cramjam.lz4.decompress_block_into(data[start + 4 : pos], space)
            yield bytes(memoryview(space)[:used])
    if flags & _CONTENT_CHECKSUM_BIT and len(data) - pos < 4:
        raise ValueError("the frame ends before its checksum")


def _checked_header(block_descriptor: int) -> bytes:
    """The header of a frame whose blocks have checksums."""
    descriptor = bytes((_VERSION_1 | _INDEPENDENT_BIT | _BLOCK_CHECKSUM_BIT, block_descriptor))
    return _LZ4_MAGIC + descriptor + bytes((_header_checksum(descriptor),))


def _read_header(data: bytes) -> tuple[int, int, int]:
    """The flags, the largest size of a block, and the start of the blocks."""
    if len(data) < 7 or not data.startswith(_LZ4_MAGIC):
        raise ValueError("no frame")
    flags, block_descriptor = data[4], data[5]
    if flags & _VERSION_MASK != _VERSION_1 or flags & _RESERVED_MASK:
        raise ValueError(f"unsupported flags {flags:#x}")
    if not flags & _INDEPENDENT_BIT:
        raise ValueError("blocks that depend on each other")
    size_id = block_descriptor >> 4
    if block_descriptor & 0x0F or not 4 <= size_id <= 7:
        raise ValueError(f"block descriptor {block_descriptor:#x}")
    pos = 14 if flags & _CONTENT_SIZE_BIT else 6
    if len(data) <= pos:
        raise ValueError("the frame ends within its header")
    if data[pos] != _header_checksum(data[4:pos]):
        raise ValueError("the header's checksum is wrong")
    return flags, 1 << (2 * size_id + 8), pos + 1


def _header_checksum(descriptor: bytes) -> int:
    return _short_xxh32(descriptor) >> 8 & 0xFF


_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF


def _short_xxh32(data: bytes) -> int:
    """The hash XXH32 with seed 0 of less than 16 bytes: a frame's header has 2 or 10."""
    value = _PRIME_5 + len(data)
    words = len(data) & ~3
    for pos in range(0, words, 4):
        value = _rotate(value + _UINT32.unpack_from(data, pos)[0] * _PRIME_3, 17) * _PRIME_4
    for byte in data[words:]:
        value = _rotate(value + byte * _PRIME_5, 11) * _PRIME_1
    value &= _MASK
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return value ^ value >> 16


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (32 - bits)) & _MASK
