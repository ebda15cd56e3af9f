"""The work that checking one batch may take, for callers that can't wait.

A few kilobytes may decompress to hundreds of megabytes, and one record may have millions of headers. That
only becomes known on the way. A check with a small budget breaks off without any change, and is then done
again where it doesn't hold up others.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class TooMuchEffortError(Exception):
    """The check takes more than was allowed. This says nothing about the batch."""


class Effort(NamedTuple):
    """The limits for one check."""

    packed_bytes: int
    """The size of a compressed batch."""
    unpacked_bytes: int
    pieces: int
    """Blocks or members of a compressed batch; headers of all records."""
    records: int
    suspects: int
    """The records of a batch that have to be checked one by one."""
    rebuilt_bytes: int
    """The size of a batch that is recompressed."""


LITTLE: Final = Effort(
    packed_bytes=4 << 20,
    unpacked_bytes=4 << 20,
    pieces=2_000,
    records=25_000,
    suspects=4_000,
    rebuilt_bytes=64 << 10,
)
"""At most some 15 ms. Nearly all batches stay within it."""

_NO_END = 1 << 62
ANY: Final = Effort(_NO_END, _NO_END, _NO_END, _NO_END, _NO_END, _NO_END)

MOST_BESIDE_OTHERS = 32 << 20
"""The most decompressed bytes of a batch that is checked beside others. Larger ones are in memory one at a time."""

BRIEF: Final = Effort(
    packed_bytes=16 << 20,
    unpacked_bytes=8 << 20,
    pieces=20_000,
    records=100_000,
    suspects=40_000,
    rebuilt_bytes=4 << 20,
)
"""At most half a second. It is tried before checks that may take long, so that these only wait for each other."""

MOST_OF_REQUEST = 1 << 30
"""The most decompressed bytes of all batches of one request, without those that are small."""


class Unpacked:
    """The decompressed size of a batch, for callers that count it."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


MODERATE: Final = ANY._replace(unpacked_bytes=MOST_BESIDE_OTHERS)
"""Any time, but little memory."""
