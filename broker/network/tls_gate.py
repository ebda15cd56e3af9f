"""A connection at an encrypted listener until its client and the broker have agreed on the keys.

The gate stands in the place of the connection's protocol: it counts the connection when it is accepted, bounds the
handshake in time, and hands over once that is done. A handshake that fails concerns nobody else. Source: the states of
Kafka's `SslTransportLayer` before READY, whose failures are delayed as failed sign-ins are.
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
"""How long a client may take until it has agreed on the keys."""
_SHUTDOWN_S = 5.0  # for the client's own goodbye, behind ours
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
    """That its client may still read from."""

    def close(self) -> None: ...


class Encryption(Protocol):
    """Of a listener (`broker.network.tls`). `context` is that of Python's ssl."""

    context: Any
    no_name: tuple[type[Exception], ...]

    def principal(self, transport: Any) -> Principal:
        """Whose connection it is, by the client's certificate. Raises one of `no_name`."""
        ...

    def check(self, after: BrokerConfig) -> None:
        """Raises ConfigError where the listener couldn't go over to these settings."""
        ...

    def follow(self, config: BrokerConfig) -> bool:
        """Go over to what is there now; whether that is something else. Raises ConfigError."""
        ...


class Gatekeeper(Protocol):
    """The listener."""

    gates: dict[TlsGate, None]

    def not_encrypted(self, client: str, why: str) -> None:
        """A handshake has failed: that is logged, now and then."""
        ...


MOST_HANDSHAKES = 8
"""That begin in one turn of the loop: each takes half a millisecond, and hundreds may ask at once."""


class Handshakes:
    """Of a listener: who has said hello waits in line for its turn, so that others are served between."""

    def __init__(self) -> None:
        self._waiting: deque[TlsGate] = deque()
        self._begun = 0  # in this turn

    def begin(self, gate: TlsGate) -> None:
        """Now, or in a later turn."""
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
    """Of one connection, until it is encrypted; behind that it only passes on what asyncio had for it still."""

    def __init__(
        self,
        connection: Connection,
        encryption: Encryption,
        listener: Gatekeeper,
        scheduler: Scheduler,
        failure_delay_ms: int,
        handshakes: Handshakes | None = None,
    ) -> None:
        """`failure_delay_ms`: for so long who has failed is kept waiting, so that it can read why. `handshakes`: the
        listener's."""
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
        self._hello = b""  # the beginning of what the client says, until asyncio reads on
        self._early: list[bytes] = []  # what came in the same turn in which the keys were agreed on
        self._has_ended = False  # the client's side, in that turn
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
        # else `_shake` finds out

    def get_buffer(self, sizehint: int) -> bytearray:
        """For the client's hello; and once asyncio has agreed on the keys, for what is behind its handshake."""
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
        raw.pause_reading()  # one that isn't let in may send for as long as it is there
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
        """It is this one's turn; whether it is still there."""
        raw = self._transport
        if self._is_over or raw is None or raw.is_closing():
            return False
        self._shaking = asyncio.ensure_future(self._shake(raw))
        return True

    async def _shake(self, raw: asyncio.Transport) -> None:
        context = self._encryption.context
        loop = asyncio.get_running_loop()
        # asyncio makes the encryption object inside `start_tls`. uvloop makes it in a later turn of the loop, right
        # behind the callback that is registered here, so that no other connection can come between.
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
        except OSError as error:  # as those of ssl are
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
        """The handshake ends at once."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()
        self._let_go()

    def _say(self, alert: bytes) -> None:
        """Send the alert that says why, which asyncio would drop, and keep the socket until the client has read it."""
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
    return "may be Kafka's protocol as it is (security.protocol=PLAINTEXT or SASL_PLAINTEXT)"


def _reason(error: OSError) -> str:
    """What went wrong, in words that say what to do."""
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
