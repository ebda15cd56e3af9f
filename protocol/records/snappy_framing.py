"""Snappy as Kafka's clients write it: blocks behind a header of their own, or one plain block.

The Java client frames as the library xerial/snappy-java does: a header of 16 bytes, then {int32 size, block} … ;
librdkafka writes a single plain block. Kafka reads both. The framing of the snappy project itself is a third one
that Kafka doesn't know. Source: org.xerial.snappy SnappyOutputStream, SnappyInputStream.
"""

from collections.abc import Iterator
from struct import Struct

import cramjam

from protocol.records.effort import ANY, Effort, TooMuchEffortError

MAGIC = b"\x82SNAPPY\x00"
_HEADER = MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version and the least compatible one
_INT32 = Struct(">i")
_BLOCK_BYTES = 32 * 1024
"""Of uncompressed data, as in SnappyOutputStream."""


def compress_blocks(data: bytes | bytearray | memoryview) -> bytes:
    """The framed form."""
    view = memoryview(data)
    parts = [_HEADER]
    for start in range(0, len(view), _BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _BLOCK_BYTES]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def decompress_blocks(data: bytes, max_block_bytes: int, effort: Effort = ANY) -> Iterator[bytes]:
    """Each block's uncompressed bytes. Raises `ValueError`, `struct.error`, `cramjam.DecompressionError`,
    `TooMuchEffortError`.

    A block names its uncompressed size, and so much is allocated: more than `max_block_bytes` is refused before.
    """
    if not data.startswith(MAGIC):
        yield _decompress_block(data, max_block_bytes, effort)
        return
    if len(data) < len(_HEADER):
        raise ValueError("the stream ends within its header")
    pos = len(_HEADER)
    while len(data) - pos >= _INT32.size:
        if data.startswith(MAGIC, pos):  # another stream behind the first
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
