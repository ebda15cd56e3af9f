"""Delegation tokens: the same requests to Apache Kafka and to barnabas, over each kind of connection, come to the same
answers; each signs in by what the other one has made."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import barnabas
from protocol.errors import Error
from protocol.messages.metadata import MetadataRequest
from protocol.messages.security import (
    AclCreation,
    CreatableRenewers,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.interop.test_sasl import Conversation
from tests.support import apache_kafka
from tests.support.ports import free_ports
from tests.support.wire import Client

pytestmark = pytest.mark.xdist_group("apache_kafka")

USERS = ("admin", "alice", "bob", "carol", "dave")
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{user}="{user}-secret"' for user in USERS
)
SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PREFIX = "listener.name.sasl_plaintext."
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}plain.sasl.jaas.config": JAAS + ";",
    f"{PREFIX}scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
    f"{PREFIX}scram-sha-512.sasl.jaas.config": SCRAM_JAAS,
    "connection.failed.authentication.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}
SECRET = {"delegation.token.secret.key": "the secret of this cluster"}
KEPT_MS = 86_400_000
ALLOW, LITERAL, TOKEN_RESOURCE, USER_RESOURCE = 3, 3, 6, 7
CREATE_TOKENS, DESCRIBE_TOKENS, DESCRIBE = 13, 14, 8


def kafka_settings(plain: int, controller: int, sasl: int, more: dict[str, str]) -> list[str]:
    return [
        f"listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SASL_PLAINTEXT://127.0.0.1:{sasl}",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        *(f"{name}={value}" for name, value in {**SETTINGS, **more}.items()),
    ]


def our_settings(plain: int, sasl: int, more: dict[str, str]) -> dict[str, str]:
    return {
        **SETTINGS,
        **more,
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
    }


def _ports_of(more: dict[str, str], folder: Path, which: str) -> Iterator[tuple[int, int]]:
    plain, controller, sasl = free_ports(3)
    if which == "kafka":
        with apache_kafka.running(folder, *kafka_settings(plain, controller, sasl, more)):
            yield plain, sasl
    else:
        with barnabas.Broker(config=our_settings(plain, sasl, more)):
            yield plain, sasl


Ports = dict[str, tuple[int, int]]


def _both(more: dict[str, str], folder: Path) -> Iterator[Ports]:
    [kafka] = [_ports_of(more, folder, "kafka")]
    [ours] = [_ports_of(more, folder, "ours")]
    try:
        yield {"kafka": next(kafka), "ours": next(ours)}
    finally:
        for each in (kafka, ours):
            next(each, None)


@pytest.fixture(scope="module")
def both(needs_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    """(port of the open listener, port of that at which clients sign in) of each."""
    yield from _both(SECRET, tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="module")
def without_secret(needs_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    yield from _both({}, tmp_path_factory.mktemp("kafka"))


# --- asking -------------------------------------------------------------------------------------------------


class Talk:
    """With one broker: connections by who has signed in, and what each was told, without what is drawn."""

    def __init__(self, ports: tuple[int, int]) -> None:
        self._plain, self._sasl = ports
        self._clients: dict[str, Client] = {}
        self.tokens: dict[str, Any] = {}
        self.heard: list[Any] = []

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def client(self, who: str) -> Client:
        """`anonymous`, a user, or `token NAME`."""
        if who not in self._clients:
            self._clients[who] = client = Client.connect(self._plain if who == "anonymous" else self._sasl)
            if who.startswith("token "):
                token = self.tokens[who.removeprefix("token ")]
                assert signed_in(client, token.token_id, bytes(token.hmac)).error_code == 0
            elif who != "anonymous":
                client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
                answer = client.ask(SaslAuthenticateRequest(auth_bytes=f"\0{who}\0{who}-secret".encode()), 2)
                assert answer.error_code == 0
        return self._clients[who]

    def create(self, who: str, name: str, version: int = 3, **fields: Any) -> Any:
        asked = {"max_lifetime_ms": -1, "renewers": [], **fields}
        before_ms = time.time() * 1000
        answer = self.client(who).ask(CreateDelegationTokenRequest(**asked), version)
        self.tokens[name] = answer
        if not answer.error_code:
            self._until_known(answer.token_id, answer.expiry_timestamp_ms)
        issued = answer.issue_timestamp_ms
        self.heard.append(
            (
                "created",
                Error(answer.error_code).name,
                (answer.principal_type, answer.principal_name),
                (answer.token_requester_principal_type, answer.token_requester_principal_name),
                "now" if issued >= before_ms - 5 else issued,
                answer.expiry_timestamp_ms - issued,
                answer.max_timestamp_ms - issued,
                len(answer.token_id),
                len(answer.hmac),
            )
        )
        return answer

    def renew(self, who: str, name: str, period_ms: int, version: int = 2) -> None:
        asked = RenewDelegationTokenRequest(hmac=self._hmac(name), renew_period_ms=period_ms)
        self._ends("renewed", name, self.client(who).ask(asked, version))

    def expire(self, who: str, name: str, period_ms: int, version: int = 2) -> None:
        asked = ExpireDelegationTokenRequest(hmac=self._hmac(name), expiry_time_period_ms=period_ms)
        self._ends("expired", name, self.client(who).ask(asked, version), is_gone=period_ms < 0)

    def _ends(self, what: str, name: str, answer: Any, *, is_gone: bool = False) -> None:
        ends = answer.expiry_timestamp_ms
        left = round((ends - time.time() * 1000) / 20_000) * 20_000 if ends > 0 else ends
        if not answer.error_code:
            self._until_known(self.tokens[name].token_id, None if is_gone else ends)
        self.heard.append((what, Error(answer.error_code).name, left))

    def _until_known(self, token_id: str, ends: int | None) -> None:
        """Kafka's brokers and its controller know a token by what was committed, a little later."""
        deadline_s = time.monotonic() + 30
        while time.monotonic() < deadline_s:
            every = self.client("admin").ask(DescribeDelegationTokenRequest(owners=None), 3).tokens
            if {each.token_id: each.expiry_timestamp for each in every}.get(token_id) == ends:
                return
        raise AssertionError("the broker knows nothing of the change")

    def _hmac(self, name: str) -> bytes:
        return bytes(self.tokens[name].hmac) if name in self.tokens else name.encode()

    def describe(self, who: str, owners: list[str] | None = None, version: int = 3) -> None:
        wanted = None
        if owners is not None:
            wanted = [
                DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners
            ]
        answer = self.client(who).ask(DescribeDelegationTokenRequest(owners=wanted), version)
        names = {token.token_id: name for name, token in self.tokens.items()}
        told = sorted(
            (
                names[each.token_id],
                each.principal_name,
                each.token_requester_principal_name,
                each.max_timestamp - each.issue_timestamp,
                bytes(each.hmac) == bytes(self.tokens[names[each.token_id]].hmac),
                [renewer.principal_name for renewer in each.renewers],
            )
            for each in answer.tokens
            if each.token_id in names
        )
        self.heard.append(("described", Error(answer.error_code).name, told))

    def allow(self, who: str, resource_type: int, name: str, operation: int) -> None:
        acl = AclCreation(
            resource_type=resource_type,
            resource_name=name,
            resource_pattern_type=LITERAL,
            principal=f"User:{who}",
            host="*",
            operation=operation,
            permission_type=ALLOW,
        )
        answer = self.client("admin").ask(CreateAclsRequest(creations=[acl]), 3)
        self.heard.append(("allowed", [each.error_code for each in answer.results]))

    def sign_in(
        self, token_id: str, secret: bytes, mechanism: int = 1, extension: str = ",tokenauth=true"
    ) -> Any:
        """What it was told, and whether it is served."""
        with Client.connect(self._sasl) as client:
            answer = signed_in(client, token_id, secret, mechanism, extension)
            served = "closed"
            if not answer.error_code:
                try:
                    client.ask(MetadataRequest(topics=[]), 12)
                    served = "served"
                except ConnectionError:
                    pass
            lifetime = round(answer.session_lifetime_ms / 10_000) * 10_000
            self.heard.append((Error(answer.error_code).name, answer.error_message, lifetime, served))
            return answer


