"""The front with a stand-in for the broker: what survives a stop, a kill and a pause, and for how long."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import sys
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

import barnabas
import barnabas.broker
from barnabas.child import CRASHES, Child
from tests.process.test_front import STAND_IN, answers
from tests.support.waiting import process_is_gone, until


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barnabas.broker, "LAUNCHER", STAND_IN)


def test_a_killed_broker_starts_again_on_its_folder_and_port() -> None:
    with barnabas.Broker() as broker:
        data, port, pid = broker.data, broker.port, broker.pid
        broker.kill()
        assert process_is_gone(pid)
        assert data.is_dir()
        broker.start()
        assert (broker.data, broker.port) == (data, port)
        assert broker.pid != pid
        assert (data / "starts").read_text() == "start\n" * 2
    assert not data.exists()


def test_a_broker_that_was_killed_from_outside_starts_again_on_its_folder_and_port() -> None:
    with barnabas.Broker() as broker:
        data, port, pid = broker.data, broker.port, broker.pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: not broker.running, "the process ended")
        broker.start()
        assert (broker.data, broker.port) == (data, port)
        assert broker.pid != pid
        assert answers(broker)
    assert not data.exists()


DYING = """
import os, socket, time
control = socket.socket(fileno={fd})
control.send({last})
control.close()
time.sleep(0.1)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("last", [CRASHES + b"\n", b""])
def test_a_process_that_is_about_to_end_does_not_run_any_more(last: bytes) -> None:
    child = Child()
    child.spawn(lambda fd: [sys.executable, "-S", "-c", DYING.format(fd=fd, last=last)])
    with pytest.raises(barnabas.BrokerError, match="the broker ended when it was asked"):
        child.ask({"ask": "whatever"})
    assert not child.runs
    assert child.has_crashed(child.pid) == bool(last)
    if not last:  # else whoever asked has expected it
        with pytest.raises(barnabas.BrokerError, match="had ended by itself, by SIGKILL"):
            child.stop()
    child.stop()
    child.end()


def test_a_killed_broker_leaves_no_folder_once_it_is_closed() -> None:
    with barnabas.Broker() as broker:
        data = broker.data
        broker.kill()
    assert not data.exists()


def test_a_restart_keeps_folder_and_port() -> None:
    with barnabas.Broker() as broker:
        data, port, pid = broker.data, broker.port, broker.pid
        broker.restart()
        assert (broker.data, broker.port) == (data, port)
        assert process_is_gone(pid)
        assert (data / "starts").read_text() == "start\n" * 2


def test_a_stopped_broker_starts_again_on_its_folder_and_port() -> None:
    with barnabas.Broker() as broker:
        data, bootstrap, pid = broker.data, broker.bootstrap, broker.pid
        broker.stop()
        assert process_is_gone(pid)
        assert (broker.data, broker.bootstrap) == (data, bootstrap)
        assert not answers(broker)
        broker.start()
        assert (broker.data, broker.bootstrap) == (data, bootstrap)
        assert answers(broker)
        assert (data / "starts").read_text() == "start\n" * 2
        broker.stop()
    assert not data.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="a port is held on Linux alone")
def test_the_port_of_a_stopped_broker_stays_reserved() -> None:
    with barnabas.Broker() as broker, socket.socket() as other:
        broker.stop()
        with pytest.raises(OSError, match="Address already in use"):
            other.bind((broker.host, broker.port))


