"""The codecs of record batches, and the limit for decompressed data.

gzip is in the standard library. snappy, lz4 and zstd need the optional package `cramjam`, imported at first
use. Sources: org.apache.kafka.common.compress, CompressionType; KIP-110 (zstd), KIP-390 (levels).
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from protocol.records.validation_budget import ANY, Effort, TooMuchEffortError

if TYPE_CHECKING:
    from types import ModuleType

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4
CODEC_MASK = 0x07

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
DEFAULT_LEVELS = {GZIP: -1, LZ4: 9, ZSTD: 3}
"""The defaults of `compression.gzip.level` and the like."""

MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024
"""The largest decompressed size of a batch. Kafka reads it as a stream and has no limit. This is 256 times
the largest batch (`max.message.bytes`), and more than twice the largest request (`socket.request.max.bytes`)."""

_GZIP_WINDOW_BITS = 31
_PACKED_PIECE_BYTES = 16 * 1024
_JOINED_BYTES = 8 * 1024 * 1024  # copying more would be noticeable
_UNPACKED_PIECE_BYTES = 4 * 1024 * 1024


class CodecUnavailableError(Exception):
    """Kafka has this codec, but its library isn't installed."""


class DecompressionError(Exception):
    """The codec can't read these bytes, or there is no such codec."""


class DecompressedTooLargeError(DecompressionError):
    """More than `MAX_DECOMPRESSED_BYTES`."""


def is_available(codec: int) -> bool:
    """True if batches of this codec can be read and written here. Any number is allowed."""
    if codec in (NONE, GZIP):
        return True
    return codec in (SNAPPY, LZ4, ZSTD) and find_spec("cramjam") is not None


def decompress(codec: int, data: bytes | bytearray | memoryview, effort: Effort = ANY) -> bytes | memoryview:
    """Return the uncompressed bytes, at most `MAX_DECOMPRESSED_BYTES`. A large result is a view, to avoid a copy.

    Raises `DecompressionError`, `CodecUnavailableError`, `TooMuchEffortError`.
    """
    if codec == NONE:
        return bytes(data)
    if len(data) > effort.packed_bytes:
        raise TooMuchEffortError
    try:
        if codec == GZIP:
            return _join_bounded(_gunzip(data), effort)
        cramjam = _cramjam()
        try:
            if codec == SNAPPY:
                from protocol.records.compressed_frames import decompress_blocks

                return _join_bounded(decompress_blocks(bytes(data), MAX_DECOMPRESSED_BYTES, effort), effort)
            if codec == LZ4:
                from protocol.records.compressed_frames import decompress_frame

                return _join_bounded(decompress_frame(bytes(data)), effort)
            if codec == ZSTD:
                return _decompress_zstd(data, effort)
        except cramjam.DecompressionError as error:
            raise DecompressionError(f"{CODEC_NAMES[codec]}: {error}") from error
    except (ValueError, struct.error, zlib.error) as error:
        raise DecompressionError(f"{CODEC_NAMES[codec]}: {error}") from error
    raise DecompressionError(f"unknown compression type id {codec}")


def compress(codec: int, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """Compress so that Kafka's own clients can read it. Raises `CodecUnavailableError`, `ValueError`."""
    if level is None:
        level = DEFAULT_LEVELS.get(codec, 0)
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return zlib.compress(data, level, _GZIP_WINDOW_BITS)
    cramjam = _cramjam()
    if codec == SNAPPY:
        from protocol.records.compressed_frames import compress_blocks

        return compress_blocks(data)
    if codec == LZ4:
        from protocol.records.compressed_frames import compress_frame

        return compress_frame(data, level)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    raise ValueError(f"unknown compression type id {codec}")


def _cramjam() -> ModuleType:
    try:
        import cramjam
    except ImportError as error:
        raise CodecUnavailableError("snappy, lz4 and zstd need the package cramjam") from error
    module: ModuleType = cramjam
    return module


def _join_bounded(chunks: Iterable[bytes], effort: Effort) -> bytes | memoryview:
    parts: list[bytes] = []
    many: bytearray | None = None
    size = 0
    for pieces, chunk in enumerate(chunks, 1):
        size += len(chunk)
        if size > MAX_DECOMPRESSED_BYTES:
            raise DecompressedTooLargeError(f"more than {MAX_DECOMPRESSED_BYTES} bytes when decompressed")
        if size > effort.unpacked_bytes or pieces > effort.pieces:
            raise TooMuchEffortError
        if many is not None:
            many += chunk
        elif size > _JOINED_BYTES:
            many = bytearray().join([*parts, chunk])
            parts.clear()
        else:
            parts.append(chunk)
    return b"".join(parts) if many is None else memoryview(many)


def _gunzip(data: bytes | bytearray | memoryview) -> Iterator[bytes]:
    """Decompress consecutive members. Other data after them is ignored, as in Java's GZIPInputStream.

    Input and output are processed in pieces: a thread holds the interpreter while it copies, and the rest of
    the input is copied for each member.
    """
    pos, end = 0, len(data)
    view = memoryview(data)
    first = True
    while first or bytes(view[pos : pos + 2]) == b"\x1f\x8b":
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        while not member.eof and pos < end:
            fed = view[pos : pos + _PACKED_PIECE_BYTES]
            pos += len(fed)
            yield member.decompress(fed, _UNPACKED_PIECE_BYTES)
            while member.unconsumed_tail and not member.eof:
                yield member.decompress(member.unconsumed_tail, _UNPACKED_PIECE_BYTES)
        if not member.eof:
            raise ValueError("the stream ends too early")
        pos -= len(member.unused_data)
        first = False


def _decompress_zstd(data: bytes | bytearray | memoryview, effort: Effort) -> bytes | memoryview:
    cramjam = _cramjam()
    likely = bytearray(min(MAX_DECOMPRESSED_BYTES, effort.unpacked_bytes, 4 * len(data) + 16384))
    try:
        size: int = cramjam.zstd.decompress_into(data, likely)
        unpacked = memoryview(likely)[:size]
        return unpacked if size > _JOINED_BYTES else bytes(unpacked)
    except cramjam.DecompressionError as error:
        if effort is not ANY:
            if not _is_too_small_a_buffer(error):
                raise
            return _decompress_little_zstd(data, effort)
        # The data compresses better than most, or is corrupt. So this uses the largest buffer. The kernel only
        # provides the pages that are written, but that is slower than the buffer above. The last view of the
        # buffer frees it.
        largest = mmap.mmap(-1, MAX_DECOMPRESSED_BYTES)
        try:
            size = cramjam.zstd.decompress_into(data, largest)
        except cramjam.DecompressionError as error:
            if _is_too_small_a_buffer(error):
                raise DecompressedTooLargeError(str(error)) from error
            raise
        return memoryview(largest)[:size]


def _decompress_little_zstd(data: bytes | bytearray | memoryview, effort: Effort) -> bytes:
    """Decompress data that compresses better than most and is still small."""
    cramjam = _cramjam()
    space = bytearray(effort.unpacked_bytes)
    try:
        size: int = cramjam.zstd.decompress_into(data, space)
    except cramjam.DecompressionError as again:
        if _is_too_small_a_buffer(again):
            raise TooMuchEffortError from None
        raise
    return bytes(memoryview(space)[:size])


def _is_too_small_a_buffer(error: Exception) -> bool:
    return "whole buffer" in str(error)
