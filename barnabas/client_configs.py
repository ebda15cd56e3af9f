"""How a client connects to a secured listener, in the configuration of each client library."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

TOKEN_USED_S = 3_000
"""How long librdkafka uses a token before it asks for another one. It is shorter than the token's lifetime."""


class Access:
    """What a client needs to connect. `ca` is the authority that it trusts. `keys` is its own key and chain (`.pem`),
    with `.key` and `.crt` beside it. Its repr shows no password."""

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
        """Makes a token, if the client signs in by one."""

    @property
    def name(self) -> str:
        """The user name for signing in with a password, or "" if the client uses a token."""
        return self.user if self.token is None else ""

    @property
    def secret(self) -> str:
        """The password, or "" if the client uses a token."""
        return self.password if self.token is None else ""

    @property
    def key(self) -> Path | None:
        """The file with the key alone."""
        return None if self.keys is None else self.keys.with_suffix(".key")

    @property
    def chain(self) -> Path | None:
        """The file with the chain alone."""
        return None if self.keys is None else self.keys.with_suffix(".crt")


def _without_none(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if value not in (None, "")}


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _not_by_token(access: Access) -> None:
    """Raise ValueError if the client signs in by token, which this library's configuration can't express."""
    if access.token is not None:
        raise ValueError(
            "for OAUTHBEARER there is a client config for confluent-kafka, kafka-python, aiokafka and franz-go; for "
            "others, broker.token(user) makes a token"
        )


def librdkafka(access: Access) -> dict[str, Any]:
    """A dict for confluent-kafka and other clients on librdkafka."""
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
    """The arguments that name the address and the user."""
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
    """Quote a text for a line of JAAS."""
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
    """The argument of `new Kafka({...})`. It can go through JSON unchanged."""
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
    """A Go file to put beside a test's own files, unchanged. Use it as `kgo.NewClient(barnabasOpts()...)`."""
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
    """Quote a text as a Go literal. JSON uses the same escapes."""
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
