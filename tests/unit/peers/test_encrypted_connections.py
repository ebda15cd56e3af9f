"""Encrypted connections to other nodes: bytes in pieces of any size, and what is said if a connection fails."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import BrokerConfig
from broker.config.definitions import ConfigError
from broker.config.tls_config import TlsConfig
from broker.network.tls import OutgoingTls, Tls, check_against_each_other
from broker.peers.peer import PeerConnection
from tests.support.certificates import KEPT, Certificates, renew

KEYS = Certificates(KEPT)
STRANGER = Certificates(KEPT / "stranger")
FRAME = b"\0\0\0\x08\0\0\0\x01abcd"


def tls_config(*, is_outgoing: bool = False, **settings: str) -> TlsConfig:
    return TlsConfig(config_of(**settings), "SSL", is_sasl=False, is_outgoing=is_outgoing)


def config_of(**settings: str) -> BrokerConfig:
    given = {**KEYS.settings(), **{name.replace("_", "."): value for name, value in settings.items()}}
    return assemble([settings_of({"listeners": "SSL://127.0.0.1:1", **given})])


def outgoing(**settings: str) -> OutgoingTls:
    return OutgoingTls(tls_config(is_outgoing=True, **settings))


def server_context(**settings: str) -> ssl.SSLContext:
    found: ssl.SSLContext = Tls(tls_config(**settings), is_for_principals=True).context
    return found


class Wire(asyncio.Transport):
    """A transport that keeps what a connection sends, and whether it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.is_over = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_over
        self.sent += data

    def abort(self) -> None:
        self.is_over = self.is_over or "aborted"

    def close(self) -> None:
        self.is_over = self.is_over or "closed"


class Two:
    """A connection of a node, and a server whose part the test plays."""

    def __init__(self, tls: OutgoingTls, context: ssl.SSLContext, host: str = "localhost") -> None:
        self.told: list[Any] = []
        self.connection = PeerConnection(
            lambda: self.told.append("made"),
            lambda frame: self.told.append(bytes(frame)),
            lambda why: self.told.append(("ended", why)),
            tls.begin(host),
        )
        self.wire = Wire()
        self.to_server, self.to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context.wrap_bio(self.to_server, self.to_client, server_side=True)
        self.connection.connection_made(self.wire)

    def carry(self, at_once: int = 1 << 20) -> None:
        """Carry everything that is on its way, in pieces of so many bytes."""
        while True:
            sent, self.wire.sent = bytes(self.wire.sent), bytearray()
            self.to_server.write(sent)
            came = self.to_client.read()
            for at in range(0, len(came), at_once):
                give(self.connection, came[at : at + at_once])
            if not sent and not came:
                return

    def shake(self, at_once: int = 1 << 20) -> None:
        for _ in range(4):
            self.carry(at_once)
            try:
                self.server.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                self.carry(at_once)
                return
        self.carry(at_once)

    def say(self, data: bytes, at_once: int = 1 << 20) -> None:
        self.server.write(data)
        self.carry(at_once)


def give(connection: PeerConnection, data: bytes) -> None:
    while data:
        room = connection.get_buffer(-1)
        size = min(len(room), len(data))
        room[:size] = data[:size]
        data = data[size:]
        connection.buffer_updated(size)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("at_once", [1, 7, 1 << 20])
def test_however_the_bytes_come(version: str, at_once: int) -> None:
    versions = {"ssl_enabled_protocols": version}
    two = Two(outgoing(**versions), server_context(ssl_client_auth="required", **versions))
    two.shake(at_once)
    assert two.told == ["made"]
    two.connection.send(b"asked")
    two.carry(at_once)
    assert two.server.read(100) == b"asked"
    large = b"\0\x03\0\0" + bytes(0x30000)
    two.say(FRAME + large + FRAME, at_once)
    assert two.told == ["made", FRAME[4:], large[4:], FRAME[4:]]
    assert two.server.getpeercert(True) is not None


def test_a_certificate_has_to_be_for_the_host_where_that_is_checked() -> None:
    for host in ("localhost", "127.0.0.1"):
        two = Two(outgoing(), server_context(), host)
        two.shake()
        assert two.told == ["made"]
    two = Two(outgoing(), server_context(), "elsewhere")
    two.shake()
    [(_, why)] = two.told
    assert "certificate is not valid for 'elsewhere'" in why
    assert why.endswith("(ssl.endpoint.identification.algorithm)")
    two = Two(outgoing(ssl_endpoint_identification_algorithm=""), server_context(), "elsewhere")
    two.shake()
    assert two.told == ["made"]


def test_an_untrusted_signer_is_refused_and_the_other_node_learns_it() -> None:
    two = Two(outgoing(ssl_truststore_location=str(STRANGER.certificate)), server_context())
    two.carry()
    with pytest.raises(ssl.SSLWantReadError):
        two.server.do_handshake()
    two.carry()
    [(_, why)] = two.told
    assert why.startswith("its certificate isn't trusted: ")
    assert why.endswith("(ssl.truststore)")
    assert two.wire.is_over == "closed"  # after it has sent the alert
    with pytest.raises(ssl.SSLError, match="ALERT_UNKNOWN_CA"):
        two.server.do_handshake()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_node_without_a_required_certificate_learns_of_it(version: str) -> None:
    versions = {"ssl_enabled_protocols": version}
    config = assemble([settings_of({"listeners": "SSL://127.0.0.1:1", **KEYS.settings(), **named(versions)})])
    config._effective.pop("ssl.keystore.location")
    tls = OutgoingTls(TlsConfig(config, "SSL", is_sasl=False, is_outgoing=True))
    two = Two(tls, server_context(ssl_client_auth="required", **versions))
    two.shake()
    assert two.told[-1][0] == "ended"
    assert "it refuses" in two.told[-1][1]


