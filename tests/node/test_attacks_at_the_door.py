"""What attackers try before they are known: each is tried here, or in a test that docs/security.md names."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.controller.acls import ALL_OPERATIONS, WILDCARD, Acl, PatternType, Permission
from broker.network.tls_gate import MOST_HANDSHAKES, Handshakes
from broker.process.log_stream import LineFormatter
from broker.security.authorizer import Operation, Principal, ResourceType
from broker.security.distinguished_names import name_text
from broker.security.principal_mapping import mapped_name, parse_rules
from broker.security.standard_authorizer import StandardAuthorizer
from broker.server import Server
from protocol.errors import Error
from protocol.messages.metadata import ApiVersionsRequest, MetadataRequest
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.node.test_sasl import ALICE, connected, serving
from tests.node.test_tls_listeners import VERSIONS, asked, client_context, node_of, refused
from tests.support.certificates import KEPT, Certificates
from tests.support.wire import Outcome, request_frame

OURS = Certificates(KEPT)


async def nobody_is_left(node: Server) -> None:
    [listener] = node.listeners.values()
    while listener.connections or listener.gates:
        await asyncio.sleep(0)


# --- requests that are smuggled in before somebody is known --------------------------------------------------------

WRONG = SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2
SHAKE, METADATA = (SaslHandshakeRequest(mechanism="PLAIN"), 1), (MetadataRequest(topics=[]), 12)


@pytest.mark.parametrize(
    ("requests", "answered"),
    [
        ([SHAKE, WRONG, METADATA], 2),
        ([SHAKE, WRONG, (SaslAuthenticateRequest(auth_bytes=ALICE), 2), METADATA], 2),
        ([SHAKE, METADATA, (SaslAuthenticateRequest(auth_bytes=ALICE), 2)], 2),
        ([METADATA, SHAKE, (SaslAuthenticateRequest(auth_bytes=ALICE), 2)], 0),
        ([(SaslHandshakeRequest(mechanism="OTHER"), 1), SHAKE, METADATA], 1),
        ([(ApiVersionsRequest(), 0), (ApiVersionsRequest(), 0)], 1),
    ],
)
async def test_requests_after_a_failure_are_not_served(
    requests: list[Any], answered: int, tmp_path: Path
) -> None:
    """All requests come in one piece. If Metadata comes between tokens, the answer says nothing about the cluster."""
    node = await serving(tmp_path, "connection.failed.authentication.delay.ms=1")
    with connected(node) as client:
        made = [client.made(*each) for each in requests]
        client.send_bytes(b"".join(data for _, data in made))
        answers = []
        for sent, _ in made:
            while (answer := client.receive(sent, within_s=0)) is Outcome.SILENCE:
                await asyncio.sleep(0)
            if answer is Outcome.CLOSED:
                break
            answers.append(answer)
    assert len(answers) == answered
    for each in answers:
        assert not isinstance(each, Outcome)
        assert not getattr(each.message, "brokers", None)
        assert not getattr(each.message, "cluster_id", None)
    await nobody_is_left(node)


# --- TLS that is cut off, older, or none -----------------------------------------------------------------------------


async def test_a_request_truncated_by_a_middleman_is_not_served(tmp_path: Path) -> None:
    """TCP ends amid a frame, without an end of TLS. The broker looks at nothing of the frame."""
    node = await node_of(tmp_path, OURS)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", node.listeners["A"].port, ssl=client_context(OURS), server_hostname="localhost"
    )
    writer.write(VERSIONS)
    size = int.from_bytes(await reader.readexactly(4))
    await reader.readexactly(size)
    writer.write(VERSIONS[:-1])
    while writer.transport.get_write_buffer_size():
        await asyncio.sleep(0)
    writer.transport.abort()  # no goodbye
    await nobody_is_left(node)
    assert await asked(node, client_context(OURS)) == Error.NONE.to_bytes(2)


async def test_no_client_is_downgraded_to_an_older_protocol(tmp_path: Path) -> None:
    """A client that offers only TLS 1.0 and 1.1 shares no version with the broker, even if somebody in between removed
    the newer ones."""
    node = await node_of(tmp_path, OURS)
    context = client_context(OURS)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    assert "PROTOCOL" in await refused(node, context)


# --- one name for another --------------------------------------------------------------------------------------------


def allowed(acl: Acl, who: str, name: str, *, super_users: tuple[str, ...] = ()) -> bool:
    authorizer = StandardAuthorizer(super_users, allow_if_no_acl=False)
    authorizer._acls.add(acl)
    kind, _, user = who.partition(":")
    context: Any = SimpleNamespace(
        principal=Principal(kind, user), peer_host="127.0.0.1", listener_name="A", api_key=0
    )
    return authorizer.allows(context, Operation.READ, ResourceType.TOPIC, name)


def acl(principal: str, pattern: PatternType, name: str) -> Acl:
    fields = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": name,
        "pattern_type": pattern,
        "principal": principal,
        "host": WILDCARD,
        "operation": ALL_OPERATIONS,
        "permission_type": Permission.ALLOW,
    }
    return Acl(**{each: fields[each] for each in Acl._fields if each in fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("principal", "pattern", "name", "who", "asked_for", "expected"),
    [
        ("User:alice", PatternType.PREFIXED, "orders", "User:alice", "orders-x", True),
        ("User:alice", PatternType.PREFIXED, "orders", "User:alice", "order", False),
        ("User:alice", PatternType.PREFIXED, "orders", "User:alice", "Orders-x", False),
        ("User:alice", PatternType.PREFIXED, "*", "User:alice", "orders", False),
        ("User:alice", PatternType.LITERAL, "orders", "User:alice", "orders ", False),
        ("User:alice", PatternType.LITERAL, "orders", "user:alice", "orders", False),
        ("User:alice", PatternType.LITERAL, "orders", "User:alice ", "orders", False),
        ("User:alice", PatternType.LITERAL, "orders", "User:ali", "orders", False),
        ("User:ali", PatternType.LITERAL, "orders", "User:alice", "orders", False),
        ("User:a:b", PatternType.LITERAL, "orders", "User:a:b", "orders", True),
        ("User:*", PatternType.LITERAL, "orders", "Group:alice", "orders", True),  # as in Kafka: everybody
        ("User:alice", PatternType.LITERAL, "orders", "User:*", "orders", False),
    ],
)
def test_names_are_compared_letter_by_letter(
    principal: str, pattern: PatternType, name: str, who: str, asked_for: str, expected: bool
) -> None:
    assert allowed(acl(principal, pattern, name), who, asked_for) is expected


@pytest.mark.parametrize("who", ["User:admin,User:mallory", "User:admin;", "user:admin", "User:admin\n"])
def test_a_name_that_resembles_a_super_user_is_not_one(who: str) -> None:
    other = acl("User:other", PatternType.LITERAL, "x")
    assert allowed(other, "User:admin", "x", super_users=("User:admin",))
    assert not allowed(other, who, "x", super_users=("User:admin",))


def der(tag: int, content: bytes) -> bytes:
    assert len(content) < 0x80
    return bytes((tag, len(content))) + content


def subject(common_name: str) -> str:
    pair = der(0x06, bytes((0x55, 4, 3))) + der(0x0C, common_name.encode())
    return name_text(der(0x30, der(0x31, der(0x30, pair))))


def test_a_name_inside_a_certificates_name_does_not_change_the_user() -> None:
    """A comma within a value is escaped, so a value that contains CN=admin doesn't make its owner the admin."""
    name = subject("mallory,CN=admin,OU=Ops")
    assert name == r"CN=mallory\,CN\=admin\,OU\=Ops"
    rules = parse_rules("RULE:^CN=([a-z]+),.*$/$1/,DEFAULT")
    assert mapped_name(rules, name) == name
    assert subject("admin\0.example") == r"CN=admin\00.example"


