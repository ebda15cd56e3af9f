"""Processes beside the broker: the messages to and from them, and that no process is left."""

import asyncio
import os
import selectors
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.environment.worker_channel import framed, taken
from broker.environment.workers import LONGEST_WAIT_S, Worker, WorkerProcesses, _WorkerProcess
from tests.support.cycles import nothing_in_a_cycle

ROOT = Path(__file__).parents[2]
ECHO = "tests.support.echo_worker"


class Heard:
    def __init__(self) -> None:
        self.messages: asyncio.Queue[Any] = asyncio.Queue()
        self.gone = asyncio.Event()

    def start(self) -> Worker:
        return WorkerProcesses().start(ECHO, self.messages.put_nowait, self.gone.set)

    async def get(self) -> Any:
        return await asyncio.wait_for(self.messages.get(), 60)

    async def until_gone(self) -> None:
        await asyncio.wait_for(self.gone.wait(), 60)


async def test_messages_of_any_size_go_there_and_back_in_order() -> None:
    heard = Heard()
    worker = heard.start()
    sent = ["a", {"plain": (1, None)}, b"x" * 3_000_000, "z"]
    for message in sent:
        worker.send(message)
    assert [await heard.get() for _ in sent] == sent
    worker.kill_and_wait()
    assert not heard.gone.is_set()


async def test_messages_after_a_failing_one_are_heard() -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()
    failures: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    fault = ZeroDivisionError()

    def received(message: object) -> None:
        heard.put_nowait(message)
        if message in ("a", "b"):
            raise fault

    ours, theirs = socket.socketpair()
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
    with process, theirs:
        worker = _WorkerProcess(process, ours, received, lambda: None)
        theirs.sendall(b"".join(map(framed, "abcd")))  # a single read returns all of these
        assert [await asyncio.wait_for(heard.get(), 60) for _ in range(4)] == ["a", "b", "c", "d"]
        assert failures == [fault, fault]
        worker.kill_and_wait()


async def test_a_process_that_dies_is_reported_once_and_not_heard_after() -> None:
    heard = Heard()
    worker = heard.start()
    worker.send("pid")
    os.kill(await heard.get(), signal.SIGKILL)
    await heard.until_gone()
    worker.send("into the void")
    worker.kill_and_wait()


async def test_a_killed_process_does_nothing_after_its_death_is_reported() -> None:
    heard, gone = Heard(), asyncio.Event()
    worker = heard.start()
    worker.send("pid")
    pid = await heard.get()
    worker.kill(gone.set)
    await asyncio.wait_for(gone.wait(), 60)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not heard.gone.is_set()


@pytest.mark.limit("broker.environment.workers.LONGEST_WAIT_S")
async def test_a_process_that_the_kernel_does_not_release_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Heard().start()

    def never(_process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        assert timeout == LONGEST_WAIT_S
        raise subprocess.TimeoutExpired("worker", timeout)

    with monkeypatch.context() as patched:
        patched.setattr(subprocess.Popen, "wait", never)
        assert not worker.kill_and_wait()
    assert "hasn't ended" in caplog.text
    assert worker.kill_and_wait()


async def test_a_worker_holds_none_of_our_files(tmp_path: Path) -> None:
    with (tmp_path / "held").open("w"):
        heard = Heard()
        worker = heard.start()
        worker.send("descriptors")
        held = await heard.get()
        worker.kill_and_wait()
    assert not any("held" in name for name in held)


def test_a_worker_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.support.echo_worker", "parent"],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    handle = os.pidfd_open(pid) if _lives(pid) else None
    if handle is not None:
        with selectors.DefaultSelector() as selector:
            selector.register(handle, selectors.EVENT_READ)
            assert selector.select(60)
        os.close(handle)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_ends_silently_if_nobody_listens() -> None:
    """The worker may notice this when it sends a message, before it hears that the broker is gone."""
    ours, its = socket.socketpair()
    with ours, its:
        ours.shutdown(socket.SHUT_RD)
        code = "from broker.cleaner.worker import main; main()"
        ended = subprocess.run(
            [sys.executable, "-c", code], stdin=its, cwd=ROOT, capture_output=True, timeout=60, check=False
        )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


async def test_without_a_known_python_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(FileNotFoundError):
        Heard().start()


def test_messages_are_taken_once_they_are_whole() -> None:
    data = framed("a") + framed([1])
    unread = bytearray()
    found = []
    for byte in data:
        unread.append(byte)
        found += taken(unread)
    assert (found, unread) == (["a", [1]], b"")


@pytest.mark.parametrize("by_itself", [True, False])
async def test_a_gone_worker_leaves_no_cycle(by_itself: bool) -> None:
    class Desk(Heard):
        """The owner of the worker, and the receiver of its messages."""

        worker: Worker

        def received(self, message: Any) -> None:
            self.messages.put_nowait(message)

        def ended(self) -> None:
            self.gone.set()

    with nothing_in_a_cycle():
        desk = Desk()
        desk.worker = WorkerProcesses().start(ECHO, desk.received, desk.ended)
        desk.worker.send("pid")
        pid = await desk.get()
        if by_itself:
            os.kill(pid, signal.SIGKILL)
        else:
            desk.worker.kill(desk.ended)
        await desk.until_gone()
        del desk
