"""The commands' own client reports nonsense in addresses, settings and answers in one line each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from socket import create_server
from types import SimpleNamespace
from typing import Any, cast

import pytest

import cli.client.cluster
from cli.client import sasl
from cli.client.cluster import KafkaCluster
from cli.client.connection import Connection
from cli.errors import UNREACHABLE, CommandError, CommandUsageError
from protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from protocol.messages.security import SaslAuthenticateResponse, SaslHandshakeResponse
from tests.support.ports import free_ports


@pytest.mark.parametrize("host", ["foo..bar", "f" * 64 + ".x"])
def test_an_impossible_host_is_a_mistake_of_the_user(host: str) -> None:
    with pytest.raises(CommandUsageError, match="isn't a host's address"):
        Connection(host, 9092, {})


def test_a_nonsense_answer_about_versions_is_reported() -> None:
    (port,) = free_ports(1)
    with create_server(("127.0.0.1", port)) as server:

        def answer() -> None:
            there, _ = server.accept()
            with there:
                there.recv(1000)
                there.sendall(b"\0\0\0\x08\0\0\0\1\0\0\xff\xff")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(CommandError, match="the answer makes no sense"):
            Connection("127.0.0.1", port, {})
        thread.join()


@pytest.mark.parametrize("name", ["secruity.protocol", "ssl.ca.pem", "security.protocl", "sasl.user"])
def test_a_setting_of_security_that_isnt_known_is_refused_with_the_nearest_that_is(name: str) -> None:
    with pytest.raises(
        CommandUsageError, match=f"doesn't know {name}; the nearest that it knows is (security|ssl|sasl)"
    ):
        KafkaCluster({name: "x"})


def test_settings_for_producers_and_consumers_may_stand_in_the_same_file() -> None:
    KafkaCluster({"bootstrap.servers": "b:1", "linger.ms": "5", "group.id": "g", "acks": "all"})


def signing_in(mechanism: str, answer: Callable[[str], SaslAuthenticateResponse]) -> None:
    def ask(request: object, _: object) -> object:
        if hasattr(request, "mechanism"):
            return SaslHandshakeResponse()
        return answer(request.auth_bytes.decode().rpartition("r=")[2])

    given = {"sasl.mechanism": mechanism, "sasl.username": "ana", "sasl.password": "p"}
    sasl.sign_in(cast(Connection, SimpleNamespace(ask=ask, address="b:1")), given)


@pytest.mark.parametrize(
    "rest", ["i=4096", "s=c2FsdA==", "s=c2F,i=4096", "s=c2FsdA==,i=1000000000", "s=c2FsdA==,i=0", "s=*,i=²"]
)
def test_a_challenge_that_is_nonsense_or_asks_for_hours_is_reported(rest: str) -> None:
    with pytest.raises(CommandError, match="its challenge makes no sense"):
        signing_in(
            "SCRAM-SHA-256", lambda nonce: SaslAuthenticateResponse(auth_bytes=f"r={nonce}x,{rest}".encode())
        )


def test_an_unknown_error_is_reported_by_its_number() -> None:
    with pytest.raises(CommandError, match="error 9999"):
        signing_in("PLAIN", lambda _: SaslAuthenticateResponse(error_code=9999))


class Brokers:
    """Three brokers, of which the second is gone. The others list it until it has been missed three times."""

    def __init__(self) -> None:
        self.missed = 0
        self.cut = False

    def __call__(self, host: str, port: int, _: object) -> object:
        if port == 2:
            self.missed += 1
            raise CommandError("b:2 can't be reached", UNREACHABLE)
        return SimpleNamespace(ask=partial(self.answer, port), version_of=lambda _: 9, close=lambda: None)

    def answer(self, port: int, request: object, *_: object) -> object:
        if not isinstance(request, MetadataRequest):
            return SimpleNamespace(error_code=0, port=port)
        if self.missed and not self.cut:
            self.cut = True
            raise CommandError("b:1 closed the connection", UNREACHABLE)
        there = (1, 3) if self.missed >= 3 else (1, 2, 3)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=node, host="b", port=node) for node in there]
        )


def test_a_broker_that_died_is_waited_out_until_the_others_know(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    monkeypatch.setattr(cli.client.cluster, "Connection", brokers)
    monkeypatch.setattr(cli.client.cluster, "PAUSE_S", 0.001)
    cluster = KafkaCluster({"bootstrap.servers": "b:1"})
    answers = cluster.ask_all(cast(Any, object()), cast(Any, None), lambda answer: answer.error_code)
    assert {node: answer.port for node, answer in answers.items()} == {1: 1, 3: 3}
    assert (brokers.missed, brokers.cut) == (3, True)


def test_a_broker_that_stays_away_is_reported_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    brokers.missed = -1_000_000
    monkeypatch.setattr(cli.client.cluster, "Connection", brokers)
    monkeypatch.setattr(cli.client.cluster, "PATIENCE_S", 0.01)
    brokers.cut = True
    with pytest.raises(CommandError, match="b:2 can't be reached"):
        KafkaCluster({"bootstrap.servers": "b:1"}).ask_all(
            cast(Any, object()), cast(Any, None), lambda answer: answer.error_code
        )
