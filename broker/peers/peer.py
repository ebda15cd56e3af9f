"""Another node that this one asks: a connection when one is needed, its versions, one request at a time.

    answer = await peer.ask(request)    # raises KafkaError

Below stands the connection: frames go out, answers come in, in a buffer that grows as their bytes arrive.
Source: `NetworkClient` with one request in flight, `InterBrokerSendThread`, `BrokerBlockingSender`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from broker.peers.opening import OPEN, Entrance, NotLetInError, Versions, opened, signed_in
from protocol.apis import encode_request_frame, response_body
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.metadata import ApiVersionsRequest
from protocol.waiting import Later
from protocol.wire.codec import decode
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.environment.network import Network
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.peers.opening import Channel, OpenedConnection
    from protocol.waiting import Waiting

log = logging.getLogger("barnabas.peers")


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


# --- A connection: frames go out, answers come in, and its end is told once ---------------------------------


class PeerConnection(asyncio.BufferedProtocol):
    """`made` is told that it stands, encrypted where it has to be; `answered` each answer's frame, `ended` why it is
    over; nothing comes after that, and nothing after `close`."""

    def __init__(
        self,
        made: Callable[[], None],
        answered: Callable[[memoryview], None],
        ended: Callable[[str], None],
        channel: Channel | None = None,
    ) -> None:
        """`channel` encrypts it."""
        self._made = made
        self._answered = answered
        self._ended = ended
        self._frames = AnswerFrames()
        self._transport: asyncio.Transport | None = None
        self._channel = channel
        self._is_over = False
        self.has_reached = False
        """Whether somebody was at the other end, whatever has become of it."""

    def send(self, frame: bytes) -> None:
        """A whole frame, its size in front. It goes nowhere once this is over."""
        if self._is_over:
            return
        assert self._transport is not None
        if self._channel is None:
            self._transport.write(frame)
            return
        self._step(partial(self._channel.encrypt, frame))

    def close(self) -> None:
        """Nobody is told. Nothing is asked of the transport from now on: uvloop's raises what a closed one can't do."""
        self._is_over = True
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    # --- asyncio's side -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        if self._is_over:
            made.abort()
            return
        self._transport = made
        self.has_reached = True
        if self._channel is None:
            self._made()
        else:
            self._decrypt(self._channel)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.room() if self._channel is None else self._channel.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._channel is None:
            self._came(nbytes)
        elif not self._is_over:
            self._channel.came(nbytes)
            self._decrypt(self._channel)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("it closed the connection" if exc is None else str(exc))

    # --- what comes -----------------------------------------------------------------------------------------

    def _came(self, count: int) -> None:
        """So many bytes more of a frame."""
        try:
            frame = self._frames.came(count)
        except ValueError as error:
            self._end(str(error))
            return
        if frame is not None and not self._is_over:
            self._answered(frame)

    def _decrypt(self, channel: Channel) -> None:
        """Go on with what has come: the handshake first, and frames behind it."""
        if not channel.is_ready:
            if not self._step(channel.shake):
                return
            self._made()
        while not self._is_over and (count := self._step(partial(channel.read, self._frames.room()))):
            self._came(count)

    def _step(self, step: Callable[[], int | None]) -> int:
        """A step of the encryption, and what comes of it; where it fails the end is told. Either way what it has to say
        goes out."""
        assert self._channel is not None
        count, why = 0, None
        try:
            count = step() or 0
        except OSError as error:
            why = str(error)
        if self._transport is not None and (data := self._channel.to_send()):
            self._transport.write(data)
        if why is not None:
            transport, self._transport = self._transport, None
            if transport is not None:
                transport.close()  # behind the alert
            self._end(why)
        return count

    def _end(self, reason: str) -> None:
        if self._is_over:
            return
        self.close()
        self._ended(reason)


# --- The node -----------------------------------------------------------------------------------------------


OPENING_S = 30.0
"""How long a node may take to let this one in where not everybody is, whoever has asked and gone meanwhile (Kafka:
`socket.connection.setup.timeout.max.ms`)."""

_UNSUPPORTED_VERSION = Error.UNSUPPORTED_VERSION.to_bytes(2, "big")


class PeerState(Enum):
    """Of the connection, and of what is asked."""

    APART = "there is no connection, nor is one needed"
    WAITING = "something is asked, and the last attempt to connect is too near"
    CONNECTING = "something is asked, and a connection is being made"
    OPENING = "something is asked, and the node signs in and asks for the versions first"
    ASKED = "something is asked"
    FREE = "there is a connection, and nothing is asked"
    STOPPED = "nothing is asked any more"


_BEING_OPENED = frozenset((PeerState.CONNECTING, PeerState.OPENING))


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Times in ms."""

    client_id: str
    software_version: str
    request_timeout_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    """From one attempt to connect to the next. It doubles with each that fails, up to:"""
    reconnect_backoff_max_ms: int = 50
    """Kafka's brokers take 50, its Raft channel 500. (Theirs differ by up to a fifth from attempt to attempt.)"""
    idle_ms: int = 600_000
    entrance: Entrance = OPEN


