"""Signing in by SASL, well and badly: Apache Kafka and barnabas give the same answers in the same conversations."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import barnabas
from protocol.errors import Error
from protocol.messages.metadata import ApiVersionsRequest, MetadataRequest
from protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    ScramCredentialUpsertion,
)
from protocol.wire.schema import Message
from tests.support import apache_kafka
from tests.support.ports import free_ports
from tests.support.wire import Client, frame

pytestmark = pytest.mark.xdist_group("apache_kafka")

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" user_alice="alice-secret";'
)
SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PREFIX = "listener.name.sasl_plaintext."
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}plain.sasl.jaas.config": JAAS,
    f"{PREFIX}scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
    f"{PREFIX}scram-sha-512.sasl.jaas.config": SCRAM_JAAS,
    f"{PREFIX}scram-sha-256.connections.max.reauth.ms": "3600000",
    "connection.failed.authentication.delay.ms": "0",
}
PASSWORDS = {"carol": b"carol-secret", "d,a=ve": b"x"}
DIGESTS = {1: "sha256", 2: "sha512"}
SALT = b"salt of sixteen!"
ROUNDS = 4096


def make_credentials(port: int) -> None:
    with Client.connect(port) as client:
        for mechanism, digest in DIGESTS.items():  # a request may name each user once
            upsertions = [
                ScramCredentialUpsertion(
                    name=user,
                    mechanism=mechanism,
                    iterations=ROUNDS,
                    salt=SALT,
                    salted_password=hashlib.pbkdf2_hmac(digest, password, SALT, ROUNDS),
                )
                for user, password in PASSWORDS.items()
                if (user, mechanism) != ("carol", 2)
            ]
            answer = client.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions), 0)
            assert {each.error_code for each in answer.results} == {Error.NONE}


@pytest.fixture(scope="module")
def kafka(needs_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of Kafka's SASL listener."""
    port, controller, sasl = free_ports(3)
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    quorum = f"controller.quorum.voters=1@127.0.0.1:{controller}"
    with apache_kafka.running(tmp_path_factory.mktemp("kafka"), listeners, quorum, *settings) as running:
        make_credentials(int(running.bootstrap.rpartition(":")[2]))
        yield sasl


@pytest.fixture(scope="module")
def ours() -> Iterator[int]:
    port, sasl = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    with barnabas.Broker(config={**SETTINGS, "listeners": listeners}):
        make_credentials(port)
        yield sasl


# --- conversations ------------------------------------------------------------------------------------------


class Conversation:
    """A conversation with one listener: the requests and their outcomes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.heard: list[Any] = []
        self.last = b""

    def ask(self, request: Message, version: int) -> Any:
        try:
            answer = self._client.ask(request, version)
        except (ConnectionError, TimeoutError) as error:
            self.heard.append("closed" if isinstance(error, ConnectionError) else "silent")
            return None
        kind = type(request)
        if kind is SaslHandshakeRequest:
            self.heard.append((answer.error_code, sorted(answer.mechanisms)))
        elif kind is SaslAuthenticateRequest:
            self.last = bytes(answer.auth_bytes)
            lifetime = answer.session_lifetime_ms if version >= 1 else None
            self.heard.append((answer.error_code, answer.error_message, masked(self.last), lifetime))
        else:
            self.heard.append((kind.__name__, getattr(answer, "error_code", 0)))
        return answer

    def versions(self, version: int = 3) -> None:
        self.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), version)

    def shake(self, mechanism: str, version: int = 1) -> None:
        self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    def token(self, data: bytes, version: int = 2) -> None:
        self.ask(SaslAuthenticateRequest(auth_bytes=data), version)

    def bare(self, data: bytes) -> None:
        """A token without a header."""
        self._client.send_bytes(frame(data))
        try:
            self.last = bytes(self._client.next_frame())
            self.heard.append(("bare", masked(self.last)))
        except ConnectionError:
            self.heard.append("closed")

    def works(self) -> None:
        self.ask(MetadataRequest(topics=[]), 12)

    def scram(
        self, user: str, password: bytes, mechanism: int, *, send: Callable[[bytes], None], **odd: str
    ) -> None:
        """A whole one; `odd` replaces what a client should say."""
        name = user.replace("=", "=3D").replace(",", "=2C")
        first = odd.get("first", f"n={name},r=fyko+d2lbbFgONRv9qkxdawL")
        send((odd.get("header", "n,,") + first).encode())
        parts = dict(
            part.split("=", 1) for part in self.last.decode(errors="replace").split(",") if "=" in part
        )
        if "s" not in parts:
            return
        digest = DIGESTS[mechanism]
        salted = hashlib.pbkdf2_hmac(digest, password, base64.b64decode(parts["s"]), int(parts["i"]))
        key = hmac.digest(salted, b"Client Key", digest)
        last = f"c={odd.get('channel', 'biws')},r={odd.get('nonce', parts['r'])}"
        signed = f"{first},{self.last.decode()},{last}".encode()
        signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        send(f"{last},p={odd.get('proof', base64.b64encode(proof).decode())}".encode())


def masked(token: bytes) -> bytes:
    """Without what is drawn: the server's part of the nonce, and what it signs."""
    if token.startswith(b"r="):
        nonce, rest = token.split(b",", 1)
        return nonce[:26] + b"...," + rest
    return b"v=..." if token.startswith(b"v=") else token


