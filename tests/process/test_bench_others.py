"""Brokers that the bench is given by a command or an address (`tests.bench --other`)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from protocol.messages.metadata import ApiVersionsRequest
from tests.bench.measures import processor_s
from tests.bench.others import AtAddress, ByCommand
from tests.support.wire import Client, Outcome

COMMAND = f"{shlex.quote(sys.executable)} -m barnabas --port {{port}} --data {{folder}}"


def test_a_broker_started_by_a_command_is_measured_where_it_listens_and_ends(tmp_path: Path) -> None:
    server = ByCommand(COMMAND, tmp_path / "data")
    server.start()
    try:
        with Client.of(server.bootstrap) as client:  # the server listens before it makes its folder
            assert not isinstance(client.receive(client.send(ApiVersionsRequest(), 0)), Outcome)
        assert list((tmp_path / "data").iterdir())
        assert processor_s(server.pid) > 0
        assert AtAddress(server.bootstrap, tmp_path / "none").pid == server.pid
    finally:
        server.stop()
    with pytest.raises(ConnectionError):
        Client.of(server.bootstrap)


def test_a_broker_at_an_address_goes_on(tmp_path: Path) -> None:
    server = ByCommand(COMMAND, tmp_path / "data")
    server.start()
    try:
        at_address = AtAddress(server.bootstrap, tmp_path / "none")
        at_address.start()
        at_address.stop()
        Client.of(server.bootstrap).close()
    finally:
        server.kill()
    with pytest.raises(LookupError):
        _ = at_address.pid


def test_a_command_that_does_not_listen_shows_its_output(tmp_path: Path) -> None:
    server = ByCommand(f"{shlex.quote(sys.executable)} -c 'print(\"no port {{port}}\")'", tmp_path / "data")
    with pytest.raises(RuntimeError, match=r"(?s)doesn't listen.*no port \d+"):
        server.start()
