"""What the commands' own client says of addresses, settings and answers that make no sense: one line each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from socket import create_server
from types import SimpleNamespace
from typing import cast

import pytest

from cli.client import sasl
from cli.client.cluster import KafkaCluster
from cli.client.connection import Connection
from cli.errors import CommandError, CommandUsageError
from protocol.messages.security import SaslAuthenticateResponse, SaslHandshakeResponse
from tests.support.ports import free_ports


@pytest.mark.parametrize("host", ["foo..bar", "f" * 64 + ".x"])
def test_a_host_that_cant_be_one_is_a_mistake_of_the_user(host: str) -> None:
    with pytest.raises(CommandUsageError, match="is no address of a host"):
        Connection(host, 9092, {})


def test_an_answer_of_versions_that_makes_no_sense_is_told() -> None:
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
    with pytest.raises(CommandUsageError, match=f"{name} isn't known to this command: (security|ssl|sasl)"):
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
def test_a_challenge_that_makes_no_sense_or_asks_for_hours_is_told(rest: str) -> None:
    with pytest.raises(CommandError, match="its challenge makes no sense"):
        signing_in(
            "SCRAM-SHA-256", lambda nonce: SaslAuthenticateResponse(auth_bytes=f"r={nonce}x,{rest}".encode())
        )


def test_an_error_that_isnt_known_is_told_by_its_number() -> None:
    with pytest.raises(CommandError, match="error 9999"):
        signing_in("PLAIN", lambda _: SaslAuthenticateResponse(error_code=9999))
