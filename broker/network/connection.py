"""One client's connection: frames in, answers out, one request in work at a time.

A `BufferedProtocol` receives into a buffer of its own, so that a Produce request is checked, patched and written
to the log where the kernel put it. Kafka serves one request of a connection at a time and answers in order
(`KafkaChannel.mute`). barnabas does the same: it doesn't cut the next frame before it knows the answer to the last one.

Answers that are ready together leave in one write. `broker.network.connection_states` lists what may keep a connection
from serving.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from broker.environment.scheduler import IN_A_ROW_S, LONGEST_HOLD_S, TURN_S
from broker.network.answers import (
    JOINED_ANSWER_BYTES,
    MAX_CONTROL_REQUEST_BYTES,
    MOST_PRODUCED,
    WRITTEN_CHUNKS,
    Chunk,
    CloseConnectionError,
    Requests,
    hint,
    joined,
)
from broker.network.connection_states import TRANSITIONS, Action, ConnectionState, Event
from broker.network.left_behind import LeftBehind
from broker.network.unsent import Sending, Unsent
from broker.security.authorizer import ANONYMOUS
from protocol.errors import BrokenInvariantError, CodecError
from storage.files import FileRange

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.network.answers import PendingAnswer
    from broker.network.memory import Memory
    from broker.network.sasl_gate import SaslGate
    from broker.security.authorizer import Principal


# --- The sending half of a connection: answers in order, as fast as its client takes them ---------------------

log = logging.getLogger("barnabas.connection")

WRITE_HIGH_WATER_BYTES = 64 * 1024  # a client that leaves more unread isn't served until it has read it all


class SendingSide(asyncio.BufferedProtocol):
    """The sending half of a `Connection`. It calls `_serve_if_free` once the client has read all answers."""

    __slots__ = (
        "_call_later",
        "_call_soon",
        "_closes_because",
        "_is_closed",
        "_memory",
        "_requests",
        "_state",
        "_time",
        "_unsent",
        "last_active_s",
        "peer_host",
        "peer_port",
        "transport",
    )

    def __init__(self, requests: Requests, scheduler: Scheduler, memory: Memory) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer_host = ""
        self.peer_port = 0
        self.last_active_s = 0.0
        self._memory = memory
        self._requests = requests
        self._state = ConnectionState.SERVING
        self._unsent: Unsent | None = None  # answers with ranges of files that the socket didn't take at once
        self._closes_because: str | None = None  # why it closes once nothing is unsent
        self._is_closed = False  # by this broker: requests that have come are dropped
        self._time = scheduler.time
        self._call_soon = scheduler.call_soon
        self._call_later = scheduler.call_later

    def __str__(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"

    def _serve_if_free(self) -> None:
        """Serve the next requests, unless other connections have their turn."""
        raise NotImplementedError

    def _happens(self, event: Event) -> Action:
        self._state, action = TRANSITIONS[self._state][event]
        if action is Action.IMPOSSIBLE:
            raise BrokenInvariantError(f"{event.name} at a connection that is {self._state.name}")
        return action

    def unread_bytes(self) -> int:
        """The bytes in memory of answers that the client hasn't read."""
        if self.transport is None:
            return 0
        unread_bytes = self.transport.get_write_buffer_size()
        return unread_bytes if self._unsent is None else unread_bytes + self._unsent.held_bytes

    def pause_writing(self) -> None:
        self._happens(Event.CLIENT_IS_SLOW)
        self._memory.answers.hold(self, self.unread_bytes())

    def resume_writing(self) -> None:
        if self._unsent is None or self._send_on():
            self._memory.answers.hold(self, 0)
            self._client_has_read()
        else:  # only now: else each piece that a client takes now and then would give it new time
            self._memory.answers.hold(self, self.unread_bytes())

    def write_behind_unread(self, chunks: list[Chunk]) -> None:
        """Write while the client may have left other answers unread: the transport reports nothing about more bytes."""
        self._write(chunks)
        if ConnectionState.UNREAD <= self._state < ConnectionState.GONE:
            self._memory.answers.hold(self, self.unread_bytes())

    def _client_has_read(self) -> None:
        if self._happens(Event.CLIENT_HAS_READ) is Action.SERVE:
            self._serve_if_free()

    def _write(self, chunks: list[Chunk]) -> None:
        if not chunks or self.transport is None or self.transport.is_closing():
            return
        self.last_active_s = self._time()
        if self._unsent is not None:
            self._unsent.add(chunks)
            self._memory.answers.hold(self, self.unread_bytes())
        elif len(chunks) == 1:
            self.transport.write(chunks[0])  # type: ignore[arg-type]  # no range is alone: a size goes before it
        elif FileRange in map(type, chunks):
            self._unsent = Unsent(self.transport, self._memory.passage)
            self._unsent.add(chunks)
            self._send_on()
        elif sum(map(len, chunks)) <= JOINED_ANSWER_BYTES:
            self.transport.write(b"".join(cast("list[bytes]", chunks)))
        else:
            few = chunks if len(chunks) <= WRITTEN_CHUNKS else joined(chunks)
            self.transport.writelines(cast("list[bytes | bytearray | memoryview]", few))

    def _send_on(self) -> bool:
        """Send what is unsent as far as the socket takes it. Returns True if that was all."""
        transport, unsent = self.transport, self._unsent
        if transport is None or unsent is None or transport.is_closing():
            return False
        self.last_active_s = self._time()
        try:
            progress = unsent.go_on()
        except ConnectionError as error:
            log.debug("the connection of %s is lost: %s", self, error)
            transport.abort()
            return False
        except OSError as error:
            self.abort(f"its answer can't be read to the end: {error}")
            return False
        except MemoryError:  # nobody knows how much was sent
            self.abort("there is too little memory to send its answer")
            return False
        if progress is Sending.DONE:
            self._unsent = None
            transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
            if self._closes_because is not None:
                self.close(self._closes_because)
            return True
        if progress is Sending.FULL:
            # the transport reports at once that it is full, and later when all is taken
            transport.set_write_buffer_limits(high=unsent.told_from_bytes)
        else:
            self._happens(Event.CLIENT_IS_SLOW)
            self._call_soon(self._send_in_next_turn)
        return False

    def _send_in_next_turn(self) -> None:
        if self._unsent is not None and self._send_on():
            self._memory.answers.hold(self, 0)
            self._client_has_read()

    def close(self, reason: str) -> None:
        """Close once the answers so far are sent, and log the reason."""
        self._is_closed = True
        if self._unsent is not None and self._closes_because is None:
            self._closes_because = reason
        elif self.transport is not None and not self.transport.is_closing():
            log.info("closing the connection of %s: %s", self, reason)
            self.transport.close()

    def fail(self, error: BaseException) -> None:
        """Close after an error of the broker. A broken invariant stops the whole broker."""
        self._is_closed = True
        self._requests.failed(self, error)
        if self._unsent is not None:
            self._closes_because = "a request failed"
        elif self.transport is not None and not self.transport.is_closing():
            self.transport.close()  # after the answers to earlier requests

    def hang_up(self) -> None:
        """Close once the answers so far are sent."""
        self._is_closed = True
        if self.transport is not None:
            self.transport.close()

    def abort(self, reason: str) -> None:
        """Close at once, dropping what the client has not read."""
        self._is_closed = True
        if self.transport is not None:
            log.info("aborting the connection of %s: %s", self, reason)
            self.transport.abort()


