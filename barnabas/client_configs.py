"""How a client comes in at a secured listener, in the words of each client library."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

TOKEN_USED_S = 3_000
"""For how long librdkafka uses a token before it asks for another: less than it lasts."""


class Access:
    """What a client needs. `ca`: whom it trusts; `keys`: its own key and chain (`.pem`), with `.key` and `.crt` beside.
    Nothing of a password is shown."""

    __slots__ = ("bootstrap", "ca", "keys", "mechanism", "password", "protocol", "token", "user")

    def __init__(self, bootstrap: str, protocol: str) -> None:
        self.bootstrap = bootstrap
        self.protocol = protocol
        self.mechanism = ""
        self.user = ""
        self.password = ""
        self.ca: Path | None = None
        self.keys: Path | None = None
        self.token: Callable[[], str] | None = None
        """Makes one, for who signs in by that."""

    @property
    def name(self) -> str:
        """Who signs in by it and a password."""
        return self.user if self.token is None else ""

    @property
    def secret(self) -> str:
        """Of who does."""
        return self.password if self.token is None else ""

    @property
    def key(self) -> Path | None:
        """Apart."""
        return None if self.keys is None else self.keys.with_suffix(".key")

    @property
    def chain(self) -> Path | None:
        """Apart."""
        return None if self.keys is None else self.keys.with_suffix(".crt")


def _without_none(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if value not in (None, "")}


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _not_by_token(access: Access) -> None:
    """Raises ValueError for what no configuration can say."""
    if access.token is not None:
        raise ValueError(
            "by OAUTHBEARER there is a client config for confluent-kafka, kafka-python, aiokafka and franz-go; for "
            "others broker.token(user) makes a token"
        )


def librdkafka(access: Access) -> dict[str, Any]:
    """confluent-kafka and others on librdkafka: a dict."""
    config = _librdkafka(access)
    if access.token is not None:
        token = access.token
        config["oauth_cb"] = lambda _config: (token(), time.time() + TOKEN_USED_S)
    return config


def _librdkafka(access: Access) -> dict[str, Any]:
    return _without_none(
        {
            "bootstrap.servers": access.bootstrap,
            "security.protocol": access.protocol,
            "sasl.mechanism": access.mechanism,
            "sasl.username": access.name,
            "sasl.password": access.secret,
            "ssl.ca.location": _text(access.ca),
            "ssl.certificate.location": _text(access.chain),
            "ssl.key.location": _text(access.key),
        }
    )


def kcat(access: Access) -> list[str]:
    """The arguments that say where, and as whom."""
    _not_by_token(access)
    config = _librdkafka(access)
    bootstrap = config.pop("bootstrap.servers")
    return ["-b", bootstrap, *(part for name, value in config.items() for part in ("-X", f"{name}={value}"))]


def kafka_python(access: Access) -> dict[str, Any]:
    """Keyword arguments of `KafkaProducer` and the others."""
    config = _kafka_python(access)
    if access.token is not None:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        token = access.token

        class Provider(AbstractTokenProvider):  # type: ignore[misc, unused-ignore]
            def token(self) -> str:
                return token()

        config["sasl_oauth_token_provider"] = Provider()
    return config


def _kafka_python(access: Access) -> dict[str, Any]:
    return _without_none(
        {
            "bootstrap_servers": access.bootstrap.split(","),
            "security_protocol": access.protocol,
            "sasl_mechanism": access.mechanism,
            "sasl_plain_username": access.name,
            "sasl_plain_password": access.secret,
            "ssl_cafile": _text(access.ca),
            "ssl_certfile": _text(access.chain),
            "ssl_keyfile": _text(access.key),
        }
    )


def aiokafka(access: Access) -> dict[str, Any]:
    """Keyword arguments of `AIOKafkaProducer` and the others."""
    config = _kafka_python(access)
    config["bootstrap_servers"] = access.bootstrap
    if access.token is not None:
        from aiokafka.abc import AbstractTokenProvider

        token = access.token

        class Provider(AbstractTokenProvider):  # type: ignore[misc, unused-ignore]
            async def token(self) -> str:
                return token()

        config["sasl_oauth_token_provider"] = Provider()
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        config.pop(name, None)
    if access.ca is not None:
        import ssl

        context = ssl.create_default_context(cafile=access.ca)
        if access.keys is not None:
            context.load_cert_chain(access.keys)
        config["ssl_context"] = context
    return config


def jaas_quoted(text: str) -> str:
    """As a line of JAAS has it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _jaas_line(access: Access) -> str:
    if not access.mechanism:
        return ""
    module = PLAIN_MODULE if access.mechanism == "PLAIN" else SCRAM_MODULE
    user, password = jaas_quoted(access.user), jaas_quoted(access.password)
    return f"{module} required username={user} password={password};"


