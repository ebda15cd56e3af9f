"""How much work the check of one batch may be, for those who can't be held up by it.

A few kilobytes unpack to hundreds of megabytes, and one record may have millions of headers. How much it is shows only
on the way: a check that was allowed little breaks off, with nothing changed, and is done again where it harms nobody.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class TooMuchEffortError(Exception):
    """The check takes more than was allowed. It says nothing about the batch."""


class Effort(NamedTuple):
    """How much may be done."""

    packed_bytes: int
    """Of a compressed batch."""
    unpacked_bytes: int
    pieces: int
    """Blocks or members of a compressed batch; headers of all records."""
    records: int
    suspects: int
    """Records of a batch in which some may be wrong, or need none of the checks that they take."""
    rebuilt_bytes: int
    """Of a batch that is compressed anew."""


LITTLE: Final = Effort(
    packed_bytes=4 << 20,
    unpacked_bytes=4 << 20,
    pieces=2_000,
    records=25_000,
    suspects=4_000,
    rebuilt_bytes=64 << 10,
)
"""Some 15 ms at most, and what nearly all producers send."""

_NO_END = 1 << 62
ANY: Final = Effort(_NO_END, _NO_END, _NO_END, _NO_END, _NO_END, _NO_END)

MOST_BESIDE_OTHERS = 32 << 20
"""What a batch may unpack to that is checked beside others. Of those that unpack to more one is in memory at a time."""

BRIEF: Final = Effort(
    packed_bytes=16 << 20,
    unpacked_bytes=8 << 20,
    pieces=20_000,
    records=100_000,
    suspects=40_000,
    rebuilt_bytes=4 << 20,
)
"""Half a second at most: tried before what may take long, so that it waits for its like alone."""

MOST_OF_REQUEST = 1 << 30
"""What the batches of one request may unpack to in all, those aside that are little."""


class Unpacked:
    """What a batch has unpacked to, for those who count it."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


MODERATE: Final = ANY._replace(unpacked_bytes=MOST_BESIDE_OTHERS)
"""However long it takes, but in little memory."""
