"""Encrypted listeners: who is let in and as whom, who isn't and what is said about it, and that it ends."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.config.definitions import StartError
from broker.environment.scheduler import LoopScheduler
from broker.network.connection import Connection
from broker.network.memory import Memory
from broker.network.tls_gate import LONGEST_HANDSHAKE_S, TlsGate
from broker.security.authorizer import ANONYMOUS, Principal
from broker.server import Server
from protocol.errors import Error
from protocol.messages.metadata import ApiVersionsRequest
from tests.node.test_connection import MAX_FRAME_BYTES, FakeDispatcher, FakeListener, frame
from tests.node.test_unsent_answers import RUNS
from tests.support.certificates import KEPT, Certificates
from tests.support.whole_server import started
from tests.support.wire import request_frame

ALICE = "/C=DE/O=Ex, Ltd/OU=Sales/CN=alice"
ALICE_NAME = r"CN=alice,OU=Sales,O=Ex\, Ltd,C=DE"
VERSIONS = request_frame(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)


@pytest.fixture
def authority() -> Certificates:
    return Certificates(KEPT)


@pytest.fixture
def stranger() -> Certificates:
    return Certificates(KEPT / "stranger")


async def node_of(folder: Path, authority: Certificates, protocol: str = "SSL", **given: str) -> Server:
    settings = {
        "listeners": "A://127.0.0.1:0",
        "listener.security.protocol.map": f"A:{protocol},CONTROLLER:PLAINTEXT",
        **authority.settings(),
        **{name.replace("_", "."): value for name, value in given.items()},
    }
    return await started(folder, *(f"{name}={value}" for name, value in settings.items()))


def client_context(
    trusts: Certificates, shows: Certificates | None = None, name: str = "alice"
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=trusts.certificate)
    if shows is not None:
        context.load_cert_chain(shows.folder / f"{name}.crt", shows.folder / f"{name}.key")
    return context


async def asked(node: Server, context: ssl.SSLContext | None) -> bytes:
    """Return the error code of ApiVersions' answer. Raises OSError or EOFError if there is no answer."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        node.listeners["A"].port,
        ssl=context,
        server_hostname=None if context is None else "localhost",
    )
    try:
        writer.write(VERSIONS)
        size = int.from_bytes(await reader.readexactly(4))
        return (await reader.readexactly(size))[4:6]
    finally:
        writer.transport.abort()


async def refused(node: Server, context: ssl.SSLContext | None) -> str:
    with pytest.raises((OSError, EOFError)) as raised:
        await asked(node, context)
    while node.listeners["A"].connections:
        await asyncio.sleep(0)
    return getattr(raised.value, "reason", "") or type(raised.value).__name__


def lines_of(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(each.getMessage() for each in caplog.records if each.name == "barnabas.connection")


GOOD = Error.NONE.to_bytes(2)


async def principal_of(node: Server, context: ssl.SSLContext) -> Principal:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", node.listeners["A"].port, ssl=context, server_hostname="localhost"
    )
    writer.write(VERSIONS)
    await reader.readexactly(4)
    [connection] = node.listeners["A"].connections
    writer.transport.abort()
    return connection.principal


# --- who is let in ------------------------------------------------------------------------------------------


async def test_a_client_without_a_certificate_is_anonymous(tmp_path: Path, authority: Certificates) -> None:
    node = await node_of(tmp_path, authority)
    assert await asked(node, client_context(authority)) == GOOD
    [registered] = node.metadata.image.brokers[node.node_id].record.end_points
    assert registered.security_protocol == 1
    while node.listeners["A"].connections:
        await asyncio.sleep(0)
    assert await principal_of(node, client_context(authority, authority)) == ANONYMOUS  # nobody asked


@pytest.mark.parametrize("auth", ["requested", "required"])
async def test_a_certificate_names_the_user_of_its_connection(
    auth: str, tmp_path: Path, authority: Certificates
) -> None:
    node = await node_of(tmp_path, authority, ssl_client_auth=auth)
    assert await principal_of(node, client_context(authority, authority)) == Principal("User", ALICE_NAME)


