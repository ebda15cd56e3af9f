"""Encrypted listeners: with the same files, Apache Kafka and barnabas admit the same clients by the same protocols."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import barnabas
from protocol.errors import Error
from protocol.messages.metadata import ApiVersionsRequest
from tests.support import apache_kafka
from tests.support.certificates import Authority, Certificates
from tests.support.ports import free_ports
from tests.support.wire import request_frame

pytestmark = pytest.mark.xdist_group("apache_kafka")

NAMES = ("NOBODY", "REQUESTED", "REQUIRED", "OLDER", "ONE_SUITE", "SIGNED_IN")
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
VERSIONS = request_frame(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)


def settings(certificates: Certificates) -> dict[str, str]:
    protocols = ",".join(f"{name}:{'SASL_SSL' if name == 'SIGNED_IN' else 'SSL'}" for name in NAMES)
    return {
        **certificates.settings(),
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocols}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.requested.ssl.client.auth": "requested",
        "ssl.client.auth": "none",
        "listener.name.required.ssl.client.auth": "required",
        "listener.name.required.ssl.protocol": "TLSv1.2",
        "listener.name.older.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.one_suite.ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "listener.name.signed_in.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.signed_in.plain.sasl.jaas.config": JAAS,
    }


class Both(NamedTuple):
    """The ports of each one's listeners, by name."""

    kafka: dict[str, int]
    ours: dict[str, int]
    certificates: Certificates
    stranger: Certificates


@pytest.fixture(scope="module")
def both(needs_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    authority.sign("alice", "/C=DE/O=Ex, Ltd/OU=Sales/CN=alice")
    authority.sign("bob", "/CN=bob", is_expired=True)
    stranger = Authority(tmp_path_factory.mktemp("stranger"), "Another CA")
    stranger.sign("alice", "/CN=alice")
    ports = free_ports(2 * len(NAMES) + 3)
    kafkas, ours = dict(zip(NAMES, ports, strict=False)), dict(zip(NAMES, ports[len(NAMES) :], strict=False))
    plain, controller, our_plain = ports[2 * len(NAMES) :]
    given = settings(authority)
    listeners = f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},{listed(kafkas)}"
    lines = [f"{name}={value}" for name, value in given.items()]
    lines.append(f"advertised.listeners=PLAINTEXT://127.0.0.1:{plain},{listed(kafkas)}")
    quorum = f"controller.quorum.voters=1@127.0.0.1:{controller}"
    with (
        apache_kafka.running(tmp_path_factory.mktemp("kafka"), f"listeners={listeners}", quorum, *lines),
        barnabas.Broker(config={**given, "listeners": f"PLAINTEXT://127.0.0.1:{our_plain},{listed(ours)}"}),
    ):
        yield Both(kafkas, ours, authority, stranger)


