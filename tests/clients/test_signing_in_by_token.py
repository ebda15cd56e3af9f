"""Clients sign in by OAUTHBEARER with unsigned and with signed tokens, and never with expired ones."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from barnabas.tokens import TokenIssuer, unsecured_token
from tests.clients.confluent import PATIENCE_S
from tests.clients.sending import sent_by_aiokafka, sent_by_confluent, sent_by_kafka_python

OF_KAFKA = "org.apache.kafka.common.security.oauthbearer."
PREFIX = "listener.name.sasl_plaintext.oauthbearer."
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
TOPIC = "orders"

Token = Callable[[str], str]
"""The token of a user."""


class Secured:
    """A broker, and the issuer of its tokens."""

    def __init__(self, broker: barnabas.Broker, good: Token, expired: Token) -> None:
        self.bootstrap = broker.bootstrap
        self.good = good
        self.expired = expired


def _expired_unsecured(user: str) -> str:
    return unsecured_token(user, iat=1, exp=2)


def _with_topic(broker: barnabas.Broker, token: Token) -> None:
    admin = AdminClient(librdkafka(broker.bootstrap, token("admin")))
    for made in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
        made.result(PATIENCE_S)


def librdkafka(bootstrap: str, token: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 3600),
    }


@pytest.fixture(scope="module", params=["unsecured", "signed"])
def secured(request: pytest.FixtureRequest) -> Iterator[Secured]:
    if request.param == "unsecured":
        with barnabas.Broker(config=CONFIG) as broker:
            _with_topic(broker, unsecured_token)
            yield Secured(broker, unsecured_token, _expired_unsecured)
        return
    pytest.importorskip("joserfc", reason="needs joserfc, of the extra `security`")
    with TokenIssuer(issuer="https://idp", audience="kafka") as issuer:
        signed = {
            f"{PREFIX}sasl.server.callback.handler.class": OF_KAFKA + "OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": issuer.jwks_url,
            "sasl.oauthbearer.expected.issuer": "https://idp",
            "sasl.oauthbearer.expected.audience": "kafka",
        }
        with barnabas.Broker(config={**CONFIG, **signed}) as broker:
            _with_topic(broker, issuer.token)
            yield Secured(broker, issuer.token, issuer.expired_token)


def by_confluent(bootstrap: str, token: str) -> str:
    return sent_by_confluent(librdkafka(bootstrap, token), TOPIC)


def in_python(bootstrap: str, provider: object) -> dict[str, object]:
    """Of kafka-python and aiokafka."""
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


def by_kafka_python(bootstrap: str, token: str) -> str:
    from kafka.net.sasl.oauth import AbstractTokenProvider as Provider

    class Given(Provider):  # type: ignore[misc]
        def token(self) -> str:
            return token

    return sent_by_kafka_python({**in_python(bootstrap, Given()), "bootstrap_timeout_ms": 5_000}, TOPIC)


class _Given(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def by_aiokafka(bootstrap: str, token: str) -> str:
    return sent_by_aiokafka(in_python(bootstrap, _Given(token)), TOPIC)


CLIENTS = {"confluent": by_confluent, "kafka_python": by_kafka_python, "aiokafka": by_aiokafka}


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_signs_in_by_a_token_as_the_user_it_names(secured: Secured, client: str) -> None:
    send = CLIENTS[client]
    assert send(secured.bootstrap, secured.good("admin")) == "written"
    assert send(secured.bootstrap, secured.good("alice")) == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize("client", ["confluent", "kafka_python"])  # aiokafka says nothing, and tries on
def test_with_an_expired_token_no_client_gets_in(secured: Secured, client: str) -> None:
    assert CLIENTS[client](secured.bootstrap, secured.expired("admin")) == "refused"


def test_kcat_signs_in_by_a_token_that_it_makes(needs_kcat: str) -> None:
    with barnabas.Broker(config=CONFIG) as broker:
        options = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=admin",
        }
        listed = subprocess.run(
            [
                needs_kcat,
                "-b",
                broker.bootstrap,
                "-L",
                *(f"-X{name}={value}" for name, value in options.items()),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    assert "1 brokers" in listed.stdout


def test_kafkas_tools_sign_in_by_tokens(
    secured: Secured, needs_kafka: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's client makes unsecured tokens itself, and has signed ones from a file here."""
    lines = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER"]
    module = f"sasl.jaas.config={OF_KAFKA}OAuthBearerLoginModule required"
    if secured.good is unsecured_token:
        lines += [f'{module} unsecuredLoginStringClaim_sub="admin";']
    else:
        token = tmp_path / "token"
        token.write_text(secured.good("admin"))
        lines += [
            f"{module};",
            f"sasl.login.callback.handler.class={OF_KAFKA}OAuthBearerLoginCallbackHandler",
            f"sasl.oauthbearer.jwt.retriever.class={OF_KAFKA}FileJwtRetriever",
            f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}",
        ]
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}"
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
    file = tmp_path / "client.properties"
    file.write_text("\n".join(lines))
    program = (
        "class",
        "org.apache.kafka.tools.TopicCommand",
    )  # in a process of its own, which takes the option
    told = needs_kafka(*program, "--bootstrap-server", secured.bootstrap, "--command-config", file, "--list")
    assert TOPIC in told.split()