class Peer:
    """A node at an address. Whoever asks awaits the answer before the next one. KafkaError, whose message has the
    address, says why there is none:

    NETWORK_EXCEPTION where it can't be reached, the connection ends, or the answer makes no sense; REQUEST_TIMED_OUT;
    UNSUPPORTED_VERSION where there is no version in common, or that one can't say what is asked.
    """

    def __init__(
        self, host: str, port: int, settings: PeerSettings, network: Network, scheduler: Scheduler
    ) -> None:
        self.host = host
        self.port = port
        self.state = PeerState.APART
        self._settings = settings
        self._network = network
        self._scheduler = scheduler
        self._connection: PeerConnection | None = None
        self.versions: Versions = {}
        """As it has told them; none as long as it hasn't."""
        self._opening: Waiting[Any] | None = None
        self._opened_by: type[Message] = ApiVersionsRequest  # what was sent last for it
        self._signs_in_at_s: float | None = None  # again, before what is sent from then on
        self._tried_s: float | None = None  # when the last attempt to connect was made
        self._failures = 0  # to connect, in a row
        self._correlation_id = 0
        self._request: Message | None = None
        self._version: int | None = None
        self._sent_version = 0
        self._answer: Later[Message] | None = None
        self._timeout: Scheduled | None = None
        self._timer: Scheduled | None = None

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"

    def ask(
        self, request: Message, *, version: int | None = None, timeout_ms: float | None = None
    ) -> Later[Message]:
        """`version` None: the latest that both have. It is answered in a later turn."""
        assert self._answer is None, "one request at a time"
        assert self.state is not PeerState.STOPPED
        answer: Later[Message] = Later()
        self._request, self._version, self._answer = request, version, answer
        timeout_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        self._timeout = self._scheduler.call_later(timeout_ms / 1000, self._timed_out)
        if self.state is PeerState.FREE:
            self._send_or_sign_in()
        elif self.state not in _BEING_OPENED:  # else for a request whose time was over
            self._connect_when_due()
        return answer

    def forget(self) -> None:
        """What is asked isn't wanted any more: nobody is told, and the connection, whose answer would come, ends."""
        if self._answer is not None:
            self._take().abandon()
            self._disconnect()

    def stop(self) -> None:
        """The connection ends, and nobody is told of anything."""
        self.forget()
        self._disconnect()
        self.state = PeerState.STOPPED

    # --- to a connection ------------------------------------------------------------------------------------

    def _connect_when_due(self) -> None:
        wait_s = self._backoff_s()
        if wait_s > 0:
            self.state = PeerState.WAITING
            self._timer = self._scheduler.call_later(wait_s, self._connect)
        else:
            self._connect()

    def _backoff_s(self) -> float:
        """How long the next attempt has to wait."""
        if self._tried_s is None:
            return 0.0
        settings = self._settings
        doubled = settings.reconnect_backoff_ms << min(max(self._failures - 1, 0), 20)
        return self._tried_s + min(doubled, settings.reconnect_backoff_max_ms) / 1000 - self._scheduler.time()

    def _connect(self) -> None:
        self.state = PeerState.CONNECTING
        self._tried_s = self._scheduler.time()
        self._failures += 1  # until it is ready
        encrypt = self._settings.entrance.encrypt
        try:
            channel = None if encrypt is None else encrypt(self.host)
        except ValueError as error:
            reason = f"it has no name that a certificate could be for: {error}"
            self._scheduler.call_soon(self._refused, None, OSError(reason))
            return
        connection = PeerConnection(self._connected, self._answered, self._failed, channel)
        self._connection = connection
        self._limit_opening()
        refused = partial(self._refused, connection)
        self._network.connect(self.host, self.port, lambda: connection, refused)

    def _refused(self, connection: PeerConnection | None, error: OSError) -> None:
        if connection is self._connection:  # else it was given up before
            self._failed(error.strerror or str(error))

    def _connected(self) -> None:
        settings = self._settings
        self._open(opened(settings.entrance, settings.software_version), self._is_open)

    def _is_open(self, found: OpenedConnection) -> None:
        self._failures = 0
        self.versions = found.versions
        self._has_signed_in(found.lifetime_ms)

    def _has_signed_in(self, lifetime_ms: int) -> None:
        entrance = self._settings.entrance
        self._signs_in_at_s = (
            self._scheduler.time() + entrance.again_after_s(lifetime_ms) if lifetime_ms > 0 else None
        )
        self._send()

    def _send_or_sign_in(self) -> None:
        """A session that is soon over is renewed before anything else is asked."""
        due_s = self._signs_in_at_s
        if due_s is None or self._scheduler.time() < due_s:
            self._send()
            return
        self._limit_opening()
        self._open(signed_in(self._settings.entrance, self.versions), self._has_signed_in)

    def _open(self, opening: Waiting[Any], then: Callable[[Any], None]) -> None:
        self.state = PeerState.OPENING
        self._opening = opening
        self._then = then
        self._go_on(None)

    def _limit_opening(self) -> None:
        """The opening has a time limit of its own, and goes on for whoever asks next when a request has waited for as
        long as it may: else one that waits less than an opening takes would never come through."""
        self._cancel_timer()
        if self._settings.entrance.is_guarded:
            reason = f"it hasn't let this node in within {OPENING_S:g} s"
            self._timer = self._scheduler.call_later(OPENING_S, self._failed, reason)

    def _go_on(self, answer: Message | None) -> None:
        """With the opening, which waited for this answer."""
        opening = self._opening
        assert opening is not None
        try:
            request, version = opening.send(answer)
            self._opened_by = type(request)
            self._send_frame(request, version)
        except StopIteration as end:
            self._opening = None
            self._then(end.value)
        except (NotLetInError, CodecError) as error:
            self._failed(str(error))

    # --- a request and its answer ---------------------------------------------------------------------------

    def _send(self) -> None:
        self._cancel_timer()
        request = self._request
        if request is None:  # its time was over before the connection stood
            self.state = PeerState.FREE
            self._rest()
            return
        version = self._common_version(type(request)) if self._version is None else self._version
        self.state = PeerState.ASKED  # before it is sent, which may be the connection's end
        try:
            if version is None:
                raise CodecError("there is no version in common")
            self._send_frame(request, version)
        except CodecError as error:
            log.info("%s can't be asked for %s: %s", self.name, type(request).__name__, error)
            self.state = PeerState.FREE
            self._rest()
            self._scheduler.call_soon(self._has_no_version, request)

    def _send_frame(self, request: Message, version: int) -> None:
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        self._sent_version = version
        frame = encode_request_frame(request, version, self._correlation_id, self._settings.client_id)
        assert self._connection is not None
        self._connection.send(frame)

    def _common_version(self, request: type[Message]) -> int | None:
        first, last = request.VERSIONS
        there_first, there_last = self.versions.get(request.API_KEY, (0, -1))
        version = min(last, there_last)
        return version if version >= max(first, there_first) else None

    def _answered(self, frame: memoryview) -> None:
        is_opening = self.state is PeerState.OPENING
        if is_opening:
            asked = self._opened_by
        elif self.state is PeerState.ASKED and self._request is not None:
            asked = type(self._request)
        else:
            self._failed("it answered what nobody asked")
            return
        try:
            answer = self._decoded(frame, asked)
        except CodecError as error:
            self._failed(f"its answer makes no sense: {error}")
            return
        if is_opening:
            self._go_on(answer)
            return
        self.state = PeerState.FREE
        self._rest()
        self._take().reply(answer)

    def _decoded(self, frame: memoryview, request: type[Message]) -> Message:
        """Raises CodecError."""
        version = self._sent_version
        body = response_body(frame, request, version, self._correlation_id)
        if request is ApiVersionsRequest and frame[body : body + 2] == _UNSUPPORTED_VERSION:
            version = 0  # as whoever doesn't know the version that was asked answers
        return decode(response_type(request), version, frame, body)

    # --- what ends it ---------------------------------------------------------------------------------------

    def _timed_out(self) -> None:
        reason = f"{self.name} hasn't answered in time"
        log.info("%s", reason)
        if self.state not in _BEING_OPENED or not self._settings.entrance.is_guarded:
            self._disconnect()
        self._take().fail(KafkaError(Error.REQUEST_TIMED_OUT, reason))

    def _failed(self, reason: str) -> None:
        log.debug("%s: %s", self.name, reason)
        entrance = self._settings.entrance
        has_reached = self._connection is not None and self._connection.has_reached
        if entrance.is_guarded and has_reached and self.state in (PeerState.CONNECTING, PeerState.OPENING):
            entrance.complain(self.name, reason, self._scheduler.time())
        self._disconnect()
        if self._answer is not None:
            self._take().fail(KafkaError(Error.NETWORK_EXCEPTION, f"{self.name}: {reason}"))

    def _rest(self) -> None:
        """A connection that isn't used ends after a while."""
        self._cancel_timer()
        self._timer = self._scheduler.call_later(self._settings.idle_ms / 1000, self._disconnect)

    def _disconnect(self) -> None:
        self._cancel_timer()
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self.state is not PeerState.STOPPED:
            self.state = PeerState.APART

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _has_no_version(self, request: Message) -> None:
        if self._request is request:  # and it is still wanted
            reason = f"{self.name} has no version of {type(request).__name__} in common with this node"
            self._take().fail(KafkaError(Error.UNSUPPORTED_VERSION, reason))

    def _take(self) -> Later[Message]:
        """What is waited for: nothing is asked any more."""
        answer = self._answer
        assert answer is not None
        self._request = self._answer = None
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        return answer


class OnePeer:
    """Whoever is to be asked now: who was asked before, at another address, is asked no more."""

    def __init__(self, settings: PeerSettings, network: Network, scheduler: Scheduler) -> None:
        self._settings = settings
        self._network = network
        self._scheduler = scheduler
        self.peer: Peer | None = None

    def at(self, host: str, port: int) -> Peer:
        """The same one for as long as the address is."""
        peer = self.peer
        if peer is None or (peer.host, peer.port) != (host, port):
            self.stop()
            peer = self.peer = Peer(host, port, self._settings, self._network, self._scheduler)
        return peer

    def stop(self) -> None:
        """Nobody is asked any more."""
        if self.peer is not None:
            self.peer.stop()
            self.peer = None


def response_type(request: type[Message]) -> type[Message]:
    """What answers a request: it is declared beside it."""
    name = request.__name__.removesuffix("Request") + "Response"
    found: type[Message] = getattr(sys.modules[request.__module__], name)
    return found
