"""The front with a stand-in for the broker: what it passes on, and how it ends what it started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import barnabas
import barnabas.broker
import barnabas.child
from tests.support.waiting import process_is_gone, until

STAND_IN = Path(__file__).parents[1] / "support" / "stand_in_broker.py"


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barnabas.broker, "LAUNCHER", STAND_IN)


def printed(broker: barnabas.Broker, what: str) -> list[str]:
    line = next(line for line in broker.log.splitlines() if line.startswith(what + ": "))
    return json.loads(line.partition(": ")[2])


def answers(broker: barnabas.Broker) -> bool:
    try:
        socket.create_connection((broker.host, broker.port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_started_broker_says_where_to_connect() -> None:
    with barnabas.Broker() as broker:
        assert broker.running
        assert broker.host == "127.0.0.1"
        assert broker.bootstrap == f"127.0.0.1:{broker.port}"
        assert broker.listeners == {"PLAINTEXT": broker.bootstrap}
        assert answers(broker)


def test_a_broker_without_a_folder_takes_its_temporary_one_with_it() -> None:
    with barnabas.Broker() as broker:
        pid, data = broker.pid, broker.data
        assert data.is_dir()
    assert process_is_gone(pid)
    assert not data.exists()
    assert not broker.running


def test_a_broker_given_a_folder_keeps_it(tmp_path: Path) -> None:
    with barnabas.Broker(data=tmp_path) as broker:
        assert broker.data == tmp_path
        assert "--temporary" not in printed(broker, "arguments")
    assert (tmp_path / "starts").read_text() == "start\n"


def test_settings_are_passed_on_as_kafka_writes_them(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("num.partitions=2\n")
    settings = {
        "num.partitions": 3,
        "delete.topic.enable": False,
        "cleanup.policy": ["compact", "delete"],
    }
    with barnabas.Broker(config=settings, properties=properties, log_level="debug") as broker:
        arguments = printed(broker, "arguments")
    assert [value for flag, value in pairwise(arguments) if flag == "-o"] == [
        "num.partitions=3",
        "delete.topic.enable=false",
        "cleanup.policy=compact,delete",
    ]
    assert arguments[arguments.index("--config") + 1] == str(properties)
    assert arguments[arguments.index("--log-level") + 1] == "debug"


def test_listeners_in_the_settings_decide_instead_of_host_and_port() -> None:
    with barnabas.Broker(config={"listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
        assert not {"--host", "--port"} & set(printed(broker, "arguments"))


@pytest.mark.parametrize(
    ("line", "decides"),
    [
        ("listeners=PLAINTEXT://:9092", True),
        ("  listeners : PLAINTEXT://:9092", True),
        ("#listeners=PLAINTEXT://:9092", False),
        ("advertised.listeners=PLAINTEXT://:9092", False),
        ("listeners.extra=1", False),
    ],
)
def test_listeners_in_the_properties_decide_instead_of_host_and_port(
    tmp_path: Path, line: str, decides: bool
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"num.partitions=2\n{line}\n")
    with barnabas.Broker(properties=properties) as broker:
        assert ("--port" not in printed(broker, "arguments")) == decides


def test_a_folder_can_only_be_given_as_one_to_keep() -> None:
    with pytest.raises(ValueError, match="data="):
        barnabas.Broker(config={"log.dirs": "/var/lib/kafka"})


def test_the_launchers_folder_is_not_on_the_brokers_path() -> None:
    with barnabas.Broker() as broker:
        assert str(STAND_IN.parent) not in printed(broker, "path")


def test_ctrl_c_in_a_terminal_reaches_only_the_parent() -> None:
    with barnabas.Broker() as broker:
        assert os.getpgid(broker.pid) != os.getpgrp()


def test_a_broker_that_fails_to_start_says_why_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    broker = barnabas.Broker(config={"behaviour": "fails"})
    with pytest.raises(barnabas.BrokerError, match=r"(?s)exit status 1.*port 9092 is in use") as failure:
        broker.start()
    assert "barnabas: port 9092 is in use" in failure.value.log
    assert process_is_gone(broker.pid)
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_takes_too_long_to_start_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    broker = barnabas.Broker(config={"behaviour": "never ready"}, startup_timeout_s=0.3)
    with pytest.raises(barnabas.BrokerError, match=r"not ready within 0\.3 s"):
        broker.start()
    assert process_is_gone(broker.pid)
    assert list(tmp_path.iterdir()) == []


def test_a_second_start_is_refused_while_the_first_lasts() -> None:
    with barnabas.Broker() as broker:
        with pytest.raises(RuntimeError, match="started already"):
            broker.start()
        assert answers(broker)


def test_a_broker_that_ended_by_itself_is_not_passed_over() -> None:
    broker = barnabas.Broker(config={"behaviour": "ends by itself"}).start()
    until(lambda: not broker.running, "the process ended")
    data = broker.data
    with pytest.raises(barnabas.BrokerError, match="ended by itself, with exit status 3"):
        broker.close()
    assert not data.exists()


def test_a_broker_that_does_not_stop_well_is_not_passed_over(tmp_path: Path) -> None:
    broker = barnabas.Broker(data=tmp_path, config={"behaviour": "stops badly"}).start()
    with pytest.raises(barnabas.BrokerError, match="did not stop well, with exit status 9"):
        broker.stop()


def test_an_error_in_the_block_is_not_hidden_by_the_brokers_end() -> None:
    with (
        pytest.raises(ZeroDivisionError) as failure,
        barnabas.Broker(config={"behaviour": "stops badly"}),
    ):
        _ = 1 / 0
    assert "did not stop well" in failure.value.__notes__[0]


def test_a_forgotten_broker_ends() -> None:
    broker = barnabas.Broker().start()
    pid, data = broker.pid, broker.data
    del broker
    assert process_is_gone(pid)
    assert not data.exists()


PARENT = f"""
import os, sys, time
import barnabas, barnabas.broker
from pathlib import Path
barnabas.broker.LAUNCHER = Path({str(STAND_IN)!r})
broker = barnabas.Broker().start()
print(broker.pid, broker.data, flush=True)
"""


@pytest.fixture
def parent() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start_parent(started: list[subprocess.Popen[str]], then: str) -> tuple[int, Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT + then],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=STAND_IN.parents[2],
        start_new_session=True,
    )
    started.append(process)
    assert process.stdout is not None
    pid, data = process.stdout.readline().split(maxsplit=1)
    return int(pid), Path(data.strip())


def test_a_broker_dies_with_a_parent_that_is_killed(parent: list[subprocess.Popen[str]]) -> None:
    pid, data = start_parent(parent, "sys.stdin.read()")
    assert data.is_dir()
    parent[0].kill()
    until(lambda: process_is_gone(pid), "the broker is gone")
    assert not data.exists()


def test_a_broker_dies_with_its_parent_even_where_the_parent_had_forked(
    parent: list[subprocess.Popen[str]],
) -> None:
    then = "if os.fork() == 0: sys.stdin.read()\nelse: print('forked', flush=True); time.sleep(1000)"
    pid, data = start_parent(parent, then)
    assert parent[0].stdout is not None
    assert parent[0].stdout.readline() == "forked\n"
    parent[0].kill()
    until(lambda: process_is_gone(pid), "the broker is gone")
    assert not data.exists()


def test_a_forked_process_that_ends_leaves_its_parents_broker_alone(
    parent: list[subprocess.Popen[str]],
) -> None:
    then = "if os.fork() == 0: sys.exit()\nos.wait(); print('waited', flush=True); sys.stdin.read()"
    pid, data = start_parent(parent, then)
    assert parent[0].stdout is not None
    assert parent[0].stdout.readline() == "waited\n"
    assert not process_is_gone(pid)
    assert data.is_dir()


def test_a_broker_ends_with_the_interpreter_of_a_parent_that_forgot_to_stop_it(
    parent: list[subprocess.Popen[str]],
) -> None:
    pid, data = start_parent(parent, "")
    assert parent[0].wait(30) == 0
    assert process_is_gone(pid)
    assert not data.exists()


def test_importing_the_front_loads_nothing_of_the_broker_and_little_else() -> None:
    code = "import sys; before = set(sys.modules); import barnabas; print(sorted(set(sys.modules) - before))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=STAND_IN.parents[2]
    )
    assert loaded.stdout.strip() == "['barnabas']"


def test_the_fronts_names_are_listed_before_it_is_loaded() -> None:
    code = "import sys, barnabas; print(set(barnabas.__all__) <= set(dir(barnabas)), 'barnabas.broker' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=STAND_IN.parents[2]
    )
    assert shown.stdout.strip() == "True False"


def test_a_name_that_the_front_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Borker'"):
        _ = barnabas.Borker  # type: ignore[attr-defined]
