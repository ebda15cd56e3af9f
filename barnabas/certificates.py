"""Certificates for tests' brokers and users: made once, kept in the user's cache, and renewed in time.

The cache folder (`$XDG_CACHE_HOME/barnabas/certificates`, mode 0700) has a folder for each authority. Its name is the
second at which everything that the authority signed expires. It holds `ca.pem` and `ca.key`. For each certificate it
has `<name>.pem` with key and chain, and `<name>.key` and `<name>.crt` for clients that want them apart. Processes share
these files: a file is written aside and renamed, and making one takes a lock. Only making certificates needs the
package `cryptography`.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

DAY_S = 86_400
LIFETIME_S = 90 * DAY_S
RENEWED_BEFORE_S = 30 * DAY_S
"""A broker that starts doesn't use an authority that expires within this time."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")

NEEDS_EXTRA = (
    "certificates need the package cryptography, which isn't installed: pip install 'barnabas[security]' "
    '(security="sasl_plaintext" needs none)'
)


class Certificates:
    """The certificates of one authority. Two authorities don't trust each other's certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = folder / "ca.pem"

    # --- who has which --------------------------------------------------------------------------------------

    def server(self, hosts: Sequence[str] = ()) -> Path:
        """Return the file with key and chain for a broker on this machine, which may have further host names."""
        others = sorted({*hosts} - {*LOOPBACK})
        name = "server"
        if others:
            name += "-" + hashlib.sha256("\n".join(others).encode()).hexdigest()[:16]
        return self._signed(name, "localhost", hosts=(*LOOPBACK, *others))

    def client(self, user: str) -> Path:
        """Return the user's `<name>.pem`; `.key` and `.crt` lie beside it."""
        return self._signed(f"user-{user}", user)

    def expired(self, user: str) -> Path:
        """Like `client`, but the certificate expired a day ago."""
        return self._signed(f"expired-{user}", user, is_expired=True)

    def new_server(self, file: Path, hosts: Sequence[str] = (), *, is_expired: bool = False) -> None:
        """Replace the key and certificate in a broker's file by new ones. Raises RuntimeError, like every method that
        makes a certificate."""
        names = (*LOOPBACK, *sorted({*hosts} - {*LOOPBACK}))
        key, chain = self._made("localhost", names, is_expired=is_expired)
        write_file(file, key + chain)

    # --- how they are made ----------------------------------------------------------------------------------

    def _signed(
        self, name: str, common_name: str, *, hosts: Sequence[str] = (), is_expired: bool = False
    ) -> Path:
        whole = self.folder / f"{name}.pem"
        if not whole.exists():
            with _locked(self.folder):
                if not whole.exists():
                    key, chain = self._made(common_name, hosts, is_expired=is_expired)
                    write_file(self.folder / f"{name}.key", key)
                    write_file(self.folder / f"{name}.crt", chain)
                    write_file(whole, key + chain)  # last: whoever sees this file finds the others
        return whole

    def _made(self, common_name: str, hosts: Sequence[str], *, is_expired: bool) -> tuple[bytes, bytes]:
        """Return key and chain as PEM."""
        x509 = _x509()
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        authority = self.authority.read_bytes()
        certificate = x509.load_pem_x509_certificate(authority)
        authority_key = load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if is_expired:
            end = _utc(time.time() - DAY_S)
            begin = _utc(time.time() - 2 * DAY_S)
        key, signed = _certificate(common_name, hosts, (begin, end), (certificate.subject, authority_key))
        return _key_text(key), _text(signed) + authority


def _x509() -> Any:
    """Return the module, or raise RuntimeError if the extra isn't installed."""
    try:
        from cryptography import x509
    except ImportError:
        raise RuntimeError(NEEDS_EXTRA) from None
    return x509


def _utc(second: float) -> datetime:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(int(second), UTC)


