"""Keys and certificates that change while a broker runs: new connections see the new ones, and open connections notice
nothing. Source: Kafka's `SslFactory.reconfigure`, and `DynamicBrokerConfig.reloadUpdatedFilesWithoutConfigChange`."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from pathlib import Path

import pytest

from broker.security.distinguished_names import DerError, alternative_names
from broker.server import Server
from protocol.errors import Error
from tests.node.test_altered_settings import BROKER, DELETE, SET, alter, described
from tests.node.test_tls_listeners import GOOD, VERSIONS, asked, client_context, node_of, refused
from tests.support.certificates import KEPT, Certificates, renew
from tests.support.whole_server import started

OURS, STRANGER = Certificates(KEPT), Certificates(KEPT / "stranger")
KEYSTORE, TRUSTSTORE = "listener.name.a.ssl.keystore.location", "listener.name.a.ssl.truststore.location"
KEY_PASSWORD = "listener.name.a.ssl.key.password"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Return the file with the broker's own keys."""
    file = tmp_path / "keys.pem"
    renew(file, OURS.folder / "server.pem")
    return file


async def node_with(tmp_path: Path, keys: Path, **given: str) -> Server:
    return await node_of(tmp_path / "data", OURS, ssl_keystore_location=str(keys), **given)


async def is_shown(node: Server, authority: Certificates) -> bool:
    """Check that the broker shows a certificate that this authority has signed."""
    other = STRANGER if authority is OURS else OURS
    assert await asked(node, client_context(authority)) == GOOD
    assert await refused(node, client_context(other)) == "CERTIFICATE_VERIFY_FAILED"
    return True


async def test_a_file_that_changed_is_read_when_its_setting_is_set_again(tmp_path: Path, keys: Path) -> None:
    """It isn't read before. Connections that are open stay as they are."""
    node = await node_with(tmp_path, keys)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", node.listeners["A"].port, ssl=client_context(OURS), server_hostname="localhost"
    )
    renew(keys, STRANGER.folder / "server.pem")
    assert await asked(node, client_context(OURS)) == GOOD

    assert alter(node, BROKER, "1", (KEYSTORE, SET, str(keys))) is Error.NONE

    assert await asked(node, client_context(STRANGER)) == GOOD
    writer.write(VERSIONS)
    size = int.from_bytes(await reader.readexactly(4))
    assert (await reader.readexactly(size))[4:6] == GOOD
    writer.transport.abort()
    renew(keys, OURS.folder / "server.pem")
    assert alter(node, BROKER, "1", (KEYSTORE, SET, str(keys))) is Error.NONE  # the value that it already has
    assert await is_shown(node, OURS)


async def test_any_setting_of_the_broker_has_changed_files_read(tmp_path: Path, keys: Path) -> None:
    """Kafka does so too, whichever setting has changed."""
    node = await node_with(tmp_path, keys)
    renew(keys, STRANGER.folder / "server.pem")

    assert alter(node, BROKER, "1", ("log.retention.ms", SET, "77")) is Error.NONE

    assert await is_shown(node, STRANGER)


async def test_another_file_takes_the_place_of_the_first(tmp_path: Path, keys: Path) -> None:
    node = await node_with(tmp_path, keys)

    assert alter(node, BROKER, "1", (KEYSTORE, SET, str(STRANGER.folder / "server.pem"))) is Error.NONE
    assert await is_shown(node, STRANGER)
    assert alter(node, BROKER, "1", (KEYSTORE, DELETE, None)) is Error.NONE
    assert await is_shown(node, OURS)


async def test_keys_in_the_settings_take_the_place_of_others_and_are_not_shown(
    tmp_path: Path, keys: Path
) -> None:
    prefix = "listener.name.a.ssl.keystore"

    def inside(file: Path) -> tuple[str, str]:
        key, begin, chain = file.read_text().partition("-----BEGIN CERTIFICATE")
        return key, begin + chain

    key, chain = inside(keys)
    given = {f"{prefix}.key": key, f"{prefix}.certificate.chain": chain, "ssl.keystore.type": "PEM"}
    settings = "listeners=A://127.0.0.1:0", "listener.security.protocol.map=A:SSL,CONTROLLER:PLAINTEXT"
    node = await started(tmp_path / "data", *settings, *(f"{name}={text}" for name, text in given.items()))
    key, chain = inside(STRANGER.folder / "server.pem")

    alone = alter(node, BROKER, "1", (f"{prefix}.key", SET, key))
    assert alone is Error.INVALID_REQUEST  # the key isn't the certificate's
    changes = ((f"{prefix}.key", SET, key), (f"{prefix}.certificate.chain", SET, chain))
    assert alter(node, BROKER, "1", *changes) is Error.NONE

    assert await is_shown(node, STRANGER)
    for name, _, _ in changes:
        assert described(node, BROKER, "1", name)[0] is None


