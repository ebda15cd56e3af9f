"""Certificates of tests. They are kept in the user's cache, shared by processes, and renewed before they expire."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
import barnabas.certificates
from barnabas.certificates import DAY_S, LIFETIME_S, RENEWED_BEFORE_S, kept_certificates

ROOT = Path(__file__).parents[2]
NOW_S = time.time()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    own: list[Path] = []
    monkeypatch.setattr(barnabas.certificates, "_own_root", own)
    yield tmp_path / "barnabas" / "certificates"
    for folder in own:
        barnabas.certificates._remove(folder, os.getpid())


@pytest.fixture
def _extra() -> None:
    pytest.importorskip("cryptography", reason="needs the extra security")


@pytest.mark.usefixtures("_extra")
def test_a_certificate_made_once_is_reused_until_it_is_near_its_end(cache: Path) -> None:
    first = kept_certificates(NOW_S)
    server = first.server().read_bytes()
    assert kept_certificates(NOW_S + LIFETIME_S - RENEWED_BEFORE_S - 2).server().read_bytes() == server
    later = kept_certificates(NOW_S + LIFETIME_S - RENEWED_BEFORE_S + 2)
    assert later.folder != first.folder
    assert first.folder.is_dir()  # running brokers still use its certificates
    kept_certificates(NOW_S + 2 * LIFETIME_S)
    assert not first.folder.exists()


@pytest.mark.usefixtures("_extra")
def test_nobody_else_can_read_the_files(cache: Path) -> None:
    made = kept_certificates(NOW_S)
    made.client("alice")
    assert cache.stat().st_mode & 0o777 == 0o700
    assert made.folder.stat().st_mode & 0o077 == 0
    assert {each.stat().st_mode & 0o077 for each in made.folder.glob("*.key")} == {0}


@pytest.mark.usefixtures("_extra")
def test_a_cache_that_others_can_write_to_is_not_used(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o770)
    made = kept_certificates(NOW_S)
    assert not made.folder.is_relative_to(cache)
    assert made.folder.parent.stat().st_mode & 0o077 == 0
    assert kept_certificates(NOW_S).folder == made.folder


@pytest.mark.usefixtures("_extra")
def test_a_cache_that_is_a_link_is_not_used(cache: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    cache.parent.mkdir()
    cache.symlink_to(elsewhere)
    assert not kept_certificates(NOW_S).folder.is_relative_to(elsewhere)


@pytest.mark.usefixtures("_extra")
def test_certificates_are_of_an_authority_for_hosts_and_users(cache: Path) -> None:
    from cryptography import x509

    made = kept_certificates(NOW_S)
    (server, authority) = x509.load_pem_x509_certificates(
        made.server(["broker.test", "10.1.2.3"]).read_bytes()
    )
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {*names.get_values_for_type(x509.DNSName)} == {"localhost", "broker.test"}
    assert {*map(str, names.get_values_for_type(x509.IPAddress))} == {"127.0.0.1", "::1", "10.1.2.3"}
    server.verify_directly_issued_by(authority)
    alice, _ = x509.load_pem_x509_certificates(made.client("alice").read_bytes())
    assert alice.subject.rfc4514_string() == "CN=alice"
    assert alice.not_valid_after_utc == authority.not_valid_after_utc
    expired, _ = x509.load_pem_x509_certificates(made.expired("alice").read_bytes())
    assert expired.not_valid_after_utc.timestamp() < time.time() - DAY_S + 1
    assert made.server() != made.server(["broker.test"])
    stranger = kept_certificates(NOW_S, stranger=True)
    assert stranger.folder != made.folder
    with pytest.raises(ValueError, match="ssuer"):
        alice.verify_directly_issued_by(x509.load_pem_x509_certificate(stranger.authority.read_bytes()))
    for file in (made.server(), made.client("alice"), made.expired("alice")):
        ssl.create_default_context().load_cert_chain(file)


@pytest.mark.usefixtures("_extra")
def test_processes_that_begin_at_once_share_one_authority(cache: Path) -> None:
    program = (
        "from barnabas.certificates import kept_certificates as k; print(k().server().read_bytes().hex())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    running = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    assert len({each.communicate(timeout=60)[0] for each in running}) == 1
    assert len([*cache.glob("authority-*")]) == 1


def test_without_the_extra_one_line_says_how_to_install_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(RuntimeError, match=r"pip install 'barnabas\[security\]'") as refused:
        barnabas.Broker(security="sasl_ssl", users={"alice": "secret"})
    assert "\n" not in str(refused.value)
    barnabas.Broker(security="sasl_plaintext", users={"alice": "secret"})


def test_a_plain_broker_imports_nothing_of_it() -> None:
    program = (
        "import sys, barnabas; barnabas.Broker(); barnabas.Cluster()\n"
        "assert not {'cryptography', 'ssl', 'secrets', 'barnabas.security', 'barnabas.rights', "
        "'barnabas.certificates', 'barnabas.client_configs'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
