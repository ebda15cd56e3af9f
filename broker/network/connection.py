"""One client's connection: frames in, answers out, one request in work at a time.

A `BufferedProtocol` receives into a buffer of its own, so that a Produce request is checked, patched and written
to the log where the kernel put it. Kafka serves one request of a connection at a time and answers in order
(`KafkaChannel.mute`); so do we, by not cutting the next frame before the answer to the last one is known.

Answers that are ready together leave in one write. What may keep a connection from serving stands in
`broker.network.connection_states`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from broker.environment.watchdog import LONGEST_HOLD_S, TURN_S
from broker.network.answers import Chunk, CloseConnectionError, PendingAnswer
from broker.network.connection_states import Action, ConnectionState, Event
from broker.network.frames import hint
from broker.network.sending_side import WRITE_HIGH_WATER_BYTES, Requests, SendingSide
from broker.security.principal import ANONYMOUS
from protocol.errors import CodecError

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.network.memory import Memory

log = logging.getLogger("barnabas.connection")

_SIZE = struct.Struct(">i")
_PRODUCE = bytes(2)  # as the api key

INITIAL_BUFFER_BYTES = 16 * 1024  # what each idle connection holds
RETAINED_BUFFER_BYTES = 4 * 1024 * 1024  # a buffer that once held a larger frame is let go
DECODED_TIMES = 16  # what a request takes as objects, in times of its bytes: more where its entries are tiny
UNWRITTEN_BYTES = 1024 * 1024  # of answers that are gathered for one write

_SERVING = ConnectionState.SERVING


class Admitting(Protocol):
    """Who accepted the connection (`broker.network.listener`)."""

    name: str

    def admit(self, connection: Connection) -> str | None:
        """Why it has to close, where there are too many."""
        ...

    def forget(self, connection: Connection) -> None:
        """It is closed."""
        ...


class Connection(SendingSide):
    """A connection accepted by a listener."""

    __slots__ = (
        "_buffer",
        "_end",
        "_has_memory_to_decode",
        "_held_bytes",
        "_max_frame_bytes",
        "_next_turn",
        "_pending",
        "_start",
        "_throttle",
        "_view",
        "_waits_for_memory",
        "client_software",
        "listener",
        "principal",
        "reading_paused",
    )

    def __init__(self, listener: Admitting, requests: Requests, scheduler: Scheduler, memory: Memory) -> None:
        super().__init__(requests, scheduler, memory)
        self.listener = listener
        self.principal = ANONYMOUS
        self.client_software: tuple[str, str] | None = None
        self.reading_paused = False
        self._max_frame_bytes = memory.max_frame_bytes
        self._held_bytes = 0  # of the memory for requests
        self._has_memory_to_decode = False
        self._waits_for_memory = False
        self._buffer = bytearray(INITIAL_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0  # where the next frame starts
        self._end = 0  # where the bytes received end
        self._pending: PendingAnswer | None = None
        self._throttle: Scheduled | None = None  # until it is over
        self._next_turn: Scheduled | None = None  # where frames are at hand that others go before

    # --- asyncio's side -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.peer_host, self.peer_port = peer[0], peer[1]
        self.last_active_s = self._time()
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        refusal = self.listener.admit(self)
        if refusal is not None:
            self.close(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            # A client that breaks off is everyday. What else ends a connection by itself should not be.
            level = logging.DEBUG if isinstance(exc, ConnectionError | TimeoutError) else logging.WARNING
            log.log(level, "the connection of %s is lost: %s", self, exc)
        self.transport = None
        self._happens(Event.LOST)
        self.listener.forget(self)
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None
        self._unsent = None
        self._memory.requests.forget(self)
        self._memory.answers.forget(self)
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.abandon()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for more bytes: up to the end of the frame at hand, where that is known."""
        start, end = self._start, self._end
        if end - start >= 4:
            frame_end = start + 4 + _SIZE.unpack_from(self._buffer, start)[0]
            if end < frame_end <= len(self._buffer):
                return self._view[end:frame_end]
        if end == len(self._buffer):
            self._make_room()
            end = self._end
        return self._view[end:]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self.last_active_s = self._time()
        if self._state is _SERVING and self._next_turn is None:
            self._serve()
        else:
            self._bound_backlog()

    def eof_received(self) -> bool:
        if self._unsent is not None:
            self.close("the client has ended its side")
            return True
        return False  # half-open connections are of no use to Kafka's clients: close

    # --- frames ---------------------------------------------------------------------------------------------

    @property
    def is_receiving(self) -> bool:
        """Whether a part of a request is there, and the rest is up to the client."""
        return self._pending is None and self._end > self._start

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
        """Whether there is memory for the objects that a request becomes, but for records; else it waits for that."""
        if self._has_memory_to_decode or self._buffer.startswith(_PRODUCE, self._start + 4):
            return True
        requests = self._memory.requests
        more_bytes = min(DECODED_TIMES * size, requests.most_bytes)
        if requests.ask(self, more_bytes, partial(self._can_decode, more_bytes)):
            self._held_bytes += more_bytes
            self._has_memory_to_decode = True
        elif not self._waits_for_memory and self.transport is not None:
            self._waits_for_memory = True
            self.transport.pause_reading()
        return self._has_memory_to_decode

    def _can_decode(self, held_bytes: int) -> None:
        self._held_bytes += held_bytes
        self._has_memory_to_decode = True
        self._call_soon(self._may_serve)

    def _is_decoded_no_more(self) -> None:
        """Neither the objects of the last request are held, nor a buffer of its own."""
        self._has_memory_to_decode = False
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
        if self._state is _SERVING and self._next_turn is None:
            self._serve()

    def shrink(self) -> None:
        """Give back what is held for requests to come."""
        if self._end == self._start and self._pending is None and len(self._buffer) > INITIAL_BUFFER_BYTES:
            self._start = self._end = 0
            self._buffer = bytearray(INITIAL_BUFFER_BYTES)
            self._view = memoryview(self._buffer)
            self._free(0)

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
            size = INITIAL_BUFFER_BYTES
            while left >= size:
                size *= 2
        elif left > size // 2:
            size *= 2
        if self._pending is not None or size != len(self._buffer):
            fresh = bytearray(size)
            fresh[:left] = self._view[self._start : self._end]
            self._buffer, self._view = fresh, memoryview(fresh)
        else:
            self._buffer[:left] = self._buffer[self._start : self._end]
        self._start, self._end = 0, left

    def _serve(self) -> None:
        """Serve every whole frame at hand, for as long as nothing keeps us from it; others are let in between."""
        if self.transport is None or self.transport.is_closing():
            return
        out: list[Chunk] = []
        waiting_bytes = 0
        monotonic_s = self._requests.monotonic_s
        turn_began_s = began_s = monotonic_s()
        frame = self._view[:0]
        unread = self._memory.answers
        try:
            while self._state is _SERVING:
                start = self._start
                have = self._end - start
                if have < 4:
                    break
                size = _SIZE.unpack_from(self._buffer, start)[0]
                if size < 0 or size > self._max_frame_bytes:
                    raise CloseConnectionError(
                        f"a frame of {size} bytes{hint(size)}; socket.request.max.bytes is {self._max_frame_bytes}"
                    )
                if have < size + 4:
                    break
                if unread.is_full:
                    self._wait_to_answer(self.transport)
                    break
                if began_s - turn_began_s > TURN_S:
                    self._next_turn = self._call_soon(self._serve_on)
                    break
                if size > INITIAL_BUFFER_BYTES and not self._may_decode(size):
                    break
                self._start = start + 4 + size
                frame = self._view[start + 4 : start + 4 + size]
                answer = self._requests.serve(self, frame)
                now_s = monotonic_s()
                if now_s - began_s > LONGEST_HOLD_S:
                    self._requests.held(self, frame, now_s - began_s)
                began_s = now_s
                if answer is None:
                    continue
                if isinstance(answer, list):
                    out += answer
                    waiting_bytes += sum(map(len, answer))
                    if waiting_bytes > UNWRITTEN_BYTES:
                        # Now it shows whether the client reads: if it doesn't, `pause_writing` ends this loop.
                        self._write(out)
                        out, waiting_bytes = [], 0
                else:
                    self._happens(Event.ANSWER_PENDING)
                    self._pending = answer
                    answer.when_answered(self._answer_is_there)
                    break
        except (CodecError, CloseConnectionError) as error:
            self._requests.held(self, frame, monotonic_s() - began_s)
            self._write(out)
            self.close(str(error))
            return
        except Exception as error:
            self._requests.held(self, frame, monotonic_s() - began_s)
            self._write(out)
            self.fail(error)
            return
        self._write(out)
        if self._has_memory_to_decode and self._pending is None:
            self._is_decoded_no_more()
        if self._start == self._end and self._pending is None:
            if len(self._buffer) > RETAINED_BUFFER_BYTES or self._memory.requests.is_short:
                self.shrink()
            self._start = self._end = 0
        if self._state is not _SERVING or self._next_turn is not None:
            self._bound_backlog()
            return
        if self._waits_for_memory or self.transport is None or self.transport.is_closing():
            return
        if self.reading_paused:
            self.reading_paused = False
            self.transport.resume_reading()
        if self._end == len(self._buffer):
            self._ask_for_room(self.transport)

    def _serve_on(self) -> None:
        """The turn is over that others were let in for."""
        self._next_turn = None
        if self._state is _SERVING:
            self._serve()

    def _answer_is_there(self) -> None:
        """Called by who replies, in the middle of other work: what follows from it gets its own turn of the loop."""
        self._call_soon(self._answered)

    def _answered(self) -> None:
        pending = self._pending
        if pending is None:  # the client has hung up meanwhile
            return
        self._is_decoded_no_more()
        try:
            answer = pending.take()
        except Exception as error:
            self._pending = None
            self._happens(Event.ANSWERED)
            if isinstance(error, CodecError | CloseConnectionError):
                self.close(str(error))
            else:
                self.fail(error)
            return
        if answer is not None and not isinstance(answer, list):
            self._pending = answer
            answer.when_answered(self._answer_is_there)
            return
        self._pending = None
        action = self._happens(Event.ANSWERED)
        if answer is not None:
            self._write(answer)
        if action is Action.SERVE:
            self._serve()

    def _bound_backlog(self) -> None:
        """While an answer waits, let the client send a little ahead (so that a hang-up is seen), then stop reading."""
        if self.reading_paused or self.transport is None:
            return
        if self._end - self._start >= INITIAL_BUFFER_BYTES:
            self.reading_paused = True
            self.transport.pause_reading()

    def mute(self, for_ms: int) -> None:
        """Serve no further request of this connection for a while: its client is above a quota (KIP-219)."""
        if self.transport is None:
            return
        if self._throttle is not None:
            self._throttle.cancel()
        self._throttle = self._call_later(for_ms / 1000, self._unmute)
        self._happens(Event.THROTTLED)

    def refuse_after(self, delay_ms: int) -> None:
        """Serve nothing, and close in a while: its address connects too often (KIP-612)."""
        self._happens(Event.THROTTLED)
        self._throttle = self._call_later(
            delay_ms / 1000, self.close, "its address makes connections too fast"
        )

    def _unmute(self) -> None:
        self._throttle = None
        if self._happens(Event.THROTTLE_OVER) is Action.SERVE:
            self._serve()
