"""SASL mechanisms, client side: PLAIN (RFC 4616) and SCRAM-SHA-256 and -512 (RFC 5802).

A node signs in to others with these, by the JAAS line of its listener. A conversation returns the `first`
token, and for each answer the next one. Sources: `ScramSaslClient`, `ScramFormatter`, the JDK's
`PlainClient`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Protocol

from broker.security.sasl import HASHES, MIN_ITERATIONS, PLAIN, PLAIN_MODULE, SCRAM, SCRAM_MODULE

MODULES = {PLAIN: PLAIN_MODULE, **dict.fromkeys(SCRAM, SCRAM_MODULE)}
"""By mechanism: the login module with its credentials."""

MOST_ITERATIONS = 16_384
"""The most iterations of the hash that the other node may ask for. Kafka's credentials have no more."""

_CHALLENGE = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([a-zA-Z0-9/+=]+),i=([1-9][0-9]{0,9})(?:,.*)?")


class UntrustedServerError(Exception):
    """The other node violates the mechanism, or doesn't know the password, so it isn't who it should be."""


class ClientConversation(Protocol):
    """One sign-in."""

    def first(self) -> bytes:
        """Return the first token."""
        ...

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Return the next token, or None if there is none. Raises UntrustedServerError."""
        ...


class Credentials:
    """One user's credentials for one mechanism. They never show the password."""

    __slots__ = ("_password", "_salted", "mechanism", "user")

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self.mechanism = mechanism
        self.user = user
        self._password = password
        self._salted: tuple[bytes, int, bytes] | None = None  # the last one, with salt and iterations

    def begin(self, nonce: Callable[[], str]) -> ClientConversation:
        """Begin a conversation. `nonce` draws a nonce."""
        if self.mechanism == PLAIN:
            return _Plain(self.user, self._password)
        return _Scram(self, HASHES[SCRAM[self.mechanism]], nonce())

    def salted(self, digest: str, salt: bytes, iterations: int) -> bytes:
        """Return the salted password. It is kept, because all connections of a node ask for the same one."""
        known = self._salted
        if known is None or known[:2] != (salt, iterations):
            salted = hashlib.pbkdf2_hmac(digest, self._password.encode(), salt, iterations)
            known = self._salted = salt, iterations, salted
        return known[2]


class _Plain:
    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def evaluate(self, challenge: bytes) -> bytes | None:
        return None


class _Scram:
    def __init__(self, credentials: Credentials, digest: str, nonce: str) -> None:
        self._credentials = credentials
        self._digest = digest
        self._nonce = nonce
        name = credentials.user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        if self._server_signature is None:
            return self._proof(challenge.decode(errors="replace"))
        expected = b"v=" + base64.b64encode(self._server_signature)
        if not hmac.compare_digest(challenge.split(b",", 1)[0], expected):
            raise UntrustedServerError("it doesn't know the password itself")
        return None

    def _proof(self, challenge: str) -> bytes:
        match = _CHALLENGE.fullmatch(challenge)
        if match is None or not match[1].startswith(self._nonce):
            raise UntrustedServerError("its challenge is invalid")
        iterations = int(match[3])
        if not MIN_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise UntrustedServerError(
                f"it asks for {iterations} iterations; {MIN_ITERATIONS} to {MOST_ITERATIONS} are accepted"
            )
        try:
            salt = base64.b64decode(match[2], validate=True)
        except binascii.Error:
            raise UntrustedServerError("its challenge is invalid") from None
        digest = self._digest
        salted = self._credentials.salted(digest, salt, iterations)
        key = hmac.digest(salted, b"Client Key", digest)
        last = f"c=biws,r={match[1]}"
        signed = f"{self._bare},{challenge},{last}".encode()
        signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
        return f"{last},p={base64.b64encode(proof).decode()}".encode()