def java(access: Access) -> dict[str, str]:
    """Properties of Java's clients, of Kafka Streams, Connect and Kafka's own tools."""
    _not_by_token(access)
    return _without_none(
        {
            "bootstrap.servers": access.bootstrap,
            "security.protocol": access.protocol,
            "sasl.mechanism": access.mechanism,
            "sasl.jaas.config": _jaas_line(access),
            "ssl.truststore.type": "PEM" if access.ca else None,
            "ssl.truststore.location": _text(access.ca),
            "ssl.keystore.type": "PEM" if access.keys else None,
            "ssl.keystore.location": _text(access.keys),
        }
    )


def spark(access: Access) -> dict[str, str]:
    """Options of Spark's source and sink `kafka`, and of `barnabas.spark`."""
    return {f"kafka.{name}": value for name, value in java(access).items()}


def kafkajs(access: Access) -> dict[str, Any]:
    """What `new Kafka({...})` takes: it goes through JSON as it is."""
    _not_by_token(access)
    config: dict[str, Any] = {"brokers": access.bootstrap.split(",")}
    if access.ca is not None:
        config["ssl"] = {"ca": [access.ca.read_text()]}
        if access.key is not None and access.chain is not None:
            config["ssl"] |= {"key": access.key.read_text(), "cert": access.chain.read_text()}
    if access.mechanism:
        config["sasl"] = {
            "mechanism": access.mechanism.lower(),
            "username": access.user,
            "password": access.password,
        }
    return config


_GO = """\
// Code generated by barnabas for a test. DO NOT EDIT.
package main

import (
{imports}
)

// barnabasOpts are for kgo.NewClient.
func barnabasOpts() []kgo.Opt {{
{body}}}
"""


def franz_go(access: Access) -> str:
    """A file of Go, which goes beside a test's own as it is: `kgo.NewClient(barnabasOpts()...)`."""
    imports = {"github.com/twmb/franz-go/pkg/kgo"}
    body = ""
    seeds = ", ".join(map(_go_text, access.bootstrap.split(",")))
    options = [f"kgo.SeedBrokers({seeds})"]
    if access.ca is not None:
        imports |= {"crypto/tls", "crypto/x509"}
        body += f"\tpool := x509.NewCertPool()\n\tpool.AppendCertsFromPEM([]byte({_go_text(access.ca.read_text())}))\n"
        body += "\tconfig := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}\n"
        if access.key is not None and access.chain is not None:
            body += (
                f"\tpair, err := tls.X509KeyPair([]byte({_go_text(access.chain.read_text())}), "
                f"[]byte({_go_text(access.key.read_text())}))\n"
                "\tif err != nil {\n\t\tpanic(err)\n\t}\n\tconfig.Certificates = []tls.Certificate{pair}\n"
            )
        options.append("kgo.DialTLSConfig(config)")
    if access.mechanism:
        user, password = _go_text(access.user), _go_text(access.password)
        if access.token is not None:
            imports.add("github.com/twmb/franz-go/pkg/sasl/oauth")
            options.append(f"kgo.SASL(oauth.Auth{{Token: {_go_text(access.token())}}}.AsMechanism())")
        elif access.mechanism == "PLAIN":
            imports.add("github.com/twmb/franz-go/pkg/sasl/plain")
            options.append(f"kgo.SASL(plain.Auth{{User: {user}, Pass: {password}}}.AsMechanism())")
        else:
            imports.add("github.com/twmb/franz-go/pkg/sasl/scram")
            digest = access.mechanism.removeprefix("SCRAM-SHA-")
            options.append(f"kgo.SASL(scram.Auth{{User: {user}, Pass: {password}}}.AsSha{digest}Mechanism())")
    body += "\treturn []kgo.Opt{\n" + "".join(f"\t\t{each},\n" for each in options) + "\t}\n"
    return _GO.format(imports="\n".join(f"\t{_go_text(each)}" for each in sorted(imports)), body=body)


def _go_text(text: str) -> str:
    """A literal, whose escapes JSON has too."""
    import json

    return json.dumps(text, ensure_ascii=False)


LIBRARIES: Mapping[str, Callable[[Access], Any]] = {
    "confluent-kafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "java": java,
    "spark": spark,
    "franz-go": franz_go,
    "kafkajs": kafkajs,
    "kcat": kcat,
}
