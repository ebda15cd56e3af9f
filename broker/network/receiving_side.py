"""The half of a connection that receives: a buffer for the frame at hand, and the memory that it may take."""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from typing import TYPE_CHECKING

from broker.network.connection_states import ConnectionState
from broker.network.frames import MAX_CONTROL_REQUEST_BYTES, MOST_PRODUCED
from broker.network.sending_side import Requests, SendingSide

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.network.answers import PendingAnswer
    from broker.network.memory import Memory

_SIZE = struct.Struct(">i")
_PRODUCE = bytes(2)  # as the api key
_GONE = ConnectionState.GONE

INITIAL_BUFFER_BYTES = 16 * 1024  # what each idle connection holds
RETAINED_BUFFER_BYTES = 4 * 1024 * 1024  # a buffer that once held a larger frame is let go
DECODED_TIMES = 16  # what a request takes as objects, in times of its bytes: more where its entries are tiny

# A Produce is nearly all records, which stay where they are. What counts is its topics and partitions.
PRODUCED_ENTRY_BYTES = 768  # of each, as objects, with what is answered to it
_SMALLEST_ENTRY = 3  # bytes of a request: a topic with neither a name nor partitions
_ROOM_TO_PRODUCE = MOST_PRODUCED * PRODUCED_ENTRY_BYTES  # enough for any


