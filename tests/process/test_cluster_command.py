"""`barnabas cluster`: several brokers from one terminal."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.waiting import process_is_gone, until
from tests.support.wire import Client

ROOT = Path(__file__).parents[2]
STARTED = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO barnabas: cluster of (\d) brokers started, connect to (\S+); "
    r"data and logs in (.+?)(, which goes at the end)?\n"
)

Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Return a function that starts the command."""
    begun: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        code = "import os, signal, sys\n"
        code += "for number in (1, 2, 15): signal.signal(number, signal.SIG_DFL)\n"
        code += "os.execv(sys.executable, [sys.executable, '-m', 'barnabas', 'cluster', *sys.argv[1:]])"
        begun.append(
            subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        )
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def started(process: subprocess.Popen[str]) -> re.Match[str]:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = STARTED.fullmatch(line)
    assert found is not None, line
    return found


def said(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=240)
    return [line.partition(" INFO barnabas: ")[2] for line in out.splitlines()]


def pids_of(folder: Path) -> list[int]:
    """Return the process ids of the nodes: those that write their standard error to a log in the folder."""
    logs = {str(path) for path in folder.glob("*.log")}
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "fd" / "2") in logs:
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C (SIGINT)"), (signal.SIGTERM, "SIGTERM")]
)
def test_one_line_says_that_it_runs_and_a_signal_stops_all_of_it(
    begin: Begin, number: signal.Signals, name: str
) -> None:
    process = begin("--brokers", "2", "--port", "0")
    count, bootstrap, folder, goes = started(process).groups()
    assert count == "2"
    assert goes is not None
    for address in bootstrap.split(","):
        Client.of(address).__enter__().__exit__(None, None, None)
    pids = pids_of(Path(folder))
    assert len(pids) == 3
    process.send_signal(number)
    assert said(process) == [f"stopping: {name}", "stopped"]
    assert process.returncode == 0
    assert all(process_is_gone(pid) for pid in pids)
    assert not Path(folder).exists()


def test_a_folder_and_ports_that_are_given_stay(begin: Begin, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    data = tmp_path / "data"
    for _ in range(2):
        process = begin("--brokers", "1", "--port", str(port), "--data", str(data), "-o", "num.partitions=3")
        assert started(process).groups() == ("1", f"127.0.0.1:{port}", str(data), None)
        process.send_signal(signal.SIGINT)
        assert said(process)[-1] == "stopped"
    assert sorted(path.name for path in data.iterdir()) == ["1", "1.log", "controller", "controller.log"]
    log = (data / "1.log").read_text()
    assert log.count(" INFO barnabas: stopped\n") == 2


def test_a_node_that_ends_by_itself_ends_the_others_and_is_reported(begin: Begin) -> None:
    process = begin("--brokers", "2", "--port", "0")
    folder = Path(started(process).group(3))
    broker, *_ = (pid for pid in pids_of(folder) if cmdline_has(pid, f"{folder}/2"))
    os.kill(broker, signal.SIGKILL)
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "stopping: broker 2 has ended" in out
    assert errors.startswith("barnabas: the broker had ended by itself, by SIGKILL")
    assert not folder.exists()


def cmdline_has(pid: int, argument: str) -> bool:
    return argument.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_nothing_is_left_where_the_command_is_killed(begin: Begin) -> None:
    process = begin("--brokers", "2", "--port", "0")
    folder = Path(started(process).group(3))
    pids = pids_of(folder)
    process.kill()
    for pid in pids:
        until(lambda each=pid: process_is_gone(each), f"{pid} has ended")
    until(lambda: not folder.exists(), "the folder is gone")


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        (["--brokers", "0"], 2, "a cluster has one broker or more, and not 0"),
        (["--brokers", "x"], 2, "argument --brokers: invalid int value: 'x' (--help lists what there is)"),
        (["--port", "65535"], 2, "argument --port: 65535 and the next ones aren't all ports (0 to 65535)"),
        (["-o", "num.partitions"], 2, "-o num.partitions: KEY=VALUE is the form"),
        (
            ["--data", "/dev/null/x"],
            1,
            "the cluster can't be started: [Errno 20] Not a directory: '/dev/null/x'",
        ),
        (["-o", "node.id=3"], 2, "node.id: a cluster sets that itself"),
        (
            ["--port", "0", "-o", "num.partition=3"],
            2,
            "-o: num.partition isn't a setting of a Kafka broker; did you mean num.partitions?",
        ),
    ],
)
def test_a_complaint_is_one_line(begin: Begin, arguments: list[str], status: int, error: str) -> None:
    process = begin(*arguments)
    out, errors = process.communicate(timeout=240)
    assert (out, errors, process.returncode) == ("", f"barnabas: {error}\n", status)


def test_a_port_of_another_program_is_reported(begin: Begin) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = begin("--brokers", "1", "--port", str(port))
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 1
    assert errors == (
        f"barnabas: listener PLAINTEXT: can't listen on 127.0.0.1:{port}: Address already in use; "
        "--port takes another one, --port 0 any that is free\n"
    )


def test_a_plain_start_loads_nothing_of_it() -> None:
    program = """
import sys
sys.argv = ["barnabas", "--version"]
from barnabas.launcher import main
try:
    main()
except SystemExit:
    pass
print(*(name for name in sys.modules if name.startswith("barnabas.")))
"""
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "barnabas.launcher"