def test_free_ports_of_listeners_in_the_settings_stay_over_a_stop(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("listeners=PLAINTEXT://127.0.0.1:0,\\\n  OTHER://localhost:0\n")
    written = "PLAINTEXT://127.0.0.1:0,OTHER://localhost:0"
    for said in ({"config": {"listeners": written}}, {"properties": properties}):
        with barnabas.Broker(**said) as broker:
            broker.restart()
            arguments = [line for line in broker.log.splitlines() if line.startswith("arguments: ")]
            first, second = (json.loads(line.partition(": ")[2]) for line in arguments)
        assert first == [*first[:4], *second[4:]]
        assert "listeners=" + written not in second
        (listeners,) = (value for flag, value in pairwise(second) if value.startswith("listeners="))
        assert re.fullmatch(r"listeners=PLAINTEXT://127\.0\.0\.1:\d+,OTHER://localhost:\d+", listeners)
        assert not listeners.endswith(":0")


def listeners_given(broker: barnabas.Broker) -> list[str]:
    """Return the value of `listeners` at each start."""
    given = []
    for line in broker.log.splitlines():
        if line.startswith("arguments: "):
            for _, value in pairwise(json.loads(line.partition(": ")[2])):
                if value.startswith("listeners="):
                    given.append(value.partition("=")[2])
    return given


@pytest.mark.parametrize("name", ["MY-L", "A_B.c", "CLIENT"])
def test_a_free_port_stays_whatever_the_listeners_name_is(name: str) -> None:
    with barnabas.Broker(config={"listeners": f"{name}://127.0.0.1:0,ALL://:0"}) as broker:
        broker.restart()
        first, second = listeners_given(broker)
    assert re.fullmatch(rf"{name}://127\.0\.0\.1:[1-9]\d+,ALL://:[1-9]\d+", first)
    assert first == second


def test_a_listener_that_is_added_between_two_starts_gets_a_port_and_the_others_keep_theirs(
    tmp_path: Path,
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("listeners=A://:9092\nlisteners=A://127.0.0.1:0,B://127.0.0.1:0\n")
    with barnabas.Broker(properties=properties) as broker:
        broker.stop()
        properties.write_text("listeners=C://127.0.0.1:0,B://127.0.0.1:0\n")
        broker.start()
        broker.stop()
        properties.write_text("listeners=A://127.0.0.1:0,B://127.0.0.1:0,C://127.0.0.1:0\n")
        broker.start()
        (a, b), (c, same_b), last = (line.split(",") for line in listeners_given(broker))
    assert same_b == b
    assert last == [a, b, c]
    assert len({address.rpartition(":")[2] for address in last} - {"0"}) == 3


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_the_broker_itself_complains_of_another_machines_host(host: str) -> None:
    with barnabas.Broker(config={"listeners": f"A://127.0.0.1:0,B://{host}:0"}) as broker:
        assert listeners_given(broker) == [f"A://127.0.0.1:0,B://{host}:0"]


def test_a_port_that_cannot_be_held_for_another_reason_is_an_error_of_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(hosts: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    broker = barnabas.Broker()
    with monkeypatch.context() as patch:
        patch.setattr(barnabas.broker, "HeldPorts", fails)
        with pytest.raises(OSError, match="Too many open files"):
            broker.start()
    with broker:
        assert broker.running


def test_a_closed_broker_may_be_started_again() -> None:
    broker = barnabas.Broker()
    with broker:
        first = broker.data
    with pytest.raises(RuntimeError, match="not started, or is closed"):
        _ = broker.bootstrap
    with broker:
        assert broker.data != first
        assert (broker.data / "starts").read_text() == "start\n"


def test_stopping_and_closing_twice_is_nothing() -> None:
    broker = barnabas.Broker().start()
    broker.stop()
    broker.stop()
    broker.close()
    broker.close()


def test_a_paused_broker_goes_on_when_it_is_resumed_and_stops_in_any_case() -> None:
    with barnabas.Broker() as broker:
        process = psutil.Process(broker.pid)
        broker.pause()
        broker.pause()
        assert broker.paused
        assert broker.running
        until(lambda: process.status() == psutil.STATUS_STOPPED, "it is paused")
        broker.resume()
        assert not broker.paused
        until(lambda: process.status() != psutil.STATUS_STOPPED, "it goes on")
        broker.pause()
        broker.stop()
        assert not broker.paused
        with pytest.raises(RuntimeError, match="doesn't run"):
            broker.pause()
        broker.start()
        broker.pause()
