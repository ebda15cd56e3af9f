"""Key stores in the form PKCS12, which the package cryptography makes."""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from tests.support.certificates import KEPT


def key_store(password: bytes, iterations: int, name: str = "server") -> bytes:
    """The keys of this name with their chain. `iterations`: how much work it is to open."""
    key = load_pem_private_key((KEPT / f"{name}.key").read_bytes(), None)
    certificate, authority = (
        x509.load_pem_x509_certificate((KEPT / file).read_bytes()) for file in (f"{name}.crt", "ca.pem")
    )
    locked = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(iterations).build(password)
    return pkcs12.serialize_key_and_certificates(b"kafka", key, certificate, [authority], locked)  # type: ignore[arg-type]