def signed_in(
    client: Client, token_id: str, secret: bytes, mechanism: int = 1, extension: str = ",tokenauth=true"
) -> Any:
    """The last answer."""
    client.ask(SaslHandshakeRequest(mechanism=f"SCRAM-SHA-{'256' if mechanism == 1 else '512'}"), 1)
    talk = Conversation(client)
    last: list[Any] = []

    def send(token: bytes) -> None:
        last.append(talk.ask(SaslAuthenticateRequest(auth_bytes=token), 2))

    first = f"n={token_id.replace('=', '=3D')},r=fyko+d2lbbFgONRv9qkxdawL{extension}"
    talk.scram(token_id, base64.b64encode(secret), mechanism, send=send, first=first)
    return last[-1]


SCENES: dict[str, Callable[[Talk], None]] = {}


def scene(go: Callable[[Talk], None]) -> None:
    SCENES[go.__name__] = go


def renewers(*names: str, kind: str = "User") -> list[CreatableRenewers]:
    return [CreatableRenewers(principal_type=kind, principal_name=name) for name in names]


@scene
def every_version_over_each_kind_of_connection(talk: Talk) -> None:
    talk.create("alice", "t", renewers=renewers("bob"))
    for who in ("anonymous", "alice", "token t"):
        for version in (1, 2, 3):
            talk.create(who, f"{who} {version}", version)
            talk.describe(who, version=version)
            talk.describe(who, ["alice"], version=version)
            talk.describe(who, [], version=version)
        for version in (1, 2):
            for name in ("t", "nobody's"):
                talk.renew(who, name, 60_000, version)
                talk.expire(who, name, 60_000, version)