async def test_a_new_trust_store_changes_who_may_connect(tmp_path: Path, keys: Path) -> None:
    node = await node_with(tmp_path, keys, ssl_client_auth="required")
    ours, stranger = (client_context(OURS, shows) for shows in (OURS, STRANGER))
    for each in (ours, stranger):
        each.maximum_version = ssl.TLSVersion.TLSv1_2  # TLS 1.2 refuses within the handshake
    assert await asked(node, ours) == GOOD
    await refused(node, stranger)

    assert alter(node, BROKER, "1", (TRUSTSTORE, SET, str(STRANGER.certificate))) is Error.NONE

    assert await asked(node, stranger) == GOOD
    await refused(node, ours)


@pytest.mark.parametrize(
    ("file", "allowing"),
    [("alice.pem", "ssl_allow_dn_changes"), ("narrow.pem", "ssl_allow_san_changes")],
)
async def test_a_certificate_of_another_name_is_refused_unless_that_is_allowed(
    file: str, allowing: str, tmp_path: Path, keys: Path
) -> None:
    for allows in (False, True):
        folder = tmp_path / str(allows)
        node = await node_with(folder, keys, **{allowing: str(allows).lower()})

        altered = alter(node, BROKER, "1", (KEYSTORE, SET, str(OURS.folder / file)))

        assert altered is (Error.NONE if allows else Error.INVALID_REQUEST)
        stored, _ = described(node, BROKER, "1", KEYSTORE) if allows else (None, 0)
        assert stored == (str(OURS.folder / file) if allows else None)
        assert await asked(node, client_context(OURS)) == GOOD


@pytest.mark.parametrize(
    "changes",
    [
        [(KEYSTORE, "/nowhere.pem")],
        [(KEYSTORE, str(OURS.folder))],
        [(KEYSTORE, str(OURS.folder / "server.crt"))],
        [(KEYSTORE, str(OURS.folder / "locked.pem"))],
        [(KEYSTORE, str(OURS.folder / "locked.pem")), (KEY_PASSWORD, "sesame")],
        [(KEYSTORE, "")],
        [("listener.name.a.ssl.keystore.type", "JKS")],
        [("listener.name.a.ssl.keystore.password", "sesame")],
        [(TRUSTSTORE, str(OURS.folder / "server.key"))],
    ],
)
async def test_an_unreadable_file_is_refused_and_the_listener_stays_as_it_is(
    changes: list[tuple[str, str]], tmp_path: Path, keys: Path
) -> None:
    node = await node_with(tmp_path, keys)
    end = node.metadata.next_offset

    altered = alter(node, BROKER, "1", *((name, SET, text) for name, text in changes))

    assert altered is Error.INVALID_REQUEST
    assert node.metadata.next_offset == end
    assert await is_shown(node, OURS)


async def test_a_pipe_is_not_waited_for(tmp_path: Path, keys: Path) -> None:
    """A pipe would hold up everybody until somebody writes into it."""
    node = await node_with(tmp_path, keys)
    os.mkfifo(tmp_path / "pipe")

    altered = alter(node, BROKER, "1", (KEYSTORE, SET, str(tmp_path / "pipe")))

    assert altered is Error.INVALID_REQUEST


async def test_a_file_broken_meanwhile_leaves_the_listener_as_it_is(
    tmp_path: Path, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """This broker doesn't check the settings of all brokers before they are stored."""
    node = await node_with(tmp_path, keys)
    renew(keys, OURS.folder / "server.crt")

    with caplog.at_level(logging.WARNING, "barnabas.server"):
        assert alter(node, BROKER, "", ("log.retention.ms", SET, "77")) is Error.NONE

    assert "listener A: keys and certificates stay as they are" in caplog.text
    assert await is_shown(node, OURS)


async def test_a_trust_store_where_there_was_none_is_refused(tmp_path: Path, keys: Path) -> None:
    settings = "listeners=A://127.0.0.1:0", "listener.security.protocol.map=A:SSL,CONTROLLER:PLAINTEXT"
    own = f"ssl.keystore.location={keys}", "ssl.keystore.type=PEM", "ssl.truststore.type=PEM"
    node = await started(tmp_path / "data", *settings, *own)
    assert alter(node, BROKER, "1", (TRUSTSTORE, SET, str(OURS.certificate))) is Error.INVALID_REQUEST


async def test_nothing_is_altered_for_all_listeners_at_once(tmp_path: Path, keys: Path) -> None:
    node = await node_with(tmp_path, keys)
    named = "ssl.keystore.location"
    assert alter(node, BROKER, "1", (named, SET, str(keys))) is Error.INVALID_REQUEST
    assert alter(node, BROKER, "", (KEYSTORE, SET, str(keys))) is Error.INVALID_REQUEST


def test_alternative_names_are_those_of_the_certificate() -> None:
    def names(file: str) -> frozenset[tuple[int, bytes]]:
        return alternative_names(ssl.PEM_cert_to_DER_cert((OURS.folder / file).read_text()))

    assert names("server.crt") == {(0x82, b"localhost"), (0x87, bytes((127, 0, 0, 1)))}
    assert names("narrow.crt") == {(0x82, b"localhost")}
    authority = ssl.PEM_cert_to_DER_cert(OURS.certificate.read_text())
    assert alternative_names(authority) == frozenset()
    for end in range(len(authority)):
        with pytest.raises(DerError):
            alternative_names(authority[:end])
