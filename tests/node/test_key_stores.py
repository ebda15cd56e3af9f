"""Key stores in PKCS12: with the right password they are as good as PEM."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.definitions import StartError
from protocol.errors import Error
from tests.node.test_altered_settings import BROKER, SET, alter
from tests.node.test_tls_listeners import GOOD, asked, client_context, node_of, refused
from tests.support.certificates import KEPT, Certificates

pytest.importorskip("cryptography")

OURS, STRANGER = Certificates(KEPT), Certificates(KEPT / "stranger")


def stored(folder: Path, name: str, password: str = "open sesame") -> Path:
    from tests.fuzz.key_stores import key_store

    file = folder / f"{name}.p12"
    file.write_bytes(key_store(password.encode(), 2048, name))
    return file


def settings(file: Path, password: str = "open sesame") -> dict[str, str]:
    return {
        "ssl_keystore_type": "PKCS12",
        "ssl_keystore_location": str(file),
        "ssl_keystore_password": password,
    }


async def test_a_key_store_in_pkcs12_is_shown_and_trusted(tmp_path: Path) -> None:
    file = stored(tmp_path, "server")
    trusted = {
        "ssl_truststore_type": "PKCS12",
        "ssl_truststore_location": str(file),
        "ssl_truststore_password": "open sesame",
        "ssl_client_auth": "required",
    }
    node = await node_of(tmp_path / "data", OURS, **settings(file), **trusted)
    assert await asked(node, client_context(OURS, OURS)) == GOOD
    await refused(node, client_context(OURS))


async def test_a_wrong_password_is_refused_and_not_printed(tmp_path: Path) -> None:
    with pytest.raises(StartError) as raised:
        await node_of(tmp_path / "data", OURS, **settings(stored(tmp_path, "server"), "close sesame"))
    assert "its password is another one" in str(raised.value)
    assert "sesame" not in str(raised.value)


async def test_a_key_store_is_renewed(tmp_path: Path) -> None:
    node = await node_of(tmp_path / "data", OURS, **settings(stored(tmp_path, "server")))
    other = stored(tmp_path, "narrow")
    named = "listener.name.a.ssl.keystore.location"
    assert alter(node, BROKER, "1", (named, SET, str(other))) is Error.INVALID_REQUEST  # a name is missing
    again = tmp_path / "again.p12"
    again.write_bytes(stored(tmp_path, "server").read_bytes())
    assert alter(node, BROKER, "1", (named, SET, str(again))) is Error.NONE
    assert await asked(node, client_context(OURS)) == GOOD