# --------------------------------------------------------------------------------------------------------------
# The receiving half of a connection: a buffer for the frame at hand, and the memory that it may take.

_SIZE = struct.Struct(">i")
_PRODUCE = bytes(2)  # as the api key
_GONE = ConnectionState.GONE

INITIAL_BUFFER_BYTES = 16 * 1024  # the buffer of each idle connection
RETAINED_BUFFER_BYTES = 4 * 1024 * 1024  # a larger buffer is released once its frame is served
DECODED_TIMES = 16  # the objects of a request take so many times its bytes; more if its entries are tiny

# A Produce is nearly all records, which stay where they are. Only its topics and partitions count.
PRODUCED_ENTRY_BYTES = 768  # the objects of each, and of its answer
_SMALLEST_ENTRY = 3  # bytes of a request: a topic with neither a name nor partitions
_ROOM_TO_PRODUCE = MOST_PRODUCED * PRODUCED_ENTRY_BYTES  # enough for any Produce


def most_produced(size: int) -> int:
    """The entries that a Produce of so many bytes may have."""
    return min(size // _SMALLEST_ENTRY, MOST_PRODUCED)


class ReceivingSide(SendingSide):
    """The receiving half of a `Connection`."""

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
        self._held_bytes = 0  # what it holds of the memory for requests
        self._object_bytes = 0  # the part of it for the objects of a request
        self._waits_for_memory = False
        self._buffer = bytearray(INITIAL_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0  # where the next frame starts
        self._end = 0  # where the bytes received end
        self._room_end = 0  # where they would end if they filled the room that `get_buffer` gave
        self._pending: PendingAnswer | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for more bytes: up to the end of the frame at hand, if that is known."""
        start, end = self._start, self._end
        if not end:
            self._room_end = len(self._buffer)
            return self._view  # the usual case: all that came before is served
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
        """True if a part of a request has come, and the rest is up to the client."""
        return self._pending is None and self._state is not _GONE and self._end > self._start

    def _is_too_large(self, size: int) -> bool:
        """True if the frame at hand can be refused by its size alone, before it takes any memory."""
        return (
            size > MAX_CONTROL_REQUEST_BYTES
            and self._end - self._start >= 6
            and not self._buffer.startswith(_PRODUCE, self._start + 4)
        )

    def _ask_for_room(self, transport: asyncio.Transport) -> None:
        """If the frame at hand needs a larger buffer and there is no memory for it, stop reading until there is."""
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
        """True if there is memory for the objects of a request, records not counted. Else the connection waits for it.

        How much a Produce needs isn't known before it is decoded; with few partitions it is next to nothing. If there
        is room for the largest possible Produce, it is decoded in this turn, and `hold_produced` then counts it.
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
        """True if the Produce at hand has many entries. This is asked only when memory is short."""
        if self._object_bytes or self._waits_for_memory:
            return True  # it was found to have many before
        start = self._start + 4
        return self._requests.is_of_many(self._view[start : start + size])

    def _can_decode(self, more_bytes: int) -> None:
        self._held_bytes += more_bytes
        self._object_bytes += more_bytes
        self._call_soon(self._may_serve)

    def hold_produced(self, entries: int) -> None:
        """Count the memory for the topics and partitions (`entries`) of the Produce at hand until it is answered."""
        more_bytes = PRODUCED_ENTRY_BYTES * entries - self._object_bytes
        if more_bytes > 0:
            self._memory.requests.hold(self, more_bytes)
            self._held_bytes += more_bytes
            self._object_bytes += more_bytes

    def _is_decoded_no_more(self) -> None:
        """Release the memory for the objects of the last request, and for a larger buffer that is gone."""
        self._object_bytes = 0
        self._free(len(self._buffer) - INITIAL_BUFFER_BYTES)

    def _read_on(self) -> None:
        """Read on: the memory that it waited for is there."""
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
        """Give back memory that is held for future requests."""
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
        """Move the bytes that are left to the front, into a larger buffer if a frame needs it.

        A buffer doubles while a frame's bytes really arrive: its announced length alone allocates nothing.
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
        """Move the bytes that are left to the front of another buffer: the old one may still be in use."""
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


# --------------------------------------------------------------------------------------------------------------


UNWRITTEN_BYTES = 1024 * 1024  # most bytes of answers that are gathered for one write

_SERVING = ConnectionState.SERVING


class Admitting(Protocol):
    """The listener that accepted the connection (`broker.network.listener`)."""

    name: str

    @property
    def connections(self) -> Collection[Connection]:
        """The connections that it has let in."""
        ...

    def admit(self, connection: Connection) -> str | None:
        """Count the connection. Returns and logs why it has to close, if there are too many."""
        ...

    def refused_sasl(self, client: str, mechanism: str) -> None:
        """Log, now and then, that a client wants to sign in to a listener without SASL."""
        ...

    def not_signed_in(self, client: str, mechanism: str, why: str) -> None:
        """Log, now and then, that a client couldn't sign in."""
        ...

    def forget(self, connection: Connection) -> None:
        """The connection is closed."""
        ...


class Connection(ReceivingSide):
    """A connection accepted by a listener."""

    __slots__ = (
        "_has_ended",
        "_left_behind",
        "_max_frame_bytes",
        "_next_turn",
        "_served_s",
        "_served_until_s",
        "_throttle",
        "client_software",
        "gate",
        "is_encrypted",
        "listener",
        "principal",
        "when_lost",
    )

    def __init__(self, listener: Admitting, requests: Requests, scheduler: Scheduler, memory: Memory) -> None:
        super().__init__(requests, scheduler, memory)
        self.listener = listener
        self.principal = ANONYMOUS
        self.gate: SaslGate | None = None  # if clients have to sign in
        self.is_encrypted = False
        self.client_software: tuple[str, str] | None = None
        self.when_lost: Callable[[], None] | None = None
        """Called once the connection is gone and its requests are done. Share sessions that it opened set this."""
        self._max_frame_bytes = memory.max_frame_bytes
        self._throttle: Scheduled | None = None  # the end of throttling, while it is throttled
        self._next_turn: Scheduled | None = None  # set while it has frames and other connections go first
        self._served_s = 0.0  # how long its requests were served with no other connection in between
        self._served_until_s = 0.0
        self._has_ended = False  # the client sends no more
        self._left_behind: LeftBehind | None = (
            None  # set while requests of a client that has gone are carried out
        )

    # --- asyncio's side -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.peer_host, self.peer_port = peer[0], peer[1]
        self.last_active_s = self._time()
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        if self.listener.admit(self) is not None:
            self.hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            # Clients that break off are everyday. Any other end of a connection should be rare.
            everyday = self.is_encrypted or isinstance(exc, ConnectionError | TimeoutError)
            level = logging.DEBUG if everyday else logging.WARNING
            log.log(level, "the connection of %s is lost: %s", self, exc)
        self.transport = None
        self._happens(Event.LOST)
        for scheduled in (self._throttle, self._next_turn):
            if scheduled is not None:
                scheduled.cancel()
        self._throttle = self._next_turn = None
        self._memory.answers.forget(self)
        pending, self._pending = self._pending, None
        self._left_behind = LeftBehind(self, self._requests, self._call_soon, self._is_over)
        breaks_off = exc is not None and not self._is_closed and self._unsent is None
        self._unsent = None
        self._left_behind.carry_out(
            pending, self._view[self._start : self._end if breaks_off else self._start]
        )

    def _is_over(self) -> None:
        """No request is in work any more. Release the buffer, even if something still refers to this connection."""
        self._left_behind = None
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._memory.requests.forget(self)
        self.listener.forget(self)
        when_lost, self.when_lost = self.when_lost, None
        if when_lost is not None:
            when_lost()

    def hang_up(self) -> None:
        """Close once the answers so far are sent."""
        super().hang_up()
        self._leave_nothing()

    def abort(self, reason: str) -> None:
        """Close at once, dropping what the client has not read."""
        super().abort(reason)
        self._leave_nothing()

    def _leave_nothing(self) -> None:
        if self._left_behind is not None:
            self._left_behind.give_up()

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self.last_active_s = self._time()
        if self._state is not _SERVING or self._next_turn is not None:
            self._bound_what_waits()
        elif self._end < self._room_end:
            self._serve()
            self._served_s = 0.0
        else:  # the loop reads on before it looks at other sockets: libuv does, up to 32 times
            self._serve()

    def eof_received(self) -> bool:
        """Serve and answer the whole requests that the client has sent, then close. So does Kafka: it reads on, and
        finds the end, once earlier requests are answered. Reading stays paused from now on."""
        self._has_ended = self.reading_paused = True
        is_busy = self._state is not _SERVING or self._next_turn is not None or self._waits_for_memory
        return is_busy and not self.is_encrypted  # asyncio would close an encrypted one all the same

    # --- frames ---------------------------------------------------------------------------------------------

    def _serve(self, answered: list[Chunk] | None = None) -> None:
        """Serve every whole frame at hand until something prevents it; other connections get turns in between.

        `answered`: an answer that is written with theirs, and before them. (librdkafka leaves its first connection at
        the first answer of Metadata: if the second comes a moment later, it asks again after 50 ms.)
        """
        if self.transport is None or self.transport.is_closing():
            return
        out: list[Chunk] = []
        waiting_bytes = 0
        if answered:
            out = answered
            waiting_bytes = sum(map(len, out))
        requests = self._requests
        frame = self._view
        began_s = requests.monotonic_s()
        if began_s - self._served_until_s > IN_A_ROW_S:  # meanwhile others were served, or nothing had come
            self._served_s = 0.0
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
                if size > MAX_CONTROL_REQUEST_BYTES and self._is_too_large(size):
                    raise CloseConnectionError(f"a request of {size} bytes, which only Produce may have")
                if have < size + 4:
                    break
                if self._memory.answers.is_full:
                    self._wait_to_answer(self.transport)
                    break
                if self._served_s > IN_A_ROW_S and self._has_had_its_turn():
                    self._next_turn = self._call_soon(self._let_others_in)
                    break
                if size > INITIAL_BUFFER_BYTES and not self._may_decode(size):
                    break
                start += 4
                self._start = end = start + size
                frame = self._view[start:end]
                answer = requests.serve(self, frame)
                now_s = requests.monotonic_s()
                took_s = now_s - began_s
                if took_s > LONGEST_HOLD_S:
                    requests.held(self, frame, took_s)
                self._served_s += took_s
                self._served_until_s = began_s = now_s
                if answer is None:
                    continue
                if isinstance(answer, list):
                    out += answer
                    if end == self._end:
                        break  # that was all
                    waiting_bytes += sum(map(len, answer))
                    if waiting_bytes > UNWRITTEN_BYTES:
                        # This write shows whether the client reads: if it doesn't, `pause_writing` ends the loop.
                        self._write(out)
                        out, waiting_bytes = [], 0
                else:
                    self._happens(Event.ANSWER_PENDING)
                    self._pending = answer
                    answer.when_answered(self._answer_is_there)
                    break
        except (CodecError, CloseConnectionError) as error:
            requests.held(self, frame, requests.monotonic_s() - began_s)
            self._write(out)
            self.close(str(error))
            return
        except Exception as error:
            requests.held(self, frame, requests.monotonic_s() - began_s)
            self._write(out)
            self.fail(error)
            return
        self._write(out)
        if self._start == self._end and not (self._held_bytes or self._pending or self.reading_paused):
            self._start = self._end = 0  # the usual case: all is answered, and no memory is held
        else:
            self._go_on_receiving()

    def _has_had_its_turn(self) -> bool:
        """True if others go first. A lone connection gives way late, or producers of large batches lose a hundredth."""
        return len(self.listener.connections) > 1 or self._served_s > TURN_S

    def _go_on_receiving(self) -> None:
        """After serving: release what isn't needed any more, and prepare to receive more."""
        if self._object_bytes and self._pending is None:
            self._is_decoded_no_more()
        if self._pending is None:
            if len(self._buffer) > RETAINED_BUFFER_BYTES or self._memory.requests.is_short:
                self.shrink()
            if self._start == self._end:
                self._start = self._end = 0
        if self._state is not _SERVING or self._next_turn is not None:
            self._bound_what_waits()
            return
        if self._waits_for_memory or self.transport is None or self.transport.is_closing():
            return
        if self.reading_paused:
            if self._has_ended:
                self.hang_up()
                return
            self.reading_paused = False
            self.transport.resume_reading()
        if self._end == len(self._buffer):
            self._ask_for_room(self.transport)

    def _bound_what_waits(self) -> None:
        """Bytes that have come aren't served now. Until its next turn the connection reads on into the room that it
        has: stopping and starting again costs a producer of large batches a twelfth of its throughput."""
        if self._state is not _SERVING or self._end == len(self._buffer):
            self._bound_backlog()

    def _let_others_in(self) -> None:
        """Wait in line. The loop looks at its sockets after the due callbacks. It would find this one first, since it
        had more to read before, and then those that got bytes since. So it looks once without this one."""
        self._next_turn = self._memory.next_turns.wait(self._serve_on)

    def _serve_on(self) -> float:
        """Serve on, after other connections had their turn. Returns how many seconds that took."""
        self._next_turn = None
        self._served_s = 0.0
        self._serve_if_free()
        return self._served_s

    def _serve_if_free(self) -> None:
        if self._state is _SERVING and self._next_turn is None:
            self._serve()

    def _answer_is_there(self) -> None:
        """Called in the middle of other work, by the code that replies. The answer is taken after that work."""
        self._requests.soon(self._answered)

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
        serves = self._happens(Event.ANSWERED) is Action.SERVE
        if answer is not None and not (serves and sum(map(len, answer)) <= UNWRITTEN_BYTES):
            self.write_behind_unread(answer)
            answer = None
        if serves:
            self._serve(answered=answer)

    def mute(self, for_ms: int) -> None:
        """Serve no further request of this connection for a while: its client is above a quota (KIP-219)."""
        if self.transport is None:
            return
        if self._throttle is not None:
            self._throttle.cancel()
        self._throttle = self._call_later(for_ms / 1000, self._unmute)
        self._happens(Event.THROTTLED)

    @property
    def is_let_in(self) -> bool:
        """True if the connection is neither refused nor about to be."""
        return self._state is _SERVING and self.transport is not None and not self.transport.is_closing()

    def encrypted(self, transport: asyncio.Transport, principal: Principal) -> None:
        """Use this encrypted transport from now on. `principal` is the client's, by its certificate."""
        self.is_encrypted = True
        self.transport = transport
        self.principal = principal
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)

    def pass_through(self, gate: SaslGate, max_frame_bytes: int) -> None:
        """Have the client sign in first, with requests of at most `max_frame_bytes`."""
        self.gate = gate
        self._requests = gate
        self._max_frame_bytes = max_frame_bytes

    def signed_in(self, principal: Principal, requests: Requests) -> None:
        """The client has signed in as `principal`; `requests` serves it from now on."""
        self.principal = principal
        self._requests = requests
        self._max_frame_bytes = self._memory.max_frame_bytes

    def answer_and_hang_up(self, answer: list[Chunk]) -> None:
        """Send a last answer, and close."""
        self._write(answer)
        self.hang_up()

    def refuse_after(self, delay_ms: int) -> None:
        """Serve nothing, and close in a while: its address connects too often (KIP-612)."""
        self._happens(Event.THROTTLED)
        self._throttle = self._call_later(delay_ms / 1000, self.close, "its address connects too often")

    def _unmute(self) -> None:
        self._throttle = None
        if self._happens(Event.THROTTLE_OVER) is Action.SERVE:
            self._serve()
