"""`barnabas.Broker` with the real broker: its life, its failures to start, and its kept files."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barnabas
from tests.clients.confluent import create_topic, read, send
from tests.support.waiting import process_is_gone, until

ROOT = Path(__file__).parents[2]

StartBroker = Callable[..., barnabas.Broker]


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_stopped_broker_leaves_neither_process_nor_port_nor_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with barnabas.Broker() as broker:
        create_topic(broker.bootstrap, "left", partitions=3)
        assert list(tmp_path.iterdir()) == [broker.data]
        port = broker.port
    assert process_is_gone(broker.pid)
    assert refuses(port)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def parent() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a Python process that runs this code, and in the end kills it."""
    with contextlib.ExitStack() as started:

        def start(code: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", f"import sys, barnabas, barnabas.child\n{code}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield start


def told_by(parent: subprocess.Popen[str]) -> list[str]:
    assert parent.stdout is not None
    return parent.stdout.readline().split()


def test_a_broker_dies_with_a_parent_that_is_killed_and_leaves_nothing(
    parent: Callable[[str], subprocess.Popen[str]],
) -> None:
    holder = parent(
        "broker = barnabas.Broker().start()\n"
        "print(broker.pid, broker.port, broker.data, flush=True)\n"
        "sys.stdin.read()\n"
    )
    pid, port, data = told_by(holder)
    create_topic(f"127.0.0.1:{port}", "left")
    assert Path(data).is_dir()
    holder.kill()
    until(lambda: process_is_gone(int(pid)), "the broker is gone")
    assert not Path(data).exists()
    assert refuses(int(port))


def test_a_broker_dies_with_a_parent_that_is_killed_while_it_starts(
    parent: Callable[[str], subprocess.Popen[str]],
) -> None:
    holder = parent(
        "def never_hear_of_it(child, timeout_s):\n"
        "    print(child.pid, child.temporary_folder, flush=True)\n"
        "    sys.stdin.read()\n"
        "barnabas.child.Child.wait_until_ready = never_hear_of_it\n"
        "barnabas.Broker().start()\n"
    )
    pid, data = told_by(holder)
    holder.kill()
    until(lambda: process_is_gone(int(pid)), "the broker is gone")
    assert not Path(data).exists()


def test_a_restarted_broker_still_dies_with_its_parent_and_leaves_nothing(
    parent: Callable[[str], subprocess.Popen[str]],
) -> None:
    holder = parent(
        "broker = barnabas.Broker().start()\n"
        "broker.restart()\n"
        "print(broker.pid, broker.data, flush=True)\n"
        "sys.stdin.read()\n"
    )
    pid, data = told_by(holder)
    assert Path(data).is_dir()
    holder.kill()
    until(lambda: process_is_gone(int(pid)), "the broker is gone")
    assert not Path(data).exists()


def test_records_outlive_a_kill(barnabas_broker: StartBroker) -> None:
    broker = barnabas_broker()
    create_topic(broker.bootstrap, "kept")
    send(broker.bootstrap, "kept", [{"value": b"first"}, {"value": b"second"}])
    broker.kill()
    broker.start()
    send(broker.bootstrap, "kept", [{"value": b"third"}])
    assert [m.value() for m in read(broker.bootstrap, "kept", 3)] == [b"first", b"second", b"third"]


def test_records_outlive_a_restart_in_the_same_place(barnabas_broker: StartBroker) -> None:
    broker = barnabas_broker()
    create_topic(broker.bootstrap, "kept")
    send(broker.bootstrap, "kept", [{"value": b"first"}])
    before = broker.bootstrap, broker.data
    broker.restart()
    assert (broker.bootstrap, broker.data) == before
    assert [m.value() for m in read(broker.bootstrap, "kept", 1)] == [b"first"]


def test_records_in_a_folder_of_ones_own_outlive_the_broker(
    barnabas_broker: StartBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    first = barnabas_broker(data=folder)
    create_topic(first.bootstrap, "kept")
    send(first.bootstrap, "kept", [{"value": b"first"}])
    first.stop()
    second = barnabas_broker(data=folder)
    assert [m.value() for m in read(second.bootstrap, "kept", 1)] == [b"first"]


def test_settings_reach_the_broker(barnabas_broker: StartBroker, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("num.partitions=2\nauto.create.topics.enable=true\n")
    broker = barnabas_broker(properties=properties, config={"num.partitions": 3})
    send(broker.bootstrap, "made", [{"value": b"", "partition": 2}])


def test_the_environment_of_a_broker_in_a_container_does_not_leak_in(
    barnabas_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ADVERTISED_LISTENERS", "OUTSIDE://elsewhere:9092")
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "many")
    broker = barnabas_broker()
    assert broker.listeners == {"PLAINTEXT": f"127.0.0.1:{broker.port}"}


def test_each_listener_is_named_with_its_advertised_address(barnabas_broker: StartBroker) -> None:
    broker = barnabas_broker(
        config={
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "advertised.listeners": "INSIDE://kafka:29092,OUTSIDE://localhost:9092",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    assert broker.listeners == {"INSIDE": "kafka:29092", "OUTSIDE": "localhost:9092"}


def test_a_port_in_use_is_the_reason_of_a_failed_start(barnabas_broker: StartBroker) -> None:
    first = barnabas_broker()
    with pytest.raises(barnabas.BrokerError) as failure:
        barnabas.Broker(port=first.port).start()
    assert str(first.port) in failure.value.log


def test_a_folder_in_use_is_the_reason_of_a_failed_start(
    barnabas_broker: StartBroker, tmp_path: Path
) -> None:
    barnabas_broker(data=tmp_path)
    with pytest.raises(barnabas.BrokerError) as failure:
        barnabas.Broker(data=tmp_path).start()
    assert str(tmp_path) in failure.value.log


def test_a_mistake_in_the_settings_is_the_reason_of_a_failed_start() -> None:
    with pytest.raises(barnabas.BrokerError) as failure:
        barnabas.Broker(config={"num.partitions": "many"}).start()
    assert "num.partitions" in failure.value.log
    assert "Traceback" not in failure.value.log


def test_a_restart_follows_a_crash_from_outside() -> None:
    with barnabas.Broker() as broker:
        port = broker.port
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        broker.restart()
        assert broker.running
        assert broker.port == port