def _certificate(
    common_name: str,
    hosts: Sequence[str],
    validity: tuple[datetime, datetime],
    issuer: tuple[Any, Any] | None,
) -> tuple[Any, Any]:
    """Return a new key and its certificate. `issuer` is a pair of name and key; without one the certificate is an
    authority's own."""
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    issuer_name, issuer_key = issuer or (subject, key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity[0])
        .not_valid_after(validity[1])
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=issuer is not None,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=issuer is None,
                crl_sign=issuer is None,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if issuer is not None:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return key, builder.sign(issuer_key, hashes.SHA256())


def _key_text(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    text: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return text


def _text(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    text: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return text


# --- Where they are kept ------------------------------------------------------------------------------------

_AUTHORITY, _STRANGER = "authority", "stranger"


def kept_certificates(now_s: float | None = None, *, stranger: bool = False) -> Certificates:
    """Return the certificates of this machine's user. `stranger` returns those of another authority, which no broker
    trusts.

    Raises RuntimeError if an authority has to be made and the extra isn't installed.
    """
    now_s = time.time() if now_s is None else now_s
    kind = _STRANGER if stranger else _AUTHORITY
    root = _root()
    found = _newest(root, kind, now_s)
    if found is None:
        with _locked(root):
            found = _newest(root, kind, now_s) or _new_authority(root, kind, now_s)
            _remove_outdated(root, now_s)
    return Certificates(found)


def _newest(root: Path, kind: str, now_s: float) -> Path | None:
    """Return the folder of the authority that lasts longest, or None if all expire soon."""
    usable = [end for end in _ends(root, kind) if end - now_s > RENEWED_BEFORE_S]
    return root / f"{kind}-{max(usable)}" if usable else None


def _ends(root: Path, kind: str) -> Iterator[int]:
    for each in root.glob(f"{kind}-*"):
        end = each.name.rpartition("-")[2]
        if end.isascii() and end.isdigit():
            yield int(end)


def _new_authority(root: Path, kind: str, now_s: float) -> Path:
    _x509()
    end_s = int(now_s) + LIFETIME_S
    validity = _utc(now_s - DAY_S), _utc(end_s)  # the clocks of two machines may differ
    key, certificate = _certificate(f"barnabas tests {kind} until {validity[1]:%Y-%m-%d}", (), validity, None)
    folder = root / f"{kind}-{end_s}"
    aside = Path(tempfile.mkdtemp(prefix="new-", dir=root))
    write_file(aside / "ca.key", _key_text(key))
    write_file(aside / "ca.pem", _text(certificate))
    aside.rename(folder)
    return folder


def _remove_outdated(root: Path, now_s: float) -> None:
    for kind in (_AUTHORITY, _STRANGER):
        for end in _ends(root, kind):
            if end <= now_s:
                shutil.rmtree(root / f"{kind}-{end}", ignore_errors=True)


def _root() -> Path:
    """Return the user's own folder, which nobody else can read or write. If there is none, return one that ends with
    this process."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    root = Path(base, "barnabas", "certificates")
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
        found = root.lstat()
        is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
        if is_own and os.access(root, os.W_OK | os.X_OK):
            return root
    except OSError:
        pass
    return _of_process()


_own_root: list[Path] = []
"""The folder of this process, if the user's cache can't be used."""


def _of_process() -> Path:
    if not _own_root:
        folder = Path(tempfile.mkdtemp(prefix="barnabas-certificates-"))
        _own_root.append(folder)
        atexit.register(_remove, folder, os.getpid())
    return _own_root[0]


def _remove(folder: Path, maker_pid: int) -> None:
    if os.getpid() == maker_pid:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder against other processes and other threads of this one."""
    import fcntl

    with open(folder / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_file(file: Path, content: bytes) -> None:
    """Write a file with mode 0600. It is there as a whole, or not at all."""
    descriptor, aside = tempfile.mkstemp(dir=file.parent, prefix="new-")
    try:
        with open(descriptor, "wb") as written:
            written.write(content)
        os.replace(aside, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
