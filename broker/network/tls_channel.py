"""Encryption of a connection that this node has made: bytes to bytes, by Python's `ssl` without a socket.

So it works over any transport. Source: Kafka's `SslTransportLayer`, client side.
"""

from __future__ import annotations

import ssl
from typing import Any

_ROOM = 64 * 1024


class TlsChannel:
    """Encrypts one connection (`broker.peers.opening.Channel`). Its errors are OSErrors with messages for a user."""

    __slots__ = ("_incoming", "_object", "_outgoing", "_room", "is_ready")

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        """`host`: the host that was connected to. The certificate has to be for it, if the context checks that.

        Raises ValueError if it can't be a host's name."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._room = memoryview(bytearray(_ROOM))
        self.is_ready = False

    def room(self) -> memoryview:
        """The buffer for bytes that come."""
        return self._room

    def came(self, count: int) -> None:
        """Take `count` bytes that have come into `room()`."""
        self._incoming.write(self._room[:count])

    def shake(self) -> bool:
        """Go on with the handshake. Returns True once it is done. Even if this raises, `to_send` may have an alert."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise _told(error) from None
        self.is_ready = True
        return True

    def read(self, into: memoryview) -> int:
        """Decrypt into `into`, as much as there is room for. Returns the number of bytes; 0 means no more for now."""
        try:
            count: Any = self._object.read(len(into), into)
            return int(count)
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as error:
            raise _told(error) from None

    def encrypt(self, data: bytes) -> None:
        """Encrypt data; `to_send` then returns it."""
        try:
            self._object.write(data)
        except ssl.SSLError as error:
            raise _told(error) from None

    def to_send(self) -> bytes:
        """The encrypted bytes to send."""
        return self._outgoing.read()


_NO_TLS = frozenset(
    (
        "WRONG_VERSION_NUMBER",
        "UNKNOWN_PROTOCOL",
        "RECORD_LAYER_FAILURE",
        "PACKET_LENGTH_TOO_LONG",
        "BAD_RECORD_TYPE",
    )
)


def _told(error: ssl.SSLError) -> OSError:
    """A new error, in words that say what to do. The old one's traceback would keep this connection alive."""
    reason = error.reason or ""
    words = reason.lower().replace("_", " ")
    if isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
        return OSError("it closed the connection")
    if reason == "CERTIFICATE_VERIFY_FAILED":
        why = getattr(error, "verify_message", "") or words
        setting = (
            "ssl.endpoint.identification.algorithm"
            if "mismatch" in why.lower() or "not valid for" in why.lower()
            else "ssl.truststore"
        )
        return OSError(f"its certificate isn't trusted: {why.removesuffix('.')} ({setting})")
    if reason in _NO_TLS:
        return OSError("its answer isn't TLS")
    if "ALERT" in reason:
        return OSError(f"it refuses: {words}")
    return OSError(f"no encryption with it: {words or error.args}")
