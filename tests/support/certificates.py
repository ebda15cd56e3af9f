"""Certificates for tests, valid for a hundred years: an authority, and those that it signed.

`python -m tests.support.certificates` made the ones in `tests/data/tls`, with the program `openssl`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

FAR_OFF_DAYS = 36_500


def openssl(*arguments: str | Path, stdin: str = "") -> str:
    """Run openssl and return its output."""
    ended = subprocess.run(
        ["openssl", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


KEPT = Path(__file__).parents[1] / "data" / "tls"


def renew(file: Path, by: Path) -> None:
    """Replace a file's content, and give it a later time, whatever the disk's clock says."""
    before_ns = file.stat().st_mtime_ns if file.exists() else 0
    shutil.copy(by, file)
    os.utime(file, ns=(before_ns + 10**9, before_ns + 10**9))


class Certificates:
    """`ca.pem` in a folder, and for each name `<name>.crt`, `<name>.key` and `<name>.pem`, which has key and chain."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.pem"

    def settings(self, keys: str = "server") -> dict[str, str]:
        """Return the settings of a listener with the keys of this name, which trusts everyone signed by the
        authority."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / f"{keys}.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
        }


class Authority(Certificates):
    """An authority that signs certificates."""

    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder)
        self._key = folder / "ca.key"
        new = (
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            f"/CN={name}",
        )
        openssl(*new, "-days", str(FAR_OFF_DAYS), "-keyout", self._key, "-out", self.certificate)
        self.sign("server", "/CN=localhost")

    def sign(
        self,
        name: str,
        subject: str,
        *,
        is_expired: bool = False,
        password: str | None = None,
        names: str = "DNS:localhost,IP:127.0.0.1",
    ) -> Path:
        """Sign a certificate and return the file with its key and chain. Each name is signed once."""
        key, request, certificate, whole = (
            self.folder / f"{name}.{ending}" for ending in ("key", "csr", "crt", "pem")
        )
        asked = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject)
        openssl(*asked, "-utf8", "-keyout", key, "-out", request)
        if password is not None:
            openssl("pkcs8", "-topk8", "-in", key, "-out", f"{key}8", "-passout", f"pass:{password}")
            key.write_text(Path(f"{key}8").read_text())
        extensions = self.folder / "extensions"
        extensions.write_text(f"subjectAltName={names}\n")
        by = ("x509", "-req", "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial")
        days = ("-days", "-1" if is_expired else str(FAR_OFF_DAYS))
        openssl(*by, *days, "-in", request, "-out", certificate, "-extfile", extensions)
        whole.write_text("".join(each.read_text() for each in (key, certificate, self.certificate)))
        return whole


def _make() -> None:
    known = Authority(KEPT)
    known.sign("alice", "/C=DE/O=Ex, Ltd/OU=Sales/CN=alice")
    known.sign("bob", "/CN=bob", is_expired=True)
    known.sign("locked", "/CN=localhost", password="open sesame")
    known.sign("narrow", "/CN=localhost", names="DNS:localhost")
    Authority(KEPT / "stranger", "Another CA").sign("alice", "/C=DE/O=Ex, Ltd/OU=Sales/CN=alice")
    for file in [
        *KEPT.rglob("*.csr"),
        *KEPT.rglob("*.srl"),
        *KEPT.rglob("*.key8"),
        *KEPT.rglob("extensions"),
    ]:
        file.unlink()


if __name__ == "__main__":
    _make()
