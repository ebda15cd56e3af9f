"""Requests to another node: a connection when one is needed, the node's versions, one request at a time.

    answer = await peer.ask(request)    # raises KafkaError

The connection comes first in this file: it sends frames, and receives answers in a buffer that grows as bytes
arrive.

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
"""A larger buffer is released after its answer."""
MOST_ANSWER_BYTES = 1024 * 1024 * 1024
"""One batch may be larger than any `fetch.max.bytes`. Kafka's clients between brokers have no limit."""


class AnswerFrames:
    """The received bytes of one connection. It reads one answer before it asks for more bytes."""

    __slots__ = ("_buffer", "_end", "_view")

    def __init__(self) -> None:
        self._buffer = bytearray(INITIAL_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0

    def room(self) -> memoryview:
        """Return the space for the next bytes, at most up to the end of the current frame."""
        if self._end == len(self._buffer):
            self._grow()
        if self._end < _SIZE.size:
            return self._view[self._end : _SIZE.size]
        frame_end = _SIZE.size + self._size()
        return self._view[self._end : min(frame_end, len(self._buffer))]

    def came(self, count: int) -> memoryview | None:
        """Note received bytes. Returns the frame, without its size, once it is whole. The caller owns its
        bytes.

        Raises ValueError if the size is invalid.
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
        """Grow by doubling, as a frame's bytes arrive. The announced size alone allocates nothing."""
        size = min(2 * len(self._buffer), _SIZE.size + self._size())
        fresh = bytearray(size)
        fresh[: self._end] = self._view[: self._end]
        self._buffer, self._view = fresh, memoryview(fresh)


# --- A connection: sends frames, receives answers, and reports its end once ---------------------------------


class PeerConnection(asyncio.BufferedProtocol):
    """`made` is called once the connection is ready, and encrypted if it has to be. `answered` gets each
    answer's frame. `ended` gets the reason for the end. Nothing is called after that, nor after `close`."""

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
        """True if the other end was reached, whatever happened later."""

    def send(self, frame: bytes) -> None:
        """Send a whole frame that starts with its size. Does nothing once the connection is over."""
        if self._is_over:
            return
        assert self._transport is not None
        if self._channel is None:
            self._transport.write(frame)
            return
        self._step(partial(self._channel.encrypt, frame))

    def close(self) -> None:
        """Close without calling back. The transport isn't used after this: uvloop's raises if it is
        closed."""
        self._is_over = True
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    # --- called by asyncio ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)  # uvloop's transport isn't a subclass of it
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

    # --- receiving ------------------------------------------------------------------------------------------

    def _came(self, count: int) -> None:
        """Handle received bytes of a frame."""
        try:
            frame = self._frames.came(count)
        except ValueError as error:
            self._end(str(error))
            return
        if frame is not None and not self._is_over:
            self._answered(frame)

    def _decrypt(self, channel: Channel) -> None:
        """Handle received bytes: first the handshake, then frames."""
        if not channel.is_ready:
            if not self._step(channel.shake):
                return
            self._made()
        while not self._is_over and (count := self._step(partial(channel.read, self._frames.room()))):
            self._came(count)

    def _step(self, step: Callable[[], int | None]) -> int:
        """Run a step of the encryption and send what it produces. If the step fails, report the end."""
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
                transport.close()  # after the alert
            self._end(why)
        return count

    def _end(self, reason: str) -> None:
        if self._is_over:
            return
        self.close()
        self._ended(reason)


# --- The node -----------------------------------------------------------------------------------------------


OPENING_S = 30.0
"""How long the opening of a guarded connection may take, even if those who asked have gone (Kafka:
`socket.connection.setup.timeout.max.ms`)."""

_UNSUPPORTED_VERSION = Error.UNSUPPORTED_VERSION.to_bytes(2, "big")


class PeerState(Enum):
    """The state of the connection and its request."""

    APART = "there is no connection, and none is needed"
    WAITING = "a request waits for the next attempt to connect"
    CONNECTING = "a request waits for the connection"
    OPENING = "a request waits while the node signs in and asks for the versions"
    ASKED = "a request is in flight"
    FREE = "there is a connection without a request"
    STOPPED = "there are no more requests"


_BEING_OPENED = frozenset((PeerState.CONNECTING, PeerState.OPENING))


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Times are in ms."""

    client_id: str
    software_version: str
    request_timeout_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    """The time between attempts to connect. It doubles with each failure, up to the next setting."""
    reconnect_backoff_max_ms: int = 50
    """Kafka's brokers use 50, its Raft channel 500. (Theirs vary by up to a fifth.)"""
    idle_ms: int = 600_000
    entrance: Entrance = OPEN


class Peer:
    """A node at an address. It takes one request at a time. Failures are KafkaErrors whose message has the
    address:

    NETWORK_EXCEPTION if it can't be reached, the connection ends, or the answer is invalid;
    REQUEST_TIMED_OUT; UNSUPPORTED_VERSION if both have no version in common, or the request can't be
    expressed in it.
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
        """The versions that the node has reported. Empty until then."""
        self._opening: Waiting[Any] | None = None
        self._opened_by: type[Message] = ApiVersionsRequest  # the last request sent while opening
        self._signs_in_at_s: float | None = None  # when to sign in again, before the next request
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
        """Send a request; the answer comes in a later turn. `version` None is the latest version that both
        have."""
        assert self._answer is None, "one request at a time"
        assert self.state is not PeerState.STOPPED
        answer: Later[Message] = Later()
        self._request, self._version, self._answer = request, version, answer
        timeout_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        self._timeout = self._scheduler.call_later(timeout_ms / 1000, self._timed_out)
        if self.state is PeerState.FREE:
            self._send_or_sign_in()
        elif self.state not in _BEING_OPENED:  # otherwise it is being opened for a request that has timed out
            self._connect_when_due()
        return answer

    def forget(self) -> None:
        """Drop the request without an answer. The connection ends, as the answer would still arrive there."""
        if self._answer is not None:
            self._take().abandon()
            self._disconnect()

    def stop(self) -> None:
        """End the connection. Nothing is called back."""
        self.forget()
        self._disconnect()
        self.state = PeerState.STOPPED

    # --- connecting -----------------------------------------------------------------------------------------

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
        if connection is self._connection:  # otherwise it was given up before
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
        """Send the request. Sign in again first if the session ends soon."""
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
        """Limit the time for opening, separately from requests. When a request times out, the opening goes on
        for the next one. Otherwise a request whose timeout is shorter than an opening would never get
        through."""
        self._cancel_timer()
        if self._settings.entrance.is_guarded:
            reason = f"it hasn't let this node in within {OPENING_S:g} s"
            self._timer = self._scheduler.call_later(OPENING_S, self._failed, reason)

    def _go_on(self, answer: Message | None) -> None:
        """Continue the opening with the answer that it waited for."""
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
        if request is None:  # it timed out before the connection was ready
            self.state = PeerState.FREE
            self._rest()
            return
        version = self._common_version(type(request)) if self._version is None else self._version
        self.state = PeerState.ASKED  # before it is sent, as sending may end the connection
        try:
            if version is None:
                raise CodecError("no version in common")
            self._send_frame(request, version)
        except CodecError as error:
            log.info("can't send %s a %s: %s", self.name, type(request).__name__, error)
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
            self._failed("it sent an answer that nobody asked for")
            return
        try:
            answer = self._decoded(frame, asked)
        except CodecError as error:
            self._failed(f"its answer is invalid: {error}")
            return
        if is_opening:
            self._go_on(answer)
            return
        self.state = PeerState.FREE
        self._rest()
        self._take().reply(answer)

    def _decoded(self, frame: memoryview, request: type[Message]) -> Message:
        """Decode an answer. Raises CodecError."""
        version = self._sent_version
        body = response_body(frame, request, version, self._correlation_id)
        if request is ApiVersionsRequest and frame[body : body + 2] == _UNSUPPORTED_VERSION:
            version = 0  # servers answer an unknown version of ApiVersions in version 0
        return decode(response_type(request), version, frame, body)

    # --- the end --------------------------------------------------------------------------------------------

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
        """Close the connection after a while if it isn't used."""
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
        if self._request is request:  # if it is still wanted
            reason = f"{self.name} has no version of {type(request).__name__} in common with this node"
            self._take().fail(KafkaError(Error.UNSUPPORTED_VERSION, reason))

    def _take(self) -> Later[Message]:
        """Return the Later of the current request, which is over now."""
        answer = self._answer
        assert answer is not None
        self._request = self._answer = None
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        return answer


class OnePeer:
    """The node to ask now. If the address changes, the connection to the old one ends."""

    def __init__(self, settings: PeerSettings, network: Network, scheduler: Scheduler) -> None:
        self._settings = settings
        self._network = network
        self._scheduler = scheduler
        self.peer: Peer | None = None

    def at(self, host: str, port: int) -> Peer:
        """Return the peer at an address. It stays the same as long as the address does."""
        peer = self.peer
        if peer is None or (peer.host, peer.port) != (host, port):
            self.stop()
            peer = self.peer = Peer(host, port, self._settings, self._network, self._scheduler)
        return peer

    def stop(self) -> None:
        """End the connection."""
        if self.peer is not None:
            self.peer.stop()
            self.peer = None


def response_type(request: type[Message]) -> type[Message]:
    """Return the class of a request's answer, which is declared next to it."""
    name = request.__name__.removesuffix("Request") + "Response"
    found: type[Message] = getattr(sys.modules[request.__module__], name)
    return found