def listed(ports: dict[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


# --- what clients see ----------------------------------------------------------------------------------------


def shown(both: Both, who: str | None) -> tuple[Path, Path] | None:
    """Certificate and key."""
    if who is None:
        return None
    folder = both.stranger.folder if who == "stranger" else both.certificates.folder
    name = "alice" if who == "stranger" else who
    return folder / f"{name}.crt", folder / f"{name}.key"


def by_python(both: Both, port: int, who: str | None, version: ssl.TLSVersion | None = None) -> Any:
    """The protocol by which ApiVersions was answered; "refused" where it wasn't."""
    context = ssl.create_default_context(cafile=both.certificates.certificate)
    keys = shown(both, who)
    if keys is not None:
        context.load_cert_chain(*keys)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as wrapped,
        ):
            wrapped.sendall(VERSIONS)
            answer = wrapped.recv(10)
            assert not answer or answer[8:10] in (Error.NONE.to_bytes(2), b"")
            return wrapped.version() if answer else "refused"
    except (ssl.SSLError, ConnectionResetError, BrokenPipeError):
        return "refused"


def by_openssl(both: Both, port: int, who: str | None, *options: str) -> tuple[str, str]:
    keys = shown(both, who)
    shows = [] if keys is None else ["-cert", str(keys[0]), "-key", str(keys[1])]
    command = [
        "openssl",
        "s_client",
        "-connect",
        f"127.0.0.1:{port}",
        "-CAfile",
        both.certificates.certificate,
    ]
    ended = subprocess.run(
        [*command, *shows, *options], input="", capture_output=True, text=True, check=False, timeout=30
    )
    protocol = re.search(r"^New, (\S+), Cipher is (\S+)$", ended.stdout, re.MULTILINE)
    assert protocol is not None, ended.stdout + ended.stderr
    return protocol[1], protocol[2]


def by_confluent(both: Both, port: int, who: str | None, **more: str) -> str:
    keys = shown(both, who)
    config = {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": "ssl",
        "ssl.ca.location": str(both.certificates.certificate),
        "log_level": 0,
        **more,
    }
    if keys is not None:
        config |= {"ssl.certificate.location": str(keys[0]), "ssl.key.location": str(keys[1])}
    refused: list[object] = []
    client = AdminClient({**config, "error_cb": refused.append})
    for _ in range(50):
        with suppress(KafkaException):
            client.list_topics(timeout=0.2)
            return "served"
        client.poll(0)
        if refused:
            return "refused"
    return "neither"


def by_java(both: Both, port: int, tmp_path: Path, *lines: str) -> str:
    file = tmp_path / "client.properties"
    trusts = ("ssl.truststore.type=PEM", f"ssl.truststore.location={both.certificates.certificate}")
    file.write_text("\n".join(("default.api.timeout.ms=15000", "request.timeout.ms=10000", *trusts, *lines)))
    told = ("--bootstrap-server", f"localhost:{port}", "--command-config", file, "--list")
    said = apache_kafka.tool("topics", *told, check=False)
    return "refused" if "rror" in said else "served"


WHO = (None, "alice", "bob", "stranger")


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("name", ["NOBODY", "REQUESTED", "REQUIRED"])
def test_the_same_certificates_are_let_in(name: str, who: str | None, both: Both) -> None:
    for version in (None, ssl.TLSVersion.TLSv1_2):
        of_kafka, of_ours = (by_python(both, each[name], who, version) for each in (both.kafka, both.ours))
        assert of_kafka == of_ours
        is_let_in = name == "NOBODY" or who == "alice" or (name, who) == ("REQUESTED", None)
        assert of_ours == ("refused" if not is_let_in else "TLSv1.3" if version is None else "TLSv1.2")


@pytest.mark.parametrize("options", [(), ("-tls1_2",), ("-tls1_3",), ("-tls1_1",)])
@pytest.mark.parametrize("name", ["NOBODY", "OLDER", "ONE_SUITE"])
def test_the_same_protocols_are_served(name: str, options: tuple[str, ...], both: Both) -> None:
    of_kafka, of_ours = (by_openssl(both, each[name], None, *options) for each in (both.kafka, both.ours))
    assert of_kafka == of_ours


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("name", ["NOBODY", "REQUIRED"])
def test_confluent_kafka_is_let_in_alike(name: str, who: str | None, both: Both) -> None:
    expected = "served" if name == "NOBODY" or who == "alice" else "refused"
    assert by_confluent(both, both.ours[name], who) == by_confluent(both, both.kafka[name], who) == expected


@pytest.mark.parametrize("password", ["alice-secret", "wrong"])
def test_clients_sign_in_over_an_encrypted_connection(password: str, both: Both) -> None:
    sasl = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    sasl["sasl.password"] = password
    ours, kafkas = (by_confluent(both, each["SIGNED_IN"], None, **sasl) for each in (both.ours, both.kafka))
    assert ours == kafkas == ("served" if password == "alice-secret" else "refused")


@pytest.mark.parametrize("shows", [True, False])
def test_javas_clients_are_let_in_alike(shows: bool, both: Both, tmp_path: Path) -> None:
    lines = ["security.protocol=SSL"]
    if shows:
        keys = both.certificates.folder / "alice.pem"
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={keys}"]
    ours, kafkas = (by_java(both, each["REQUIRED"], tmp_path, *lines) for each in (both.ours, both.kafka))
    assert ours == kafkas == ("served" if shows else "refused")


def test_javas_client_signs_in(both: Both, tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    lines = [
        "security.protocol=SASL_SSL",
        "sasl.mechanism=PLAIN",
        f'sasl.jaas.config={module} required username="alice" password="alice-secret";',
    ]
    for ports in (both.ours, both.kafka):
        assert by_java(both, ports["SIGNED_IN"], tmp_path, *lines) == "served"


def plaintext(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(VERSIONS)
        try:
            return client.recv(100)[:1]
        except ConnectionError:
            return b""


def test_a_plaintext_client_is_hung_up_on(both: Both) -> None:
    assert plaintext(both.ours["NOBODY"]) == b""
    assert plaintext(both.kafka["NOBODY"]) in (b"", b"\x15")  # an alert of TLS