async def test_rules_make_a_user_of_the_name(tmp_path: Path, authority: Certificates) -> None:
    rules = "RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U,DEFAULT"
    node = await node_of(tmp_path, authority, ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    assert await principal_of(node, client_context(authority, authority)) == Principal("User", "ALICE@SALES")


async def test_a_listener_has_its_own_settings(tmp_path: Path, authority: Certificates) -> None:
    node = await node_of(
        tmp_path, authority, ssl_client_auth="required", listener_name_a_ssl_client_auth="none"
    )
    assert await asked(node, client_context(authority)) == GOOD


@pytest.mark.parametrize(
    ("version", "served"), [(ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, False)]
)
async def test_only_the_protocols_that_are_enabled_are_served(
    version: ssl.TLSVersion, served: bool, tmp_path: Path, authority: Certificates
) -> None:
    node = await node_of(
        tmp_path,
        authority,
        ssl_enabled_protocols="TLSv1.2",
        ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    )
    context = client_context(authority)
    context.minimum_version = context.maximum_version = version
    if served:
        assert await asked(node, context) == GOOD
    else:
        assert await refused(node, context) == "TLSV1_ALERT_PROTOCOL_VERSION"


async def test_a_key_that_is_locked_is_opened_by_its_password(
    tmp_path: Path, authority: Certificates
) -> None:
    node = await node_of(
        tmp_path,
        authority,
        ssl_keystore_location=str(authority.folder / "locked.pem"),
        ssl_key_password="open sesame",
    )
    assert await asked(node, client_context(authority)) == GOOD


# --- who isn't, and what is said of it ---------------------------------------------------------------------------


async def test_no_certificate_where_one_is_required(
    tmp_path: Path, authority: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas.connection")
    node = await node_of(tmp_path, authority, ssl_client_auth="required")
    assert await refused(node, client_context(authority)) == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert "listener A: it shows no certificate (ssl.client.auth=required)" in lines_of(caplog)
    assert await asked(node, client_context(authority, authority)) == GOOD


@pytest.mark.parametrize("auth", ["requested", "required"])
async def test_an_untrusted_certificate(
    auth: str,
    tmp_path: Path,
    authority: Certificates,
    stranger: Certificates,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "barnabas.connection")
    node = await node_of(tmp_path, authority, ssl_client_auth=auth)
    assert await refused(node, client_context(authority, stranger)) == "TLSV1_ALERT_UNKNOWN_CA"
    assert "its certificate isn't trusted: unable to get local issuer certificate" in lines_of(caplog)


async def test_a_certificate_that_has_expired(
    tmp_path: Path, authority: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas.connection")
    node = await node_of(tmp_path, authority, ssl_client_auth="required")
    context = client_context(authority, authority, "bob")
    assert await refused(node, context) == "SSLV3_ALERT_CERTIFICATE_EXPIRED"
    assert "its certificate isn't trusted: certificate has expired" in lines_of(caplog)


async def test_a_client_that_does_not_trust_the_broker(
    tmp_path: Path, authority: Certificates, stranger: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas.connection")
    node = await node_of(tmp_path, authority)
    assert await refused(node, client_context(stranger)) == "CERTIFICATE_VERIFY_FAILED"
    assert "listener A: it hung up" in lines_of(caplog)  # Python keeps the reason to itself


async def test_a_name_that_no_rule_is_for(
    tmp_path: Path, authority: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas.connection")
    rules = "RULE:^CN=root$/root/"
    node = await node_of(tmp_path, authority, ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    await refused(node, client_context(authority, authority))
    assert f"no rule of ssl.principal.mapping.rules matches {ALICE_NAME!r}" in lines_of(caplog)


async def test_plaintext_or_http_at_an_encrypted_listener(
    tmp_path: Path, authority: Certificates, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "barnabas.connection")
    node = await node_of(tmp_path, authority)
    assert await refused(node, None) in ("IncompleteReadError", "ConnectionResetError")
    assert "what it sends isn't TLS, but may be Kafka's protocol without TLS" in lines_of(caplog)
    monkeypatch.setattr("tests.node.test_tls_listeners.VERSIONS", b"GET / HTTP/1.1\r\n")
    await refused(node, None)
    assert "HTTP" not in lines_of(caplog)  # one line of a kind in a while


async def test_tls_at_an_unencrypted_listener(
    tmp_path: Path, authority: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas.connection")
    node = await node_of(tmp_path, authority, "PLAINTEXT")
    await refused(node, client_context(authority))
    assert "this looks like TLS, and the listener is plaintext" in lines_of(caplog)


# --- the handshake's time -----------------------------------------------------------------------------------------


class Timers:
    """A scheduler whose timers a test fires."""

    def __init__(self) -> None:
        self.loop = LoopScheduler()
        self.time, self.call_soon = self.loop.time, self.loop.call_soon
        self.waiting: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Any:
        entry = (delay_s, lambda: callback(*args))
        self.waiting.append(entry)
        return SimpleNamespace(cancel=lambda: entry in self.waiting and self.waiting.remove(entry))

    def move_to(self, delay_s: float) -> None:
        for entry in [each for each in self.waiting if each[0] <= delay_s]:
            self.waiting.remove(entry)
            entry[1]()


class GatedListener(FakeListener):
    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[TlsGate, None] = {}
        self.told: list[str] = []

    def not_encrypted(self, client: str, why: str) -> None:
        self.told.append(why)


@pytest.mark.limit("broker.network.tls_gate.LONGEST_HANDSHAKE_S")
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
def test_a_client_that_sends_nothing_or_half_a_hello_is_given_up(
    run: Callable[..., Any], said: bytes, authority: Certificates
) -> None:
    async def told() -> None:
        timers, listener = Timers(), GatedListener()
        scheduler: Any = timers
        encryption: Any = SimpleNamespace(context=server_context(authority), no_name=(), principal=None)

        def gate() -> TlsGate:
            memory = Memory.of(scheduler, MAX_FRAME_BYTES, -1)
            return TlsGate(
                Connection(listener, FakeDispatcher(), scheduler, memory),
                encryption,
                listener,
                scheduler,
                100,
            )

        server = await asyncio.get_running_loop().create_server(gate, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(said)
        while not timers.waiting:
            await asyncio.sleep(0)
        assert len(listener.connections) == 1  # it counts from the first
        for _ in range(10):
            await asyncio.sleep(0)
        timers.move_to(LONGEST_HANDSHAKE_S - 0.1)
        assert len(listener.gates) == 1
        timers.move_to(LONGEST_HANDSHAKE_S)
        with pytest.raises((EOFError, ConnectionResetError)):
            await reader.readexactly(1)
        while listener.connections or listener.gates:
            await asyncio.sleep(0)
        assert listener.told == [f"it hasn't finished the handshake in {LONGEST_HANDSHAKE_S:.0f} s"]
        writer.transport.abort()
        server.close()

    run(told())


def server_context(authority: Certificates) -> ssl.SSLContext:
    from broker.network.tls import ListenerContext

    context = ListenerContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.folder / "server.crt", authority.folder / "server.key")
    return context


@pytest.mark.parametrize("run", RUNS)
def test_bytes_that_come_with_the_end_of_the_handshake_are_served(
    run: Callable[..., Any], authority: Certificates
) -> None:
    """Many clients connect together, and each sends immediately. None gets another one's bytes or loses its own."""

    async def told() -> None:
        listener, scheduler = GatedListener(), LoopScheduler()
        encryption: Any = SimpleNamespace(
            context=server_context(authority), no_name=(), principal=lambda _: ANONYMOUS
        )

        def gate() -> TlsGate:
            memory = Memory.of(scheduler, MAX_FRAME_BYTES, -1)
            return TlsGate(
                Connection(listener, FakeDispatcher(), scheduler, memory),
                encryption,
                listener,
                scheduler,
                100,
            )

        server = await asyncio.get_running_loop().create_server(gate, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()

        async def talk(number: int) -> None:
            reader, writer = await asyncio.open_connection(
                host, port, ssl=client_context(authority), server_hostname="localhost"
            )
            sent = [b"%d %s" % (number, b"x" * 50_000), b"%d then" % number]
            writer.write(b"".join(map(frame, sent)))
            expected = b"".join(b"<%s>" % each for each in sent)
            assert await reader.readexactly(len(expected)) == expected
            writer.transport.abort()

        await asyncio.gather(*map(talk, range(20)))
        assert listener.told == []
        assert encryption.context.next_begins is None
        server.close()

    run(told())


# --- starts that come to nothing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"ssl_keystore_location": "/nowhere.pem"},
            "ssl.keystore.location (/nowhere.pem): it can't be read: No such",
        ),
        (
            {"ssl_keystore_location": "{}/server.crt"},
            "there has to be one key (-----BEGIN PRIVATE KEY-----) in it",
        ),
        (
            {"ssl_keystore_location": "{}/server.key"},
            "there is no certificate (-----BEGIN CERTIFICATE-----) in it",
        ),
        ({"ssl_keystore_location": "{}/locked.pem"}, "its key is encrypted, and ssl.key.password is missing"),
        (
            {"ssl_keystore_location": "{mixed}"},
            "the key doesn't belong to the first certificate in it",
        ),
        ({"ssl_key_password": "sesame"}, "its key isn't encrypted, but ssl.key.password is given"),
        (
            {"ssl_keystore_location": "{}/locked.pem", "ssl_key_password": "sesame"},
            "ssl.key.password doesn't open its key",
        ),
        ({"ssl_truststore_location": "{}/server.key"}, "ssl.truststore.location"),
        (
            {"ssl_cipher_suites": "TLS_NOTHING"},
            "ssl.cipher.suites: there is no cipher suite TLS_NOTHING here",
        ),
    ],
)
async def test_a_start_says_which_setting_is_wrong(
    settings: dict[str, str], message: str, tmp_path: Path, authority: Certificates
) -> None:
    folder = authority.folder
    mixed = tmp_path / "mixed.pem"
    mixed.write_text((folder / "alice.key").read_text() + (folder / "server.crt").read_text())
    given = {
        name: value.replace("{mixed}", str(mixed)).replace("{}", str(folder))
        for name, value in settings.items()
    }
    with pytest.raises(StartError) as raised:
        await node_of(tmp_path / "data", authority, **given)
    assert message in str(raised.value)
    assert str(raised.value).startswith("-o: ")
    assert "sesame" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.exit_status == 2