def most_produced(size: int) -> int:
    """The entries that a Produce of so many bytes may have."""
    return min(size // _SMALLEST_ENTRY, MOST_PRODUCED)


class ReceivingSide(SendingSide):
    """What a `Connection` is that receives, beside that it sends."""

    __slots__ = (
        "_buffer",
        "_end",
        "_held_bytes",
        "_object_bytes",
        "_pending",
        "_room_end",
        "_start",
        "_view",
        "_waits_for_memory",
        "reading_paused",
    )

    def __init__(self, requests: Requests, scheduler: Scheduler, memory: Memory) -> None:
        super().__init__(requests, scheduler, memory)
        self.reading_paused = False
        self._held_bytes = 0  # of the memory for requests
        self._object_bytes = 0  # of those, for what a request becomes
        self._waits_for_memory = False
        self._buffer = bytearray(INITIAL_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0  # where the next frame starts
        self._end = 0  # where the bytes received end
        self._room_end = 0  # where they end if they fill what was given for them
        self._pending: PendingAnswer | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for more bytes: up to the end of the frame at hand, where that is known."""
        start, end = self._start, self._end
        if not end:
            self._room_end = len(self._buffer)
            return self._view  # as most often: all that came before is served
        if end - start >= 4:
            frame_end = start + 4 + _SIZE.unpack_from(self._buffer, start)[0]
            if end < frame_end <= len(self._buffer):
                self._room_end = frame_end
                return self._view[end:frame_end]
        if end == len(self._buffer):
            self._make_room()
            end = self._end
        self._room_end = len(self._buffer)
        return self._view[end:]

    @property
    def is_receiving(self) -> bool:
        """Whether a part of a request is there, and the rest is up to the client."""
        return self._pending is None and self._state is not _GONE and self._end > self._start

    def _is_too_large(self, size: int) -> bool:
        """Whether the frame at hand can be refused by its size alone, without any memory for it."""
        return (
            size > MAX_CONTROL_REQUEST_BYTES
            and self._end - self._start >= 6
            and not self._buffer.startswith(_PRODUCE, self._start + 4)
        )

    def _ask_for_room(self, transport: asyncio.Transport) -> None:
        """Where the frame at hand needs a larger buffer and there is no memory for it, stop reading until there is."""
        size = len(self._buffer)
        if self._end - self._start <= size // 2:
            return
        if self._memory.requests.ask(self, size, self._has_room):
            self._held_bytes += size
        else:
            self._waits_for_memory = True
            transport.pause_reading()

    def _has_room(self) -> None:
        self._held_bytes += len(self._buffer)
        self._read_on()

    def _may_decode(self, size: int) -> bool:
        """Whether there is memory for the objects that a request becomes, but for records; else it waits for that.

        Of a Produce it isn't known before, and with few partitions it is next to nothing: where there is room for the
        most that there may be, it is decoded in this turn, and counted in this turn by `hold_produced`.
        """
        requests = self._memory.requests
        if not self._buffer.startswith(_PRODUCE, self._start + 4):
            needed_bytes = DECODED_TIMES * size
        elif requests.held_bytes + _ROOM_TO_PRODUCE <= requests.most_bytes:
            return True
        else:
            needed_bytes = PRODUCED_ENTRY_BYTES * most_produced(size)
            if requests.has_room(needed_bytes) or not self._is_of_many(size):
                return True
        more_bytes = min(needed_bytes, requests.most_bytes) - self._object_bytes
        if more_bytes <= 0:
            return True
        if requests.ask(self, more_bytes, partial(self._can_decode, more_bytes)):
            self._held_bytes += more_bytes
            self._object_bytes += more_bytes
            return True
        if not self._waits_for_memory and self.transport is not None:
            self._waits_for_memory = True
            self.transport.pause_reading()
        return False

    def _is_of_many(self, size: int) -> bool:
        """Whether the Produce at hand has many entries, where memory is short."""
        if self._object_bytes or self._waits_for_memory:
            return True  # as was seen before
        start = self._start + 4
        return self._requests.is_of_many(self._view[start : start + size])

    def _can_decode(self, more_bytes: int) -> None:
        self._held_bytes += more_bytes
        self._object_bytes += more_bytes
        self._call_soon(self._may_serve)

    def hold_produced(self, entries: int) -> None:
        """The Produce at hand has so many topics and partitions: they count until it is answered."""
        more_bytes = PRODUCED_ENTRY_BYTES * entries - self._object_bytes
        if more_bytes > 0:
            self._memory.requests.hold(self, more_bytes)
            self._held_bytes += more_bytes
            self._object_bytes += more_bytes

    def _is_decoded_no_more(self) -> None:
        """Neither the objects of the last request are held, nor a buffer of its own."""
        self._object_bytes = 0
        self._free(len(self._buffer) - INITIAL_BUFFER_BYTES)

    def _read_on(self) -> None:
        """There is the memory that this has waited for."""
        self._waits_for_memory = False
        if self.transport is not None and not self.transport.is_closing() and not self.reading_paused:
            self.transport.resume_reading()

    def _wait_to_answer(self, transport: asyncio.Transport) -> None:
        self._memory.answers.when_room(self, self._may_serve)
        if not self._waits_for_memory:
            self._waits_for_memory = True
            transport.pause_reading()

    def _may_serve(self) -> None:
        self._read_on()
        self._serve_if_free()

    def shrink(self) -> None:
        """Give back what is held for requests to come."""
        if self._pending is not None or self._state is _GONE or self._object_bytes:
            return
        size = self._room_for_what_is_left()
        if size < len(self._buffer):
            self._move_into(size)
            self._free(size - INITIAL_BUFFER_BYTES)

    def _free(self, still_held_bytes: int) -> None:
        freed_bytes = self._held_bytes - still_held_bytes
        if freed_bytes > 0:
            self._held_bytes = still_held_bytes
            self._memory.requests.free(self, freed_bytes)

    def _make_room(self) -> None:
        """Move what is left of the bytes to the front, into a larger buffer where a frame needs it.

        A buffer grows by doubling while a frame's bytes really arrive: its announced length alone allocates nothing.
        """
        left = self._end - self._start
        size = len(self._buffer)
        if self._pending is not None:
            # The request in work may hold views of the old buffer: its bytes must stay where they are.
            size = self._room_for_what_is_left()
        elif left > size // 2:
            size *= 2
        if self._pending is not None or size != len(self._buffer):
            self._move_into(size)
        else:
            self._view[:left] = self._view[self._start : self._end]
            self._start, self._end = 0, left

    def _room_for_what_is_left(self) -> int:
        size = INITIAL_BUFFER_BYTES
        while self._end - self._start >= size:
            size *= 2
        return size

    def _move_into(self, size: int) -> None:
        """What is left, to the front of another buffer: requests before it may still be in use."""
        left = self._end - self._start
        fresh = bytearray(size)
        fresh[:left] = self._view[self._start : self._end]
        self._buffer, self._view = fresh, memoryview(fresh)
        self._start, self._end = 0, left

    def _bound_backlog(self) -> None:
        """While an answer waits, let the client send a little ahead (so that a hang-up is seen), then stop reading."""
        if self.reading_paused or self.transport is None:
            return
        if self._end - self._start >= INITIAL_BUFFER_BYTES:
            self.reading_paused = True
            self.transport.pause_reading()