@scene
def lifetimes(talk: Talk) -> None:
    for lifetime_ms in (-1, 0, 1, 1000, KEPT_MS, 2 * KEPT_MS, 100 * KEPT_MS, (1 << 63) - 1, -(1 << 63)):
        talk.create("alice", f"for {lifetime_ms}", max_lifetime_ms=lifetime_ms)
    for period_ms in (-1, 0, 60_000, KEPT_MS, 100 * KEPT_MS, (1 << 63) - 1):
        talk.renew("alice", f"for {2 * KEPT_MS}", period_ms)
        talk.renew("alice", f"for {KEPT_MS}", period_ms)
    for period_ms in (60_000, 100 * KEPT_MS, (1 << 63) - 1):
        talk.expire("alice", f"for {2 * KEPT_MS}", period_ms)


@scene
def who_may_renew_and_expire(talk: Talk) -> None:
    talk.create("alice", "t", renewers=renewers("bob"))
    for who in ("alice", "bob", "carol", "admin"):
        talk.renew(who, "t", 60_000)
        talk.expire(who, "t", 120_000)
        talk.renew(who, "nobody's", 60_000)
        talk.expire(who, "nobody's", -1)
        talk.renew(who, "", 60_000)
    talk.expire("carol", "t", -1)
    talk.expire("bob", "t", -1)
    for who in ("alice", "bob", "carol"):
        talk.renew(who, "t", 60_000)
        talk.expire(who, "t", -1)
        talk.describe(who)


@scene
def what_has_expired(talk: Talk) -> None:
    """A token that has expired but isn't removed yet."""
    talk.create("alice", "t", renewers=renewers("bob"))
    talk.create("alice", "u", max_lifetime_ms=1)
    talk.expire("alice", "t", 0)
    time.sleep(0.05)
    for name in ("t", "u"):
        for who in ("alice", "carol"):
            talk.renew(who, name, 60_000)
            talk.expire(who, name, 60_000)
            talk.describe(who)
        token = talk.tokens[name]
        talk.sign_in(token.token_id, bytes(token.hmac))
        talk.expire("alice", name, -1)
        talk.sign_in(token.token_id, bytes(token.hmac))
        talk.renew("alice", name, 60_000)


