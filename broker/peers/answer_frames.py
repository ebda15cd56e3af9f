"""Answers as they come in: frames out of a stream, in a buffer that grows as their bytes arrive."""

from __future__ import annotations

import struct

_SIZE = struct.Struct(">i")

INITIAL_BUFFER_BYTES = 16 * 1024
RETAINED_BUFFER_BYTES = 4 * 1024 * 1024
"""A buffer that once held a larger answer is let go."""
MOST_ANSWER_BYTES = 1024 * 1024 * 1024
"""One batch may be larger than any `fetch.max.bytes`. Kafka's clients among brokers have no limit."""


class AnswerFrames:
    """The bytes of one connection. An answer is read before more bytes are asked for."""

    __slots__ = ("_buffer", "_end", "_view")

    def __init__(self) -> None:
        self._buffer = bytearray(INITIAL_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0

    def room(self) -> memoryview:
        """Where the next bytes go: at most to the end of the frame at hand."""
        if self._end == len(self._buffer):
            self._grow()
        if self._end < _SIZE.size:
            return self._view[self._end : _SIZE.size]
        frame_end = _SIZE.size + self._size()
        return self._view[self._end : min(frame_end, len(self._buffer))]

    def came(self, count: int) -> memoryview | None:
        """So many bytes more are there. Returns the frame behind its size, if it is whole: its bytes are the caller's.

        Raises ValueError where the size makes no sense.
        """
        self._end += count
        if self._end < _SIZE.size:
            return None
        size = self._size()
        if not _SIZE.size <= size <= MOST_ANSWER_BYTES:
            raise ValueError(f"an answer of {size} bytes")
        if self._end < _SIZE.size + size:
            return None
        frame = self._view[_SIZE.size : self._end]
        fresh = INITIAL_BUFFER_BYTES if len(self._buffer) > RETAINED_BUFFER_BYTES else len(self._buffer)
        self._buffer = bytearray(fresh)
        self._view = memoryview(self._buffer)
        self._end = 0
        return frame

    def _size(self) -> int:
        size: int = _SIZE.unpack_from(self._buffer)[0]
        return size

    def _grow(self) -> None:
        """By doubling while a frame's bytes really arrive: the announced size alone allocates nothing."""
        size = min(2 * len(self._buffer), _SIZE.size + self._size())
        fresh = bytearray(size)
        fresh[: self._end] = self._view[: self._end]
        self._buffer, self._view = fresh, memoryview(fresh)
