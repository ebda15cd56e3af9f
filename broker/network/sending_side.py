"""The half of a connection that sends: answers in order, as its client takes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from broker.network.answers import WRITTEN_CHUNKS, Answer, Chunk, PendingAnswer
from broker.network.connection_states import TRANSITIONS, Action, ConnectionState, Event
from broker.network.frames import JOINED_ANSWER_BYTES, joined
from broker.network.unsent import Sending, Unsent
from protocol.errors import BrokenInvariantError
from storage.files import FileRange

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.network.memory import Memory

log = logging.getLogger("barnabas.connection")

WRITE_HIGH_WATER_BYTES = 64 * 1024  # a client that leaves more unread isn't served until it has read it all


class Requests(Protocol):
    """Who serves the frames (`broker.network.dispatch`)."""

    monotonic_s: Callable[[], float]

    def serve(self, connection: Any, frame: memoryview) -> Answer | PendingAnswer:
        """Raises CodecError, CloseConnectionError where the connection has to close."""
        ...

    def held(self, connection: Any, frame: memoryview, took_s: float) -> None:
        """Serving the frame took so long, which may be too long."""
        ...

    def is_of_many(self, frame: memoryview) -> bool:
        """Whether the Produce in the frame has many topics and partitions."""
        ...

    def failed(self, connection: Any, error: BaseException) -> None:
        """Serving a request ended with an error of ours."""
        ...


class SendingSide(asyncio.BufferedProtocol):
    """What a `Connection` is that sends. `_serve_if_free` is called once its client has read what it was sent."""

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
        self._unsent: Unsent | None = None  # where answers lie in files and the socket takes no more at once
        self._closes_because: str | None = None  # once nothing is unsent
        self._is_closed = False  # by us: what has come is dropped
        self._time = scheduler.time
        self._call_soon = scheduler.call_soon
        self._call_later = scheduler.call_later

    def __str__(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"

    def _serve_if_free(self) -> None:
        """Nothing but a turn of others may keep it from being served."""
        raise NotImplementedError

    def _happens(self, event: Event) -> Action:
        self._state, action = TRANSITIONS[self._state][event]
        if action is Action.IMPOSSIBLE:
            raise BrokenInvariantError(f"{event.name} at a connection that is {self._state.name}")
        return action

    def unread_bytes(self) -> int:
        """What is in memory of answers that the client hasn't read."""
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
        else:  # not before: a client that takes a piece now and then would begin its time anew with each
            self._memory.answers.hold(self, self.unread_bytes())

    def _write_behind_unread(self, chunks: list[Chunk]) -> None:
        """Write where its client may leave others unread: of what comes behind them the transport says nothing."""
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
        """Send what is unsent as far as the socket takes it; whether that was all."""
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
        except MemoryError:  # where it was can't be told
            self.abort("there is too little memory to send its answer")
            return False
        if progress is Sending.DONE:
            self._unsent = None
            transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
            if self._closes_because is not None:
                self.close(self._closes_because)
            return True
        if progress is Sending.FULL:
            # says so at once, and tells us as soon as all is taken
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
        """Close after what is already answered, with the reason logged."""
        self._is_closed = True
        if self._unsent is not None and self._closes_because is None:
            self._closes_because = reason
        elif self.transport is not None and not self.transport.is_closing():
            log.info("closing the connection of %s: %s", self, reason)
            self.transport.close()

    def fail(self, error: BaseException) -> None:
        """An error of our own: this connection can't go on; a broken invariant stops the broker."""
        self._is_closed = True
        self._requests.failed(self, error)
        if self._unsent is not None:
            self._closes_because = "a request failed"
        elif self.transport is not None and not self.transport.is_closing():
            self.transport.close()  # behind the answers to the requests before

    def hang_up(self) -> None:
        """Close behind what is answered already."""
        self._is_closed = True
        if self.transport is not None:
            self.transport.close()

    def abort(self, reason: str) -> None:
        """Close at once, dropping what the client has not read."""
        self._is_closed = True
        if self.transport is not None:
            log.info("aborting the connection of %s: %s", self, reason)
            self.transport.abort()
