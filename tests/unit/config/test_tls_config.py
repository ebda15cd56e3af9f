"""Settings of TLS: which ones belong together, which one counts, and what errors say."""

from __future__ import annotations

import re

import pytest

from broker.config.assembly import assemble, settings_of
from broker.config.definitions import UsageError
from broker.config.tls_config import TlsConfig
from broker.network.tls import openssl_suite

BASE = {
    "listeners": "A://127.0.0.1:0",
    "listener.security.protocol.map": "A:SSL,CONTROLLER:PLAINTEXT",
    "ssl.keystore.type": "PEM",
}
FILE = {**BASE, "ssl.keystore.location": "keys.pem"}
SECRET = "-----BEGIN PRIVATE KEY----- c2VjcmV0 -----END PRIVATE KEY-----"


def read(settings: dict[str, str], *, is_sasl: bool = False) -> TlsConfig:
    return TlsConfig(assemble([settings_of(settings)]), "A", is_sasl=is_sasl)


def test_a_listeners_own_setting_goes_before_that_of_all() -> None:
    config = read({**FILE, "ssl.client.auth": "required", "listener.name.a.ssl.client.auth": "requested"})
    assert config.client_auth == "requested"
    assert config.keys.location == "keys.pem"
    config = read({**FILE, "listener.name.a.ssl.keystore.location": "own.pem", "ssl.client.auth": "required"})
    assert (config.keys.location, config.keys.setting) == ("own.pem", "listener.name.a.ssl.keystore.location")
    assert config.client_auth == "required"


def test_a_sasl_client_shows_a_certificate_only_where_its_own_listener_asks() -> None:
    """Kafka does the same (KIP-684)."""
    assert read({**FILE, "ssl.client.auth": "required"}, is_sasl=True).client_auth == "none"
    own = {**FILE, "listener.name.a.ssl.client.auth": "required"}
    assert read(own, is_sasl=True).client_auth == "required"


def test_protocols() -> None:
    assert read(FILE).protocols == ("TLSv1.2", "TLSv1.3")
    assert read({**FILE, "ssl.enabled.protocols": "TLSv1.3"}).protocols == ("TLSv1.3",)
    assert read({**FILE, "ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}).protocols == ("TLSv1.2",)
    assert read({**FILE, "ssl.protocol": "TLS"}).protocols == ("TLSv1.2", "TLSv1.3")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (BASE, "ssl.keystore.location of listener A: it has to say where key and certificate are"),
        (
            {**FILE, "ssl.keystore.type": "JKS"},
            r"ssl.keystore.type of listener A: JKS.*keytool -importkeystore .*keys\.pem",
        ),
        ({**FILE, "ssl.keystore.type": "BKS"}, "BKS isn't read; it can be PEM or PKCS12"),
        ({**FILE, "ssl.keystore.key": SECRET}, "ssl.keystore.certificate.chain of listener A: it is missing"),
        ({**BASE, "ssl.keystore.certificate.chain": "x"}, "ssl.keystore.key of listener A: it is missing"),
        (
            {**FILE, "ssl.keystore.key": SECRET, "ssl.keystore.certificate.chain": "x"},
            "ssl.keystore.location of listener A: either this, or ssl.keystore.key",
        ),
        ({**FILE, "ssl.keystore.password": "sesame"}, "ssl.keystore.password of listener A: PEM has none"),
        ({**FILE, "ssl.keystore.type": "PKCS12"}, "ssl.keystore.password of listener A: it is missing"),
        (
            {**FILE, "ssl.truststore.location": "t"},
            r"ssl.truststore.type of listener A: JKS.*ssl.truststore.type=PEM",
        ),
        (
            {**FILE, "ssl.truststore.password": "sesame"},
            "ssl.truststore.password of listener A: there is no trust store",
        ),
        ({**FILE, "ssl.truststore.certificates": "x"}, "certificates in the settings are PEM, not JKS"),
        (
            {
                **FILE,
                "ssl.truststore.certificates": "x",
                "ssl.truststore.location": "t",
                "ssl.truststore.type": "PEM",
            },
            "ssl.truststore.location of listener A: either this, or ssl.truststore.certificates: not both",
        ),
        ({**FILE, "ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.1 aren't safe, and not served"),
        (
            {**FILE, "ssl.enabled.protocols": "TLSv1.4"},
            "ssl.enabled.protocols of listener A: there is no TLSv1.4",
        ),
        (
            {**FILE, "ssl.protocol": "DTLS"},
            "ssl.protocol of listener A: it can be TLS, TLSv1.2, TLSv1.3, not DTLS",
        ),
        (
            {**FILE, "ssl.principal.mapping.rules": "RULE:a/b"},
            "ssl.principal.mapping.rules: Invalid rule: RULE:a/b",
        ),
        ({**FILE, "listener.name.a.ssl.client.auth": "often"}, "Invalid value often for .*a.ssl.client.auth"),
    ],
)
def test_an_impossible_setting_is_reported_in_one_line_without_a_secret(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        assemble([settings_of(settings)])
    text = str(raised.value)
    assert re.search(message, text), text
    assert "c2VjcmV0" not in text
    assert "sesame" not in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA", "DHE-RSA-AES128-SHA"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
        ("TLS_RSA_WITH_RC4_128_MD5", None),
        ("TLS_KRB5_WITH_AES_128_CBC_SHA", None),
        ("ECDHE-RSA-AES256-GCM-SHA384", None),
    ],
)
def test_javas_names_of_cipher_suites(name: str, expected: str | None) -> None:
    assert openssl_suite(name) == expected