def plain(user: str, password: str, acts_as: str = "") -> bytes:
    return f"{acts_as}\0{user}\0{password}".encode()


CONVERSATIONS: dict[str, Callable[[Conversation], None]] = {}


def conversation(go: Callable[[Conversation], None]) -> None:
    CONVERSATIONS[go.__name__] = go


@conversation
def plain_as_it_should_be(talk: Conversation) -> None:
    talk.versions()
    talk.shake("PLAIN")
    talk.token(plain("alice", "alice-secret"))
    talk.works()
    talk.shake("PLAIN")  # no client has to sign in again
    talk.token(plain("alice", "alice-secret"))
    talk.works()


@conversation
def plain_by_each_version(talk: Conversation) -> None:
    talk.shake("PLAIN")
    talk.token(plain("alice", "alice-secret", "alice"), 0)
    talk.works()


@conversation
def plain_without_headers(talk: Conversation) -> None:
    talk.versions(0)
    talk.shake("PLAIN", 0)
    talk.bare(plain("alice", "alice-secret"))
    talk.works()


@conversation
def plain_without_headers_by_a_wrong_password(talk: Conversation) -> None:
    talk.shake("PLAIN", 0)
    talk.bare(plain("alice", "wrong"))


def _refused(name: str, token: bytes) -> None:
    def go(talk: Conversation) -> None:
        talk.versions()
        talk.shake("PLAIN")
        talk.token(token)
        talk.works()

    CONVERSATIONS[f"plain_{name}"] = go


_refused("wrong_password", plain("alice", "alice-secre"))
_refused("unknown_user", plain("mallory", "alice-secret"))
_refused("no_user", plain("", "alice-secret"))
_refused("no_password", plain("alice", ""))
_refused("acts_as_another", plain("alice", "alice-secret", "admin"))
_refused("two_parts", b"alice\0alice-secret")
_refused("four_parts", b"\0alice\0alice-secret\0")
_refused("five_parts", b"\0alice\0alice-secret\0\0")
_refused("nothing", b"")
_refused("no_utf8", b"\0\xff\xfe\0x")
_refused("another_case", plain("Alice", "alice-secret"))


@conversation
def an_unknown_mechanism(talk: Conversation) -> None:
    talk.versions()
    talk.shake("GSSAPI")
    talk.works()


@conversation
def a_mechanism_in_another_case(talk: Conversation) -> None:
    talk.shake("plain")
    talk.works()


@conversation
def a_request_before_anything(talk: Conversation) -> None:
    talk.works()


@conversation
def a_request_behind_the_versions(talk: Conversation) -> None:
    talk.versions()
    talk.works()


@conversation
def versions_twice(talk: Conversation) -> None:
    talk.versions()
    talk.versions()


@conversation
def versions_of_no_known_version_first(talk: Conversation) -> None:
    talk._client.send_bytes(frame(b"\0\x12\0\x63" + bytes(4) + b"\xff\xff\0"))
    talk._client.next_frame()
    talk.versions(0)
    talk.shake("PLAIN")


@conversation
def a_token_before_the_handshake(talk: Conversation) -> None:
    talk.versions()
    talk.token(plain("alice", "alice-secret"))


@conversation
def two_handshakes(talk: Conversation) -> None:
    talk.shake("PLAIN")
    talk.shake("PLAIN")


@conversation
def a_frame_that_is_too_long(talk: Conversation) -> None:
    talk.shake("PLAIN")
    talk.token(plain("alice", "x" * 600_000))


def _scram(name: str, user: str, password: bytes, mechanism: int, **odd: str) -> None:
    def go(talk: Conversation) -> None:
        talk.versions()
        talk.shake(f"SCRAM-SHA-{'256' if mechanism == 1 else '512'}")
        talk.scram(user, password, mechanism, send=talk.token, **odd)
        talk.works()

    CONVERSATIONS[f"scram_{name}"] = go


