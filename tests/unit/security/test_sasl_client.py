"""Signing in: client and server agree on the outcome, and an impostor on either side is found out."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from broker.security.sasl import (
    SCRAM,
    InvalidCredentialsError,
    PlainMechanism,
    SaslRefusal,
    ScramCredential,
    ScramMechanism,
)
from broker.security.sasl_client import MOST_ITERATIONS, Credentials, UntrustedServerError

SALT = b"salt of sixteen!"
DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def stored(mechanism: str, password: str, iterations: int = 4096) -> ScramCredential:
    digest = DIGESTS[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), SALT, iterations)
    key = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
    return ScramCredential(SALT, key, hmac.digest(salted, b"Server Key", digest), iterations)


def scram_server(mechanism: str, user: str, password: str, iterations: int = 4096) -> ScramMechanism:
    found = stored(mechanism, password, iterations)
    return ScramMechanism(
        SCRAM[mechanism], lambda code, name: found if name == user else None, lambda: "servers"
    )


def test_a_node_signs_in_by_plain() -> None:
    server = PlainMechanism({"node": "secret"})
    conversation = Credentials("PLAIN", "node", "secret").begin(str)
    assert conversation.evaluate(server.evaluate(conversation.first())) is None
    assert (server.is_complete, server.user) == (True, "node")
    with pytest.raises(SaslRefusal, match="Invalid username or password"):
        server.evaluate(Credentials("PLAIN", "node", "other").begin(str).first())


@pytest.mark.parametrize("mechanism", [*SCRAM])
@pytest.mark.parametrize("user", ["node", "no,d=e"])
def test_a_node_signs_in_by_scram(mechanism: str, user: str) -> None:
    credentials = Credentials(mechanism, user, "sécret")
    for _ in range(2):  # the second time it uses the salted password that it knows
        server = scram_server(mechanism, user, "sécret")
        conversation = credentials.begin(lambda: "mine")
        proof = conversation.evaluate(server.evaluate(conversation.first()))
        assert proof is not None
        assert conversation.evaluate(server.evaluate(proof)) is None
        assert (server.is_complete, server.user) == (True, user)


def test_another_salt_asks_for_another_salted_password() -> None:
    credentials = Credentials("SCRAM-SHA-256", "node", "secret")
    first = credentials.salted("sha256", SALT, 4096)
    assert credentials.salted("sha256", b"another", 4096) != first
    assert credentials.salted("sha256", SALT, 4097) != first
    assert credentials.salted("sha256", SALT, 4096) == first


def test_a_wrong_password_isnt_let_in() -> None:
    server = scram_server("SCRAM-SHA-256", "node", "secret")
    conversation = Credentials("SCRAM-SHA-256", "node", "other").begin(lambda: "mine")
    proof = conversation.evaluate(server.evaluate(conversation.first()))
    assert proof is not None
    with pytest.raises(InvalidCredentialsError):
        server.evaluate(proof)


def test_a_server_that_doesnt_know_the_password_is_found_out() -> None:
    server = scram_server("SCRAM-SHA-256", "node", "secret")
    conversation = Credentials("SCRAM-SHA-256", "node", "secret").begin(lambda: "mine")
    conversation.evaluate(server.evaluate(conversation.first()))
    with pytest.raises(UntrustedServerError, match="doesn't know the password itself"):
        conversation.evaluate(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    ("challenge", "told"),
    [
        ("r=theirs,s=c2FsdA==,i=4096", "its challenge is invalid"),  # this isn't our nonce
        ("r=mine,s=c2FsdA==,i=0", "its challenge is invalid"),
        ("r=mine,s=c2FsdA=,i=4096", "its challenge is invalid"),
        ("e=other-error", "its challenge is invalid"),
        ("", "its challenge is invalid"),
        ("r=mine+theirs,s=c2FsdA==,i=4095", "asks for 4095 iterations"),
    ],
)
def test_a_nonsense_challenge_is_refused(challenge: str, told: str) -> None:
    conversation = Credentials("SCRAM-SHA-256", "node", "secret").begin(lambda: "mine")
    with pytest.raises(UntrustedServerError, match=told):
        conversation.evaluate(challenge.encode())


@pytest.mark.limit("broker.security.sasl_client.MOST_ITERATIONS")
def test_no_server_keeps_a_node_busy_with_iterations() -> None:
    def challenged(iterations: int) -> None:
        conversation = Credentials("SCRAM-SHA-256", "node", "secret").begin(lambda: "mine")
        conversation.evaluate(f"r=mine+theirs,s=c2FsdA==,i={iterations}".encode())

    challenged(MOST_ITERATIONS)
    with pytest.raises(UntrustedServerError, match=f"asks for {MOST_ITERATIONS + 1} iterations"):
        challenged(MOST_ITERATIONS + 1)


def test_a_password_is_shown_nowhere() -> None:
    credentials = Credentials("PLAIN", "node", "open sesame")
    assert "sesame" not in f"{credentials!r} {credentials.begin(str)!r}"