@scene
def for_another_owner(talk: Talk) -> None:
    for version in (1, 2, 3):
        owner = {"owner_principal_type": "User", "owner_principal_name": "alice"} if version == 3 else {}
        talk.create("dave", f"denied {version}", version, **owner)
    talk.allow("dave", USER_RESOURCE, "User:alice", CREATE_TOKENS)
    talk.create("dave", "for alice", owner_principal_type="User", owner_principal_name="alice")
    for who in ("alice", "dave", "carol"):
        talk.describe(who, ["alice"])
        talk.describe(who, ["dave"])
        talk.renew(who, "for alice", 60_000)
        talk.expire(who, "for alice", 60_000)
    talk.create("alice", "own", owner_principal_type="User", owner_principal_name="alice")
    for kind, name in (
        ("Group", "alice"),
        ("", "alice"),
        ("User", ""),
        (None, None),
        (None, "alice"),
        ("User", None),
    ):
        talk.create("admin", f"{kind} {name}", owner_principal_type=kind, owner_principal_name=name)
        talk.create("dave", f"{kind} {name} denied", owner_principal_type=kind, owner_principal_name=name)
        talk.create("anonymous", f"{kind} {name} open", owner_principal_type=kind, owner_principal_name=name)
    token = talk.tokens["for alice"]
    talk.sign_in(token.token_id, bytes(token.hmac))


@scene
def renewers_of_other_types(talk: Talk) -> None:
    for version in (1, 2, 3):
        talk.create("alice", f"group {version}", version, renewers=renewers("bob", kind="Group"))
        talk.create("anonymous", f"open {version}", version, renewers=renewers("bob", kind="Group"))
    talk.create(
        "carol",
        "both",
        renewers=renewers("bob", kind=""),
        owner_principal_type="User",
        owner_principal_name="alice",
    )
    talk.create("alice", "colon", renewers=renewers("a:b", "", "bob", "bob"))
    talk.describe("alice", ["a:b"])
    talk.describe("alice", [""])


@scene
def who_may_see_what(talk: Talk) -> None:
    talk.create("alice", "a", renewers=renewers("bob"))
    talk.create("bob", "b")
    whoever: tuple[list[str] | None, ...] = (None, [], ["alice"], ["bob"], ["alice", "bob"], ["nobody"])
    for who in ("alice", "bob", "carol", "admin"):
        for owners in whoever:
            talk.describe(who, owners)
    talk.allow("carol", TOKEN_RESOURCE, talk.tokens["a"].token_id, DESCRIBE)
    for owners in whoever:
        talk.describe("carol", owners)
    talk.allow("dave", USER_RESOURCE, "User:bob", DESCRIBE_TOKENS)
    for owners in whoever:
        talk.describe("dave", owners)


@scene
def signing_in(talk: Talk) -> None:
    token = talk.create("alice", "t")
    token_id, secret = token.token_id, bytes(token.hmac)
    for mechanism in (1, 2):
        talk.sign_in(token_id, secret, mechanism)
        talk.sign_in(token_id, b"wrong", mechanism)
        talk.sign_in("nobody's", secret, mechanism)
        talk.sign_in("alice", secret, mechanism)
        for extension in ("", ",tokenauth=TRUE", ",tokenauth=false", ",tokenauth=yes", ",Tokenauth=true"):
            talk.sign_in(token_id, secret, mechanism, extension)
    talk.renew("alice", "t", 60_000)
    talk.sign_in(token_id, secret)


def heard(ports: tuple[int, int], go: Callable[[Talk], None]) -> list[Any]:
    talk = Talk(ports)
    try:
        go(talk)
    finally:
        talk.close()
    return talk.heard


