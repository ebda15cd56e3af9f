"""A connection at an encrypted listener, until its client and the broker have agreed on keys.

The gate takes the place of the connection's protocol: it counts the connection when it is accepted, bounds the time of
the handshake, and hands over once that is done. A failed handshake doesn't affect other connections. Source: the states
of Kafka's `SslTransportLayer` before READY. As in Kafka, failures are delayed as failed sign-ins are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, cast

from broker.environment.encryption import last_words
from broker.network.answers import HTTP_STARTS

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.network.connection import Connection
    from broker.security.authorizer import Principal

LONGEST_HANDSHAKE_S = 10.0
"""How long a client may take for the handshake."""
_SHUTDOWN_S = 5.0  # the wait for the client's close message, after the broker's
_ROOM = 16 * 1024
_HELLO = 1024
_HANDSHAKE = b"\x16"  # the first byte of TLS

_NO_TLS = frozenset(
    (
        "HTTP_REQUEST",
        "WRONG_VERSION_NUMBER",
        "UNKNOWN_PROTOCOL",
        "RECORD_LAYER_FAILURE",
        "PACKET_LENGTH_TOO_LONG",
        "WRONG_SSL_VERSION",
        "BAD_RECORD_TYPE",
        "UNEXPECTED_MESSAGE",
    )
)
_NOTHING_IN_COMMON = frozenset(("UNSUPPORTED_PROTOCOL", "NO_SHARED_CIPHER", "VERSION_TOO_LOW"))


class HeldSocket(Protocol):
    """A socket that stays open so that its client can read the alert."""

    def close(self) -> None: ...


class Encryption(Protocol):
    """The encryption of a listener (`broker.network.tls`). `context` is an `ssl.SSLContext`."""

    context: Any
    no_name: tuple[type[Exception], ...]

    def principal(self, transport: Any) -> Principal:
        """The principal of a connection, by the client's certificate. Raises one of `no_name`."""
        ...

    def check(self, after: BrokerConfig) -> None:
        """Check that the listener could change to these settings. Raises ConfigError."""
        ...

    def follow(self, config: BrokerConfig) -> bool:
        """Change to the present settings and files. Returns True if they differ from before. Raises ConfigError."""
        ...


class Gatekeeper(Protocol):
    """The part of the listener that the gate uses."""

    gates: dict[TlsGate, None]

    def not_encrypted(self, client: str, why: str) -> None:
        """Log, now and then, that a handshake has failed."""
        ...


MOST_HANDSHAKES = 8
"""Handshakes that begin in one turn of the loop: each takes half a millisecond, and hundreds may come at once."""


class Handshakes:
    """The handshakes of a listener. Clients that have said hello wait in line, so that others are served in between."""

    def __init__(self) -> None:
        self._waiting: deque[TlsGate] = deque()
        self._begun = 0  # in this turn

    def begin(self, gate: TlsGate) -> None:
        """Begin the handshake, now or in a later turn."""
        if self._begun < MOST_HANDSHAKES and not self._waiting:
            self._let_in(gate)
        else:
            self._waiting.append(gate)

    def _let_in(self, gate: TlsGate) -> None:
        if gate.shake():
            self._begun += 1
            if self._begun == 1:
                asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._begun = 0
        while self._waiting and self._begun < MOST_HANDSHAKES:
            self._let_in(self._waiting.popleft())