# --- lines in the log that never were --------------------------------------------------------------------------------

FORGED = "x\n2026-01-01 00:00:00,000 INFO kafka.authorizer.logger: Principal = User:mallory is Allowed \x1b[2J\u202e"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [LineFormatter().format(each) for each in caplog.records]


async def test_a_user_a_mechanism_and_a_client_that_have_line_ends_forge_no_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = await serving(tmp_path, "connection.failed.authentication.delay.ms=1")
    with caplog.at_level(logging.DEBUG):
        for requests in (
            [(SaslHandshakeRequest(mechanism=FORGED), 1)],
            [SHAKE, (SaslAuthenticateRequest(auth_bytes=f"\0{FORGED}\0p".encode()), 2)],
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", node.listeners["SASL_PLAINTEXT"].port)
            for number, (message, version) in enumerate(requests):
                writer.write(request_frame(message, version, number, client_id=FORGED))
            await reader.read()
            writer.transport.abort()
    assert any("sign in" in each for each in lines(caplog))
    for line in lines(caplog):
        assert line.isprintable(), line


async def test_a_denied_name_forges_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        assert not allowed(acl("User:a", PatternType.LITERAL, "x"), f"User:{FORGED}", FORGED)
    [line] = lines(caplog)
    assert line.isprintable()


# --- too many from one address ---------------------------------------------------------------------------------------


async def test_connections_before_their_handshake_count_for_their_address(tmp_path: Path) -> None:
    """`max.connections.per.ip` counts connections whose handshake isn't finished, too."""
    node = await node_of(tmp_path, OURS, max_connections_per_ip="3")
    port = node.listeners["A"].port
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
    while len(node.listeners["A"].connections) < 3:
        await asyncio.sleep(0)
    with pytest.raises((OSError, EOFError)):
        await asked(node, client_context(OURS))
    held.pop().close()
    while len(node.listeners["A"].connections) > 2:
        await asyncio.sleep(0)
    assert await asked(node, client_context(OURS)) == Error.NONE.to_bytes(2)
    for each in held:
        each.close()
    await nobody_is_left(node)


@pytest.mark.limit("broker.network.tls_gate.MOST_HANDSHAKES")
async def test_handshakes_begin_some_at_a_time_in_the_order_in_which_they_came() -> None:
    begun: list[int] = []

    def gate(number: int, *, is_there: bool = True) -> Any:
        return SimpleNamespace(shake=lambda: is_there and (begun.append(number) or True))

    handshakes = Handshakes()
    for number in range(2 * MOST_HANDSHAKES + 1):
        handshakes.begin(gate(number, is_there=number != MOST_HANDSHAKES))
    assert begun == [*range(MOST_HANDSHAKES)]
    await asyncio.sleep(0)
    expected = [*range(MOST_HANDSHAKES), *range(MOST_HANDSHAKES + 1, 2 * MOST_HANDSHAKES + 1)]
    assert begun == expected  # a client that has gone takes nobody's turn
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    handshakes.begin(gate(-1))
    assert begun == [*expected, -1]
