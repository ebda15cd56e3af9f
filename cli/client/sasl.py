"""Signing in: PLAIN (RFC 4616) and SCRAM (RFC 5802), over SaslHandshake and SaslAuthenticate.

Source: KIP-152; `ScramSaslClient` and `PlainSaslServer` of Kafka.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from cli.client.answers import told
from cli.errors import CommandError, CommandUsageError
from protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from cli.client.connection import Connection

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = ("PLAIN", *DIGESTS)
MOST_ROUNDS: Final = 1_000_000
"""The most hash rounds that a broker may ask for: about a second."""


def sign_in(connection: Connection, settings: Mapping[str, str]) -> None:
    """Sign in. Raises CommandError if the broker refuses, CommandUsageError if a setting is missing."""
    mechanism = (settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "").upper()
    if mechanism not in MECHANISMS:
        raise CommandUsageError(f"sasl.mechanism={mechanism}: one of {', '.join(MECHANISMS)} is needed")
    missing = [name for name in ("sasl.username", "sasl.password") if not settings.get(name)]
    if missing:
        raise CommandUsageError(f"{' and '.join(missing)} are missing (give them in --config or with -X)")
    user, password = settings["sasl.username"], settings["sasl.password"]
    shaken = connection.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
    if shaken.error_code:
        known = ", ".join(shaken.mechanisms)
        raise CommandError(
            f"{connection.address} doesn't support sasl.mechanism={mechanism}; it supports {known}"
        )
    if mechanism == "PLAIN":
        _said(connection, f"\0{user}\0{password}".encode())
    else:
        _scram(connection, DIGESTS[mechanism], user, password)


def _scram(connection: Connection, digest: str, user: str, password: str) -> None:
    nonce = base64.b64encode(os.urandom(24)).decode()
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    try:
        challenge = _said(connection, f"n,,{first}".encode()).decode()
        parts = dict(part.split("=", 1) for part in challenge.split(",") if "=" in part)
        salt, rounds = base64.b64decode(parts["s"], validate=True), int(parts["i"])
    except (KeyError, ValueError):
        raise CommandError(f"{connection.address}: its challenge makes no sense") from None
    if not parts.get("r", "").startswith(nonce) or not 1 <= rounds <= MOST_ROUNDS:
        raise CommandError(f"{connection.address}: its challenge makes no sense")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, rounds)
    key = hmac.digest(salted, b"Client Key", digest)
    last = f"c=biws,r={parts['r']}"
    signed = f"{first},{challenge},{last}".encode()
    signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    answer = _said(connection, f"{last},p={proof}".encode())
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(answer.split(b",")[0], b"v=" + base64.b64encode(expected)):
        raise CommandError(
            f"{connection.address} can't prove that it knows this user's password: it isn't the expected broker"
        )


def _said(connection: Connection, data: bytes) -> bytes:
    answer = connection.ask(SaslAuthenticateRequest(auth_bytes=data), SaslAuthenticateResponse)
    if answer.error_code:
        reason = answer.error_message or told(answer.error_code)
        raise CommandError(f"{connection.address} refuses this user: {reason}")
    return bytes(answer.auth_bytes)
