"""Connections beyond the limit are all closed, and logged now and then."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from broker.environment.network import SystemNames
from broker.handlers import sasl_authenticate, sasl_handshake
from broker.network.connection_limits import ConnectionLimits
from broker.network.endpoints import HostNames
from broker.network.listener import QUIET_S, Admission, Listener
from protocol.errors import Error
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.support.controller_channel import Timers
from tests.support.manual_clock import ManualClock


class Connecting:
    """Connects to a listener that has room for one connection."""

    def __init__(self) -> None:
        self.timers = Timers()
        limits = ConnectionLimits(1, 100, {}, HostNames(SystemNames()), 100)
        rates: Any = SimpleNamespace(charge=lambda host, now_ms: 0)
        endpoint: Any = SimpleNamespace(name="PLAINTEXT", security_protocol="PLAINTEXT")
        unused: Any = None
        self.listener = Listener(
            endpoint, unused, Admission(limits, rates, ManualClock()), self.timers, unused
        )

    def admitted(self, port: int) -> bool:
        connection: Any = _Connection(port)
        return self.listener.admit(connection) is None


class _Connection:
    peer_host = "127.0.0.1"

    def __init__(self, port: int) -> None:
        self._port = port

    def __str__(self) -> str:
        return f"127.0.0.1:{self._port}"


def test_refusals_are_logged_once_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    connecting = Connecting()
    assert connecting.admitted(1)
    assert not any(connecting.admitted(port) for port in range(2, 50))
    assert [record.getMessage() for record in caplog.records] == [
        "closing the connection of 127.0.0.1:2: more than 1 connections (max.connections)"
    ]
    caplog.clear()
    connecting.timers.now_s += QUIET_S
    assert not any(connecting.admitted(port) for port in (50, 51))
    [record] = caplog.records
    assert record.getMessage().startswith("closing the connection of 127.0.0.1:50: ")
    assert record.getMessage().endswith("; 47 others since the last such line")


def test_a_client_that_asks_for_sasl_is_logged_once_in_ten_seconds_beside_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    connecting = Connecting()

    def ask(handler: Any, request: Any, client: str) -> Any:
        connection = SimpleNamespace(listener=connecting.listener, gate=None)
        context: Any = SimpleNamespace(connection=connection, sender=f" of 127.0.0.1:9 client {client}")
        return handler.handle(SimpleNamespace(), context, request)

    for client in ("one", "other"):
        answer = ask(sasl_handshake, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), client)
        assert answer.error_code == Error.ILLEGAL_SASL_STATE
    assert [connecting.admitted(port) for port in (1, 2)] == [True, False]
    line = (
        "asks for SASL{}, but listener PLAINTEXT doesn't use SASL: it is for clients with "
        "security.protocol=PLAINTEXT"
    )
    assert [record.getMessage() for record in caplog.records] == [
        f"the client of 127.0.0.1:9 client one {line.format(' (SCRAM-SHA-256)')}",
        "closing the connection of 127.0.0.1:2: more than 1 connections (max.connections)",
    ]
    caplog.clear()
    connecting.timers.now_s += QUIET_S
    ask(sasl_handshake, SaslHandshakeRequest(mechanism="x" * 32_000), "long")
    assert len(caplog.records[0].getMessage()) < 300
    assert caplog.records[0].getMessage().endswith("; 1 others since the last such line")
    caplog.clear()
    connecting.timers.now_s += QUIET_S
    ask(sasl_authenticate, SaslAuthenticateRequest(), "one")
    assert [record.getMessage() for record in caplog.records] == [
        f"the client of 127.0.0.1:9 client one {line.format('')}"
    ]