@pytest.mark.parametrize("name", SCENES)
def test_tokens_work_as_with_kafka(name: str, both: Ports) -> None:
    assert heard(both["ours"], SCENES[name]) == heard(both["kafka"], SCENES[name])


def _whatever_is_asked(talk: Talk) -> None:
    for who in ("anonymous", "alice"):
        for version in (1, 2, 3):
            talk.create(who, "t", version)
            talk.create(who, "t", version, renewers=renewers("bob", kind="Group"))
            talk.describe(who, version=version)
            talk.describe(who, [], version=version)
        talk.create(who, "t", owner_principal_type="User", owner_principal_name="carol")
        for version in (1, 2):
            talk.renew(who, "x", 1, version)
            talk.expire(who, "x", -1, version)
    talk.sign_in("x", b"y")


def test_without_a_secret_there_are_none(without_secret: Ports) -> None:
    assert heard(without_secret["ours"], _whatever_is_asked) == heard(
        without_secret["kafka"], _whatever_is_asked
    )


# --- Kafka's tool, and a folder that both have ----------------------------------------------------------------

TOOL = "org.apache.kafka.tools.DelegationTokenCommand"


def _tool(port: int, user: str, folder: Path, *arguments: str, check: bool = True) -> str:
    properties = folder / f"{user}.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{user}" password="{user}-secret";\n'
    )
    given = ("--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(properties), *arguments)
    return apache_kafka.tool("class", TOOL, *given, check=check)


def _row(printed: str, token_id: str | None = None) -> list[str]:
    """Of the table that the tool prints: the token's id, HMAC, owner, requester, renewers and times."""
    rows = [line.split() for line in printed.splitlines()]
    [row] = [
        row for row in rows if len(row) > 3 and row[3].startswith("User:") and token_id in (None, row[0])
    ]
    return row


@pytest.fixture
def alone(needs_kafka: object) -> Iterator[tuple[int, int]]:
    plain, sasl = free_ports(2)
    with barnabas.Broker(config=our_settings(plain, sasl, SECRET)):
        yield plain, sasl


def test_kafkas_own_tool_makes_describes_and_renews_a_token(alone: tuple[int, int], tmp_path: Path) -> None:
    _, port = alone
    of_carol = ("--describe", "--owner-principal", "User:carol")
    made = _row(
        _tool(
            port,
            "carol",
            tmp_path,
            "--create",
            "--max-life-time-period",
            "3600000",
            "--renewer-principal",
            "User:bob",
        )
    )
    token_id, secret, owner, requester = made[:4]
    assert (owner, requester) == ("User:carol", "User:carol")
    shown = _row(_tool(port, "bob", tmp_path, *of_carol), token_id)
    assert shown == made
    assert "renew" in _tool(
        port, "bob", tmp_path, "--renew", "--renew-time-period", "60000", "--hmac", secret
    )


def test_tokens_are_good_on_the_same_folder_with_the_other_one(needs_kafka: object, tmp_path: Path) -> None:
    """Kafka makes one, we make one, and each is good with Kafka, as both are with us."""
    plain, controller, sasl = free_ports(3)
    tokens: list[Any] = []

    def play(name: str) -> None:
        talk = Talk((plain, sasl))
        try:
            for token in tokens:
                answer = talk.sign_in(token.token_id, bytes(token.hmac))
                assert answer.error_code == 0, (name, talk.heard[-1])
                assert talk.heard[-1][-1] == "served"
            tokens.append(talk.create("alice", name))
        finally:
            talk.close()

    with apache_kafka.running(tmp_path, *kafka_settings(plain, controller, sasl, SECRET)) as kafka:
        play("Kafka's")
        subprocess.run([apache_kafka.RUNNER, "down", kafka.directory], check=True)
        with barnabas.Broker(data=kafka.data, config={**our_settings(plain, sasl, SECRET), "node.id": 1}):
            play("ours")
        kafka.start_again()
        play("Kafka's again")
    assert len(tokens) == 3
