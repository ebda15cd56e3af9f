"""The frame around each request and response: a size (int32) of what follows, then so many bytes."""

import struct
from typing import Final

from protocol.errors import CodecError
from protocol.primitives import Bytes

SIZE_BYTES: Final = 4
DEFAULT_LARGEST_REQUEST_BYTES: Final = 104857600
"""Kafka's default for `socket.request.max.bytes`."""

_SIZE: Final = struct.Struct(">i")


def decode_size(data: Bytes, pos: int = 0, largest: int = DEFAULT_LARGEST_REQUEST_BYTES) -> int:
    """The size at `pos`, of which at least `SIZE_BYTES` bytes must be there.

    CodecError where it's negative or larger than `largest`: to be asked before the frame's bytes are
    waited for.
    """
    size: int = _SIZE.unpack_from(data, pos)[0]
    if not 0 <= size <= largest:
        raise CodecError(f"a frame of {size} bytes, where 0 to {largest} are allowed")
    return size


def encode_size(size: int) -> bytes:
    """The four bytes in front of a frame of `size` bytes."""
    return _SIZE.pack(size)