class TlsGate(asyncio.BufferedProtocol):
    """The gate of one connection, until that is encrypted. Then it only passes on what asyncio still had for it."""

    def __init__(
        self,
        connection: Connection,
        encryption: Encryption,
        listener: Gatekeeper,
        scheduler: Scheduler,
        failure_delay_ms: int,
        handshakes: Handshakes | None = None,
    ) -> None:
        """`failure_delay_ms`: how long a failed client is kept waiting; it can read the reason meanwhile. `handshakes`:
        the listener's."""
        self._handshakes = handshakes or Handshakes()
        self._connection = connection
        self._encryption = encryption
        self._listener = listener
        self._scheduler = scheduler
        self._failure_delay_s = failure_delay_ms / 1000
        self._transport: asyncio.Transport | None = None
        self._timer: Scheduled | None = None
        self._shaking: asyncio.Future[None] | None = None
        self._buffer: bytearray | bytes = b""
        self._hello = b""  # the client's first bytes, until asyncio reads on
        self._early: list[bytes] = []  # bytes that came in the turn in which the handshake ended
        self._has_ended = False  # the client has sent its end in that turn
        self._is_shaking = False
        self._is_open = False
        self._is_over = False
        self._why: str | None = None
        self._held: HeldSocket | None = None

    # --- asyncio's side -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._listener.gates[self] = None
        self._connection.connection_made(transport)
        if self._connection.is_let_in:  # else it is closed soon
            self._timer = self._scheduler.call_later(LONGEST_HANDSHAKE_S, self._is_too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_open:
            self._connection.connection_lost(exc)
        elif self._shaking is None:
            if self._why is not None:
                self._fail(self._why)
            self._end()
        # else `_shake` notices it

    def get_buffer(self, sizehint: int) -> bytearray:
        """Room for the client's hello and, once the handshake is done, for the bytes behind it."""
        self._buffer = room = bytearray(_ROOM if self._is_shaking else _HELLO)
        return room

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._buffer[:nbytes])
        self._buffer = b""
        if self._is_shaking:
            self._early.append(data)
            return
        raw = self._transport
        if self._shaking is not None or raw is None:
            return
        raw.pause_reading()  # a client that isn't let in may go on sending
        if not self._connection.is_let_in:
            return
        self._hello += data
        if self._hello.startswith(_HANDSHAKE):
            self._handshakes.begin(self)
        else:
            self.abort(f"what it sends isn't TLS, but {_seems(self._hello)}")

    def eof_received(self) -> bool:
        self._has_ended = True
        return False

    # --- the handshake --------------------------------------------------------------------------------------

    def shake(self) -> bool:
        """Begin the handshake. Returns False if the connection is gone."""
        raw = self._transport
        if self._is_over or raw is None or raw.is_closing():
            return False
        self._shaking = asyncio.ensure_future(self._shake(raw))
        return True

    async def _shake(self, raw: asyncio.Transport) -> None:
        context = self._encryption.context
        loop = asyncio.get_running_loop()
        # asyncio makes the encryption object inside `start_tls`. uvloop makes it in a later turn of the loop, right
        # after the callback that is registered here, so that no other connection can come in between.
        context.next_begins = begins = self._hello, self._say
        loop.call_soon(setattr, context, "next_begins", begins)
        self._hello, self._is_shaking = b"", True
        try:
            transport = await loop.start_tls(
                raw,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=2 * LONGEST_HANDSHAKE_S,  # ours comes first, by the scheduler's clock
                ssl_shutdown_timeout=_SHUTDOWN_S,
            )
        except OSError as error:  # errors of ssl are OSErrors
            self._fail(self._why or _reason(error))
            return
        except Exception as error:
            self._end(error)
            return
        finally:
            if context.next_begins is begins:
                context.next_begins = None
        if transport is None or transport.get_extra_info("ssl_object") is None:  # it was lost on the way
            self._fail(self._why or "it hung up")
            return
        try:
            principal = self._encryption.principal(transport)
        except self._encryption.no_name as error:
            transport.abort()
            self._fail(str(error))
            return
        self._open(transport, principal)

    def _open(self, transport: asyncio.Transport, principal: Principal) -> None:
        connection = self._connection
        self._forget()
        self._is_open = True
        transport.set_protocol(connection)
        connection.encrypted(transport, principal)
        early, self._early = self._early, []
        for data in early:
            at = 0
            while at < len(data):
                room = connection.get_buffer(-1)
                size = min(len(room), len(data) - at)
                room[:size] = data[at : at + size]
                at += size
                connection.buffer_updated(size)
        if self._has_ended:
            connection.eof_received()

    def _is_too_slow(self) -> None:
        self._timer = None
        self.abort(f"it hasn't finished the handshake in {LONGEST_HANDSHAKE_S:.0f} s")

    def abort(self, why: str) -> None:
        """End the handshake at once."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()
        self._let_go()

    def _say(self, alert: bytes) -> None:
        """Send the alert with the reason, which asyncio would drop. Keep the socket until the client has read it."""
        raw = self._transport
        if raw is not None and not raw.get_write_buffer_size():
            self._held = last_words(raw, alert)

    # --- its end --------------------------------------------------------------------------------------------

    def _fail(self, why: str) -> None:
        if self._is_over:
            return
        if self._transport is not None:
            self._transport.abort()
        self._listener.not_encrypted(str(self._connection), why)
        self._stop_timer()
        if self._held is None:
            self._end()
        else:
            self._timer = self._scheduler.call_later(self._failure_delay_s, self._end)

    def _end(self, error: Exception | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._let_go()
        self._forget()
        if error is not None:
            self._connection.fail(error)
        self._connection.connection_lost(None)

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget(self) -> None:
        self._stop_timer()
        self._listener.gates.pop(self, None)


def _seems(data: bytes) -> str:
    if data[:4] in HTTP_STARTS:
        return "looks like HTTP"
    return "may be Kafka's protocol without TLS (security.protocol=PLAINTEXT or SASL_PLAINTEXT)"


def _reason(error: OSError) -> str:
    """The error in words that say what to do."""
    reason = getattr(error, "reason", None)
    if not isinstance(reason, str):
        return "it hung up"
    if reason in _NO_TLS:
        return "what it sends isn't TLS"
    if reason in _NOTHING_IN_COMMON:
        return "it has no protocol or cipher suite in common (ssl.enabled.protocols, ssl.cipher.suites)"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it shows no certificate (ssl.client.auth=required)"
    words = reason.lower().replace("_", " ")
    if reason == "CERTIFICATE_VERIFY_FAILED":
        return f"its certificate isn't trusted: {getattr(error, 'verify_message', words)} (ssl.truststore.*)"
    if "ALERT" in reason:
        return f"it refuses: {words}"
    return words