_scram("256", "carol", b"carol-secret", 1)
_scram("512", "d,a=ve", b"x", 2)
_scram("256_with_an_odd_name", "d,a=ve", b"x", 1)
_scram("wrong_password", "carol", b"wrong", 1)
_scram("unknown_user", "mallory", b"wrong", 1)
_scram("no_credential_for_the_mechanism", "carol", b"carol-secret", 2)
_scram("acts_as_itself", "carol", b"carol-secret", 1, header="n,a=carol,")
_scram("acts_as_another", "carol", b"carol-secret", 1, header="n,a=admin,")
_scram("channel_binding", "carol", b"carol-secret", 1, header="p=tls-unique,,")
_scram("another_nonce", "carol", b"carol-secret", 1, nonce="other")
_scram("no_proof", "carol", b"carol-secret", 1, proof="")
_scram("proof_of_another_length", "carol", b"carol-secret", 1, proof="AAAA")
_scram("proof_that_is_no_base64", "carol", b"carol-secret", 1, proof="!")
_scram("extensions", "carol", b"carol-secret", 1, first="n=carol,r=fyko+d2lbbFgONRv9qkxdawL,a=b")
_scram("no_nonce", "carol", b"carol-secret", 1, first="n=carol")
_scram("nonsense", "carol", b"carol-secret", 1, first="what")
_scram("a_name_with_a_bare_sign", "carol", b"carol-secret", 1, first="n=ca=rol,r=fyko")


@conversation
def scram_without_headers(talk: Conversation) -> None:
    talk.shake("SCRAM-SHA-256", 0)
    talk.scram("carol", b"carol-secret", 1, send=talk.bare)
    talk.works()


@conversation
def signing_in_again(talk: Conversation) -> None:
    talk.shake("SCRAM-SHA-256")
    talk.scram("carol", b"carol-secret", 1, send=talk.token)
    talk.works()
    talk.shake("SCRAM-SHA-256")
    talk.scram("carol", b"carol-secret", 1, send=talk.token)
    talk.works()
    talk.shake("SCRAM-SHA-256")  # within a second
    talk.works()


@conversation
def signing_in_again_as_another(talk: Conversation) -> None:
    talk.shake("SCRAM-SHA-256")
    talk.scram("carol", b"carol-secret", 1, send=talk.token)
    talk.shake("SCRAM-SHA-256")
    talk.scram("d,a=ve", b"x", 1, send=talk.token)
    talk.works()


@conversation
def signing_in_again_by_another_mechanism(talk: Conversation) -> None:
    talk.shake("SCRAM-SHA-256")
    talk.scram("carol", b"carol-secret", 1, send=talk.token)
    talk.shake("PLAIN")
    talk.token(plain("carol", "carol-secret"))
    talk.works()


@conversation
def signing_in_again_by_a_wrong_password(talk: Conversation) -> None:
    talk.shake("SCRAM-SHA-256")
    talk.scram("carol", b"carol-secret", 1, send=talk.token)
    talk.shake("SCRAM-SHA-256")
    talk.scram("carol", b"wrong", 1, send=talk.token)
    talk.works()


@conversation
def a_request_amid_signing_in_again(talk: Conversation) -> None:
    talk.shake("SCRAM-SHA-256")
    talk.scram("carol", b"carol-secret", 1, send=talk.token)
    talk.shake("SCRAM-SHA-256")
    talk.works()


def heard(port: int, go: Callable[[Conversation], None]) -> list[Any]:
    with Client.connect(port) as client:
        talk = Conversation(client)
        go(talk)
    return talk.heard


STUMBLES = {"scram_no_proof", "scram_proof_of_another_length"}
"""Where Kafka fails over the length, and closes without an answer; ours answers as it does to any wrong proof."""


@pytest.mark.parametrize("name", [name for name in CONVERSATIONS if name not in STUMBLES])
def test_a_conversation_ends_as_with_kafka(name: str, kafka: int, ours: int) -> None:
    assert heard(ours, CONVERSATIONS[name]) == heard(kafka, CONVERSATIONS[name])


@pytest.mark.parametrize("name", sorted(STUMBLES))
def test_a_proof_of_another_length_is_a_wrong_one(name: str, kafka: int, ours: int) -> None:
    assert heard(ours, CONVERSATIONS[name]) == heard(kafka, CONVERSATIONS["scram_wrong_password"])
