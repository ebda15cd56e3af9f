"""The bytes of frames: what the size in front of one may be where it is none, and chunks of answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from broker.network.answers import Chunk
from storage.files import FileRange

MAX_CONTROL_REQUEST_BYTES = 8 * 1024 * 1024
"""A few bytes of a request become an object of some hundred; only Produce's records stay bytes. Kafka has no such
limit."""

MOST_PRODUCED = 30_000
"""Topics and partitions of a Produce that is longer than 64 KiB."""

JOINED_ANSWER_BYTES = 256 * 1024  # below this, one copy is cheaper than a vector of buffers


def hint(size: int) -> str:
    """What else the four bytes of a size may be: the beginning of TLS's hello, or of a line of HTTP."""
    start = size.to_bytes(4, "big", signed=True)
    if start[:2] == b"\x16\x03":
        return " (this looks like TLS, and the listener is plaintext)"
    if start in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI"):
        return " (this looks like HTTP)"
    return ""


def joined(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Fewer chunks of the same bytes: neighbours are joined, but for what is in a file or large by itself."""
    fewer: list[Chunk] = []
    small = bytearray()
    for chunk in chunks:
        stays = isinstance(chunk, FileRange) or len(chunk) > JOINED_ANSWER_BYTES
        if small and (stays or len(small) + len(chunk) > JOINED_ANSWER_BYTES):
            fewer.append(small)
            small = bytearray()
        if stays:
            fewer.append(chunk)
        else:
            small += cast("bytes", chunk)
    if small:
        fewer.append(small)
    return fewer
