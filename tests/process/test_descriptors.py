"""A broker's file descriptors: how many the system needs, and that files can still be opened when clients take all
they can."""

from __future__ import annotations

import contextlib
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barnabas
from broker.starting import MOST_OPEN_FILES, shares
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.support.wire import PATIENCE_S, Client

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="Linux alone tells the size of the table, and waits as it grows"
)

TELLS_ITS_THREADS = """
import os
from barnabas.launcher import main
from storage import disk_files

make_room = disk_files._make_room_for_descriptors

def told(count):
    print(f"made with {len(os.listdir('/proc/self/task'))} threads", flush=True)
    make_room(count)

disk_files._make_room_for_descriptors = told
main()
"""


def test_their_table_is_as_large_as_the_logs_will_need_it_once_the_broker_has_started(tmp_path: Path) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with barnabas.Broker(data=tmp_path / "data") as broker:
        status = Path(f"/proc/{broker.pid}/status").read_text()
    found = re.search(r"^FDSize:\s*(\d+)$", status, re.MULTILINE)
    assert found is not None
    assert int(found[1]) >= min(MOST_OPEN_FILES, soft // 2)


def test_the_descriptor_is_made_before_there_are_threads(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TELLS_ITS_THREADS, "--data", str(tmp_path / "data"), "--port", "0"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        told = [line for line in process.stdout if line.startswith("made with ") or process.terminate()]
    assert told == ["made with 1 threads\n"]


FEW = 600
AT_ONCE = 40
"""This many connections may wait to be accepted. The system retries any more of them a second later."""

WITH_FEW = """
import resource, sys
few = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
from barnabas.launcher import main
main()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[int], subprocess.Popen[str]]]:
    """Return a function that starts a broker with a given limit of descriptors."""
    started: list[subprocess.Popen[str]] = []

    def begin(descriptors: int) -> subprocess.Popen[str]:
        arguments = [str(descriptors), "--data", str(tmp_path / "data"), "--port", "0"]
        process = subprocess.Popen(
            [sys.executable, "-c", WITH_FEW, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_clients_that_connect_and_do_nothing_take_no_descriptor_from_the_files(
    start: Callable[[int], subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (FEW, FEW))
    most = shares(backlogs=50, locks=1).connections
    process = start(FEW)
    assert process.stdout is not None
    found = re.search(r"connect to ([^:]*):(\d+)", process.stdout.readline())
    assert found is not None
    host, port = found[1], int(found[2])
    with contextlib.ExitStack() as idle, Client.connect(port) as client:
        admitted = 1
        for _ in range(FEW // AT_ONCE):
            sockets = [idle.enter_context(socket.create_connection((host, port))) for _ in range(AT_ONCE)]
            room = most - admitted
            admitted += min(room, AT_ONCE)
            assert all(_is_closed(each) for each in sockets[room:])
        assert admitted == most
        for number in range(10):
            topic = CreatableTopic(name=f"t{number}", num_partitions=20, replication_factor=1)
            answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
            assert answer.topics[0].error_code == 0
    process.send_signal(signal.SIGTERM)
    told = process.stdout.read()
    assert process.wait() == 0, told
    assert "the process may have no more files open (ulimit -n)" in told
    assert "Errno" not in told


def _is_closed(connected: socket.socket) -> bool:
    """Wait for the end of the connection, and return whether it was closed."""
    connected.settimeout(PATIENCE_S)
    try:
        return connected.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_broker_that_may_have_too_few_says_so_in_one_line(
    start: Callable[[int], subprocess.Popen[str]],
) -> None:
    process = start(10)
    assert process.stdout is not None
    told = process.stdout.read()
    assert process.wait() == 1
    assert re.fullmatch(r"barnabas: this process may have 10 files .*: see ulimit -n\n", told)