def named(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def test_a_node_with_no_common_protocol_is_refused() -> None:
    two = Two(outgoing(ssl_enabled_protocols="TLSv1.3"), server_context(ssl_enabled_protocols="TLSv1.2"))
    two.shake()
    [(_, why)] = two.told
    assert why.startswith(("it refuses: ", "no encryption with it: "))


def test_an_answer_that_is_not_tls_is_recognized() -> None:
    two = Two(outgoing(), server_context())
    give(two.connection, b"\0\0\0\x0ahow are you")
    assert two.told == [("ended", "its answer isn't TLS")]


@pytest.mark.parametrize("end", ["goodbye", "hang up", "nonsense"])
def test_the_end_is_reported_once(end: str) -> None:
    two = Two(outgoing(), server_context())
    two.shake()
    if end == "goodbye":
        with pytest.raises(ssl.SSLWantReadError):
            two.server.unwrap()
        two.carry()
    elif end == "hang up":
        two.connection.connection_lost(None)
    else:
        give(two.connection, b"\x17\x03\x03\0\x20" + bytes(32))
    two.connection.connection_lost(None)
    assert [each for each in two.told if each[0] == "ended"] == two.told[1:]
    assert len(two.told) == 2
    if end != "nonsense":
        assert two.told[1] == ("ended", "it closed the connection")
    two.connection.send(b"goes nowhere")


def test_an_error_that_an_answer_causes_is_no_fault_of_the_encryption() -> None:
    """For example, the node has to stop if a replica can't be written."""

    def fail(frame: memoryview) -> None:
        raise OSError("the disk")

    two = Two(outgoing(), server_context())
    two.shake()
    two.connection._answered = fail
    with pytest.raises(OSError, match="the disk"):
        two.say(FRAME)
    assert two.told == ["made"]


def test_a_closed_connection_reports_nothing_more() -> None:
    two = Two(outgoing(), server_context())
    two.shake()
    two.connection.close()
    two.server.write(FRAME)
    give(two.connection, two.to_client.read())
    assert two.told == ["made"]


@pytest.mark.parametrize("host", ["", ".elsewhere"])
def test_a_name_that_no_certificate_has_is_no_host(host: str) -> None:
    with pytest.raises(ValueError, match=r"server_hostname|idna"):
        outgoing().begin(host)


def test_brokers_have_to_understand_each_other_by_the_settings() -> None:
    check_against_each_other(server_context(), outgoing().context, "SSL")
    check_against_each_other(server_context(ssl_client_auth="required"), outgoing().context, "SSL")
    context = outgoing().context
    assert context.check_hostname
    for server, client in (
        (server_context(), outgoing(ssl_truststore_location=str(STRANGER.certificate))),
        (
            server_context(ssl_client_auth="required", ssl_truststore_location=str(STRANGER.certificate)),
            outgoing(),
        ),
    ):
        with pytest.raises(ConfigError, match="a client with its settings can't connect to a server"):
            check_against_each_other(server, client.context, "SSL")


def test_a_listener_between_brokers_accepts_only_certificates_that_old_connections_trust(
    tmp_path: Path,
) -> None:
    """Brokers reread their files one by one. A new authority takes over in three steps."""
    keys, trusted, both = (tmp_path / name for name in ("keys.pem", "trusted.pem", "both.pem"))
    both.write_text(KEYS.certificate.read_text() + STRANGER.certificate.read_text())
    renew(keys, KEYS.folder / "server.pem")
    renew(trusted, KEYS.certificate)
    config = config_of(ssl_keystore_location=str(keys), ssl_truststore_location=str(trusted))
    listener = Tls(TlsConfig(config, "SSL", is_sasl=False), is_for_principals=True)
    own = OutgoingTls(TlsConfig(config, "SSL", is_sasl=False, is_outgoing=True))
    listener.meet(own)

    for file, by in ((keys, STRANGER.folder / "server.pem"), (trusted, STRANGER.certificate)):
        before = tmp_path / "before.pem"
        renew(before, file)
        renew(file, by)
        with pytest.raises(ConfigError, match="a client with its settings can't connect to a server"):
            listener.follow(config)
        renew(file, before)

    for file, by in (
        (trusted, both),
        (keys, STRANGER.folder / "server.pem"),
        (trusted, STRANGER.certificate),
    ):
        contexts = listener.context, own.context
        renew(file, by)
        listener.check(config)
        assert (listener.context, own.context) == contexts
        assert listener.follow(config)
        assert not {*contexts} & {listener.context, own.context}
    assert not listener.follow(config)


@pytest.mark.parametrize(
    ("algorithm", "checks"), [("https", True), ("HTTPS", True), ("", False), (None, True)]
)
def test_whether_hosts_are_checked(algorithm: str | None, checks: bool) -> None:
    given = {} if algorithm is None else {"ssl_endpoint_identification_algorithm": algorithm}
    assert tls_config(is_outgoing=True, **given).checks_host is checks


def test_other_ways_to_check_hosts_are_refused() -> None:
    with pytest.raises(ConfigError, match="it can be https, or nothing, not LDAPS"):
        tls_config(is_outgoing=True, ssl_endpoint_identification_algorithm="LDAPS")
