"""Encryption of a connection that this node has made: bytes to bytes, by Python's `ssl` without a socket.

So it is the same over any transport. Source: Kafka's `SslTransportLayer`, client side.
"""

from __future__ import annotations

import ssl
from typing import Any

_ROOM = 64 * 1024


class TlsChannel:
    """Of one connection (`broker.peers.opening.Channel`). What goes wrong is an `ssl.SSLError`, in words for a user."""

    __slots__ = ("_incoming", "_object", "_outgoing", "_room", "is_ready")

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        """`host`, as it is connected to, is whom the certificate has to be for, where the context checks that. Raises
        ValueError for one that can't be."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._room = memoryview(bytearray(_ROOM))
        self.is_ready = False

    def room(self) -> memoryview:
        """Where what comes is to go."""
        return self._room

    def came(self, count: int) -> None:
        """So many bytes are there."""
        self._incoming.write(self._room[:count])

    def shake(self) -> bool:
        """Goes on with the handshake, as far as it gets: whether that is done. `to_send` may have an alert even where
        it raises."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise _told(error) from None
        self.is_ready = True
        return True

    def read(self, into: memoryview) -> int:
        """What the other node says, as much as there is room for; 0: no more for now."""
        try:
            count: Any = self._object.read(len(into), into)
            return int(count)
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as error:
            raise _told(error) from None

    def encrypt(self, data: bytes) -> None:
        """It will be in what `to_send` gives."""
        try:
            self._object.write(data)
        except ssl.SSLError as error:
            raise _told(error) from None

    def to_send(self) -> bytes:
        """What is to go out."""
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
    """In words that say what to do. The error's own traceback would hold this connection."""
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
        return OSError("what it answers isn't TLS")
    if "ALERT" in reason:
        return OSError(f"it refuses: {words}")
    return OSError(f"no encryption with it: {words or error.args}")
