"""The start and the end of the broker's process: what it prints, and what ends it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import barnabas
from broker.process import run as readiness
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.records.compression import ZSTD
from tests.support.ready_requests import produce_frame
from tests.support.record_bytes import batch, sized, varint
from tests.support.wire import Client

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240.0

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a broker and waits for its ready line. The broker inherits the `ignored` signals
    as ignored."""
    started: list[subprocess.Popen[str]] = []

    def begin(*ignored: signal.Signals, **environment: str) -> subprocess.Popen[str]:
        code = "import os, signal, sys\n"
        code += "for number in (1, 2, 15): signal.signal(number, signal.SIG_DFL)\n"
        code += "".join(f"signal.signal({int(number)}, signal.SIG_IGN)\n" for number in ignored)
        code += "os.execv(sys.executable, [sys.executable, '-m', 'broker', *sys.argv[1:]])"
        process = subprocess.Popen(
            [sys.executable, "-c", code, "--data", str(tmp_path / "data"), "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO barnabas: \[KafkaServer id=1\] started, connect to .*\n",
            line,
        )
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> list[str]:
    """Wait for the process to end, and return the lines that it logged, without their times."""
    out, _ = process.communicate(timeout=PATIENCE_S)
    return [line.partition(" INFO barnabas: ")[2] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "Ctrl-C (SIGINT)"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")],
)
def test_the_end_names_its_reason_and_its_completion(start: Start, number: signal.Signals, name: str) -> None:
    broker = start()
    broker.send_signal(number)
    assert said(broker) == [f"stopping: {name}", "stopped"]
    assert broker.returncode == 0


def test_topics_named_by_the_environment_exist_after_the_start(start: Start) -> None:
    started = start(KAFKA_CREATE_TOPICS="orders:3:1")
    (connection,) = (
        each for each in psutil.Process(started.pid).net_connections() if each.status == psutil.CONN_LISTEN
    )
    with Client.of(f"127.0.0.1:{connection.laddr.port}") as client:
        (topic,) = client.ask(MetadataRequest(topics=None), 12).topics
    assert (topic.name, len(topic.partitions)) == ("orders", 3)


def test_hang_ups_and_interrupts_that_were_ignored_at_the_start_stay_so(start: Start) -> None:
    broker = start(signal.SIGHUP, signal.SIGINT)
    broker.send_signal(signal.SIGHUP)
    broker.send_signal(signal.SIGINT)
    broker.send_signal(signal.SIGTERM)
    assert said(broker) == ["stopping: SIGTERM", "stopped"]


def test_a_service_manager_hears_of_readiness_and_of_the_stop(start: Start, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        broker = start(NOTIFY_SOCKET=str(tmp_path / "notify"))
        ready = manager.recv(1000).decode().splitlines()
        broker.send_signal(signal.SIGTERM)
        broker.communicate(timeout=PATIENCE_S)
        assert ready[0] == "READY=1"
        assert ready[1].startswith("STATUS=connect to 127.0.0.1:")
        assert manager.recv(1000) == b"STOPPING=1"


def test_an_unreachable_service_manager_does_not_prevent_a_start(start: Start, tmp_path: Path) -> None:
    broker = start(NOTIFY_SOCKET=str(tmp_path / "nowhere"))
    broker.send_signal(signal.SIGTERM)
    broker.communicate(timeout=PATIENCE_S)
    assert broker.returncode == 0


def test_a_service_manager_that_reads_nothing_holds_up_nobody_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(readiness, "PATIENCE_S", 0.0)
    address = str(tmp_path / "notify")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other,
    ):
        manager.bind(address)
        other.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while other.sendto(b"x", address):
                pass
        readiness.notify({"NOTIFY_SOCKET": address}, readiness.READY)
    assert "the service manager can't be told READY=1" in caplog.text


def test_a_data_folder_that_is_deleted_ends_the_broker_with_its_reason(start: Start, tmp_path: Path) -> None:
    broker = start()
    shutil.rmtree(tmp_path / "data")
    out, errors = broker.communicate(timeout=PATIENCE_S)
    assert broker.returncode == 1
    assert f"{tmp_path / 'data'} was deleted or replaced" in errors
    assert "stopped, but not cleanly" in out
    assert not (tmp_path / "data").exists()


def test_a_misspelt_setting_of_a_program_prevents_the_start_and_names_the_one_meant() -> None:
    broker = barnabas.Broker(config={"num.partition": 3})
    with pytest.raises(barnabas.BrokerError, match=r"did you mean num\.partitions\?"):
        broker.start()
    assert not broker.running


def test_a_temporary_folder_goes_with_the_broker(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "broker", "--temporary", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as broker:
        assert broker.stdout is not None
        _, _, folder = broker.stdout.readline().rstrip().partition("data in ")
        assert Path(folder).parent == tmp_path
        assert [*Path(folder).iterdir()]
        broker.terminate()
    assert [*tmp_path.iterdir()] == []


def test_a_check_of_the_settings_starts_nothing(tmp_path: Path) -> None:
    def checked(*arguments: str) -> tuple[int, str]:
        program = [sys.executable, "-m", "broker", "--check", "--data", str(tmp_path / "data"), *arguments]
        ended = subprocess.run(
            program, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
        )
        assert ended.stdout == ""
        return ended.returncode, ended.stderr

    assert checked("-o", "num.partitions=3") == (0, "")
    assert checked("-o", "num.partition=3") == (
        2,
        "barnabas: -o: num.partition isn't a setting of a Kafka broker; did you mean num.partitions?\n",
    )
    assert [*tmp_path.iterdir()] == []


def test_a_stop_from_python_is_not_logged_as_if_the_program_had_ended() -> None:
    with barnabas.Broker() as broker:
        broker.stop()
        assert "INFO barnabas: stopping: the program that started it asks for it\n" in broker.log
        assert broker.log.endswith("INFO barnabas: stopped\n")


def test_a_stopped_broker_without_a_folder_comes_back_with_its_topics() -> None:
    with barnabas.Broker() as broker:
        with Client.of(broker.bootstrap) as client:
            wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5)
        broker.stop()
        broker.start()
        with Client.of(broker.bootstrap) as client:
            assert [topic.name for topic in client.ask(MetadataRequest(topics=None), 12).topics] == ["t"]


def test_a_stop_waits_for_no_batch_that_is_checked(tmp_path: Path) -> None:
    """A batch of a few kilobytes can take minutes to check."""
    none = bytes(2) * 60_000_000
    body = bytes((0,)) + varint(0) + varint(0) + sized(None) + sized(None) + varint(len(none) // 2) + none
    endless = batch([varint(len(body)) + body], attributes=ZSTD)
    broker = barnabas.Broker(data=tmp_path / "data").start()
    process = psutil.Process(broker.pid)
    try:
        with Client.of(broker.bootstrap) as client, Client.of(broker.bootstrap) as other:
            wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5)
            threads = process.num_threads()
            client.send_bytes(produce_frame("t", bytes(endless), acks=1))
            while (
                process.num_threads() < threads + 3
            ):  # one thread each for brief checks, long ones, and those of much data
                other.ask(MetadataRequest(topics=[]), 12)
            process.terminate()
            assert process.wait(60) == 0
    finally:
        broker.kill()
