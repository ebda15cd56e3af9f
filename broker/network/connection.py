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
from typing import TYPE_CHECKING, Protocol, cast

from broker.environment.scheduler import IN_A_ROW_S, LONGEST_HOLD_S, TURN_S
from broker.network.answers import Chunk, CloseConnectionError
from broker.network.connection_states import Action, ConnectionState, Event
from broker.network.frames import MAX_CONTROL_REQUEST_BYTES, hint
from broker.network.left_behind import LeftBehind
from broker.network.receiving_side import INITIAL_BUFFER_BYTES, RETAINED_BUFFER_BYTES, ReceivingSide
from broker.network.sending_side import WRITE_HIGH_WATER_BYTES, Requests
from broker.security.authorizer import ANONYMOUS
from protocol.errors import CodecError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.network.memory import Memory

log = logging.getLogger("barnabas.connection")

_SIZE = struct.Struct(">i")

UNWRITTEN_BYTES = 1024 * 1024  # of answers that are gathered for one write

_SERVING = ConnectionState.SERVING


class Admitting(Protocol):
    """Who accepted the connection (`broker.network.listener`)."""

    name: str

    @property
    def connections(self) -> Collection[Connection]:
        """Those that it has let in."""
        ...

    def admit(self, connection: Connection) -> str | None:
        """Why it has to close, where there are too many, which is logged then."""
        ...

    def refused_sasl(self, client: str, mechanism: str) -> None:
        """A client asks for what isn't built: that is logged, now and then."""
        ...

    def forget(self, connection: Connection) -> None:
        """It is closed."""
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
        "listener",
        "principal",
        "when_lost",
    )

    def __init__(self, listener: Admitting, requests: Requests, scheduler: Scheduler, memory: Memory) -> None:
        super().__init__(requests, scheduler, memory)
        self.listener = listener
        self.principal = ANONYMOUS
        self.client_software: tuple[str, str] | None = None
        self.when_lost: Callable[[], None] | None = None
        """Called once it is gone, behind what it has left: of a share session that was opened on it."""
        self._max_frame_bytes = memory.max_frame_bytes
        self._throttle: Scheduled | None = None  # until it is over
        self._next_turn: Scheduled | None = None  # where frames are at hand that others go before
        self._served_s = 0.0  # for so long its requests were, and nobody else in between
        self._served_until_s = 0.0
        self._has_ended = False  # the client's side
        self._left_behind: LeftBehind | None = (
            None  # while what a client that is gone has left is carried out
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
            # A client that breaks off is everyday. What else ends a connection by itself should not be.
            level = logging.DEBUG if isinstance(exc, ConnectionError | TimeoutError) else logging.WARNING
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
        """Nothing is in work any more of what came. The buffer goes now, whoever still holds this."""
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
        """Close behind what is answered already."""
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
        else:  # and the loop reads on before it looks at others: libuv does, up to 32 times
            self._serve()

    def eof_received(self) -> bool:
        """What the client has sent whole is served, and answered, before this closes. So it is in Kafka, which reads
        on, and finds the end, once the requests before it are answered. Reading stays paused from now on."""
        self._has_ended = self.reading_paused = True
        return self._state is not _SERVING or self._next_turn is not None or self._waits_for_memory

    # --- frames ---------------------------------------------------------------------------------------------

    def _serve(self, answered: list[Chunk] | None = None) -> None:
        """Serve every whole frame at hand, for as long as nothing keeps us from it; others are let in between.

        `answered`: what is written with their answers, and before them. (librdkafka leaves its first connection at the
        first answer of Metadata: where the second comes a moment later, it asks anew, 50 ms on.)
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
        if began_s - self._served_until_s > IN_A_ROW_S:  # for others, or nobody had sent anything
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
                        # Now it shows whether the client reads: if it doesn't, `pause_writing` ends this loop.
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
            self._start = self._end = 0  # nearly always: all is answered, and nothing was needed for it
        else:
            self._go_on_receiving()

    def _has_had_its_turn(self) -> bool:
        """Who is alone gives way to nobody, which costs a producer of large batches a hundredth."""
        return len(self.listener.connections) > 1 or self._served_s > TURN_S

    def _go_on_receiving(self) -> None:
        """After serving: let go of what isn't needed any more, and see that what comes next can come."""
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
        """What has come isn't served now. Until the next turn it is read on into the room that there is: to stop and to
        begin again costs a producer of large batches a twelfth of what it sends."""
        if self._state is not _SERVING or self._end == len(self._buffer):
            self._bound_backlog()

    def _let_others_in(self) -> None:
        """The loop is yet to look at its sockets, behind what is called soon. Of those it would find this one first, as
        one that had more to read before, and then whoever has sent something since: so it looks once without it."""
        self._next_turn = self._memory.next_turns.wait(self._serve_on)

    def _serve_on(self) -> float:
        """The turn is over that others were let in for. How long its requests take in this one."""
        self._next_turn = None
        self._served_s = 0.0
        self._serve_if_free()
        return self._served_s

    def _serve_if_free(self) -> None:
        if self._state is _SERVING and self._next_turn is None:
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
        serves = self._happens(Event.ANSWERED) is Action.SERVE
        if answer is not None and not (serves and sum(map(len, answer)) <= UNWRITTEN_BYTES):
            self._write_behind_unread(answer)
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
