"""The broker's process as its parent sees it: starts it, watches it, ends it and cleans up after it.

The two processes share one socket, the *control socket*. The broker writes one line of JSON to it when it is ready, and
one for each question. When this process ends in any way, SIGKILL included, the socket ends too. The broker then stops,
and removes its folder if that is temporary. The broker's output goes to a file without a name, which nobody has to
remove, or to a given file.
"""

from __future__ import annotations

import abc
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self, TypedDict, cast

STOP_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 30.0
LOG_TAIL_LINES = 30

STOPPED_CHECK_S = 0.05
"""How often to check whether a process that doesn't answer has stopped itself."""

DYING_S = 1.0
"""How long a process may take from the end of its control socket to its own end."""

CRASHES = b'{"id": null, "crashes": true}'
"""The last line of a process that a fault crashes (`broker/process/control.py`)."""

GUARD = ("/bin/sh", "-c", 'read -r _; kill -CONT "$0"')
"""The guard of a paused process. It resumes the process when the one that paused it says so, or has died."""


class BrokerError(Exception):
    """The broker did not start, or ended by itself.

    `log` is all that it printed; the message quotes its end. `exit_status` is that of its process, if that ended: 2
    means a mistake in what it was given, such as a setting that Kafka doesn't have.
    """

    def __init__(self, message: str, log: str = "", exit_status: int | None = None) -> None:
        tail = "\n".join(log.splitlines()[-LOG_TAIL_LINES:])
        super().__init__(f"{message}; it printed:\n{tail}" if tail else message)
        self.log = log
        self.exit_status = exit_status


class QuestionRefusedError(Exception):
    """A node refuses a question. The text says why."""


class Ready(TypedDict):
    """The broker's one message when it is ready."""

    bootstrap: str
    listeners: dict[str, str]
    pid: int


class Child:
    """One process at a time and all that belongs to it: control socket, log and temporary folder."""

    __slots__ = (
        "__weakref__",
        "_asked",
        "_control",
        "_crashed",
        "_guard",
        "_is_temporary",
        "_log",
        "_log_file",
        "_process",
        "_received",
        "pid",
        "temporary_folder",
    )

    def __init__(self, log_file: Path | None = None, *, is_temporary: bool = False) -> None:
        """`log_file` receives the process's output, appended to what the file holds. `is_temporary`: once nobody is
        left to ask for its end, nothing of it is worth keeping."""
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._log_file = log_file
        self._is_temporary = is_temporary
        self._received = b""  # bytes from the control socket that nobody has looked at yet
        self._asked = 0
        self._crashed: set[int] = set()
        """Ids of the processes that a fault has crashed."""
        self.pid = -1
        self.temporary_folder: Path | None = None
        _children.add(self)

    @property
    def runs(self) -> bool:
        return self._process is not None and not self._has_ended()

    def _has_ended(self) -> bool:
        """True if the process has ended. A process that dies closes its control socket a moment before it has an exit
        status; this waits for that."""
        assert self._process is not None
        if self._process.poll() is None and self._has_hung_up():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(DYING_S)
        return self._process.poll() is not None

    def _has_hung_up(self) -> bool:
        """True if its end of the control socket is closed, whatever is still to be read."""
        if self._control is None:
            return False
        hang_up = select.poll()
        hang_up.register(self._control, 0)
        return any(events & select.POLLHUP for _, events in hang_up.poll(0))

    def has_crashed(self, pid: int) -> bool:
        """True if a fault has crashed its process with this id. Whoever asks expects that, so `stop()` doesn't take it
        for a failure any more."""
        if self.pid == pid and self._process is not None and self._has_ended():
            self._hear_last()
            if pid in self._crashed:
                self.kill()
        return pid in self._crashed

    def _hear_last(self) -> None:
        """Read what a process that has ended still said."""
        while self._control is not None and self._receive(0):
            pass

    @property
    def log_text(self) -> str:
        """The output of all its processes so far."""
        if self._log is None:
            return ""
        # The processes write at the file offset that they share with us, so read without moving it.
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode("utf-8", errors="replace")

    def spawn(
        self,
        command: Callable[[int], list[str]],
        first: Mapping[str, object] | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        """Start the command made for the descriptor of the control socket's other end. `first` is a question that the
        process finds there; nobody waits for its answer. `inherited` are further descriptors that it gets."""
        if self._log is None:
            if self._log_file is None:
                self._log = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed in end())
            else:
                self._log = open(self._log_file, "a+b", buffering=0)  # noqa: SIM115
        self._control, theirs = socket.socketpair()
        self._received = b""
        with theirs:
            if first is not None:
                self.begin_to_ask(first)
            self._process = subprocess.Popen(
                command(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno(), *inherited],
                # In a terminal, Ctrl-C is for the parent. The broker ends when the parent closes the socket.
                start_new_session=True,
            )
        self.pid = self._process.pid

    def wait_until_ready(self, timeout_s: float) -> Ready:
        """Wait for its message and return it. Raises BrokerError if the process ends instead, or takes longer."""
        deadline_s = time.monotonic() + timeout_s
        said: dict[str, object] = {"id": None}
        while "id" in said:  # skip answers to earlier questions
            line = self._receive(deadline_s - time.monotonic())
            if line is None:
                raise BrokerError(f"the broker was not ready within {timeout_s:g} s", self.log_text)
            if not line.endswith(b"\n"):
                status = self._wait(STOP_TIMEOUT_S)
                raise BrokerError(
                    f"the broker ended before it was ready, {status}", self.log_text, self._exit_status
                )
            said = json.loads(line)
        return cast("Ready", said)

    def ask(self, question: Mapping[str, object]) -> Any:
        """Ask and return the answer. Raises QuestionRefusedError, and BrokerError if no answer comes."""
        return self.answer_to(self.begin_to_ask(question))

    def begin_to_ask(self, question: Mapping[str, object]) -> int:
        """Send a question and return its number for `answer_to`, so that several nodes can be asked at once."""
        self._asked += 1
        line = json.dumps({"id": self._asked, **question})
        with contextlib.suppress(OSError):  # `answer_to` finds out that it has ended
            if self._control is not None:
                self._control.settimeout(ANSWER_TIMEOUT_S)
                self._control.sendall(line.encode() + b"\n")
        return self._asked

    def answer_to(self, asked: int) -> Any:
        """Return the answer to the question with this number, skipping answers to earlier ones. Raises what `ask`
        raises."""
        if self._control is None:
            raise BrokerError("the broker doesn't run", self.log_text)
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            left_s = deadline_s - time.monotonic()
            line = self._receive(min(left_s, STOPPED_CHECK_S))
            if line is None:
                if self._guard is None and self.paused:
                    raise BrokerError("the broker paused itself when it was asked", self.log_text)
                if left_s > STOPPED_CHECK_S:
                    continue
                raise BrokerError(f"the broker has not answered within {ANSWER_TIMEOUT_S:g} s", self.log_text)
            if not line.endswith(b"\n"):
                self._has_ended()  # so that `runs` is False from now on
                raise BrokerError("the broker ended when it was asked", self.log_text)
            said = json.loads(line)
            if said.get("id") != asked:
                continue
            if "error" in said:
                raise QuestionRefusedError(said["error"])
            return said["answer"]

    @property
    def paused(self) -> bool:
        """True between `pause()` and `resume()`, or if the process has stopped itself because of a fault."""
        if self._guard is None and self._has_stopped():
            self.pause()
        return self._guard is not None

    def _has_stopped(self) -> bool:
        if self._process is None or self._process.returncode is not None:
            return False
        with contextlib.suppress(ChildProcessError):  # it has ended
            stopped = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, stopped) is not None
        return False

    def pause(self) -> None:
        """Send SIGSTOP. Does nothing if it is paused."""
        if self._guard is None:
            self._guard = subprocess.Popen(
                [*GUARD, str(self.pid)],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # it may have been killed in the meantime
                start_new_session=True,
            )
            os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT. Does nothing if it isn't paused."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate()

    def stop(self) -> None:
        """Stop it cleanly. Raises BrokerError if it doesn't end well."""
        self.begin_to_stop(leave=True)
        self.wait_until_ended()

    def begin_to_stop(self, *, leave: bool) -> None:
        """Ask it to stop; `wait_until_ended` waits, so that several can stop at once. Does nothing if none runs.
        `leave`: other brokers first take over the partitions that it leads. Raises BrokerError if it had ended by
        itself."""
        self.resume()
        if self._process is None:
            return
        if self._has_ended():
            status, exit_status = self._wait(0), self._exit_status
            self.kill()
            raise BrokerError(f"the broker had ended by itself, {status}", self.log_text, exit_status)
        self.begin_to_ask({"ask": "stop", "leave": leave})

    def wait_until_ended(self) -> None:
        """Wait for its end. Does nothing if none runs. Raises BrokerError if it doesn't end well."""
        if self._process is None:
            return
        try:
            deadline_s = time.monotonic() + STOP_TIMEOUT_S
            line: bytes | None = b"\n"
            while line:  # skip answers to earlier questions
                line = self._receive(deadline_s - time.monotonic())
            if line is None:
                raise BrokerError(f"the broker did not stop within {STOP_TIMEOUT_S:g} s", self.log_text)
            status = self._wait(STOP_TIMEOUT_S)
            if self._process.returncode != 0:
                raise BrokerError(f"the broker did not stop well, {status}", self.log_text, self._exit_status)
        finally:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._hear_last()
        self.resume()
        self.forget()

    def forget(self) -> None:
        """Forget the process, which may have been ended by somebody else."""
        if self._control is not None:
            self._control.close()
        self._control = None
        self._process = None

    def end(self) -> None:
        """End it although nobody asked for that: the object is gone, or the interpreter exits."""
        if self.temporary_folder is None and not self._is_temporary:
            with contextlib.suppress(BrokerError):
                self.stop()
        self.kill()
        self.remove_temporary_folder()
        if self._log is not None:
            self._log.close()

    def remove_temporary_folder(self) -> None:
        if self.temporary_folder is not None:
            shutil.rmtree(self.temporary_folder, ignore_errors=True)
            self.temporary_folder = None

    def _receive(self, timeout_s: float) -> bytes | None:
        """The bytes up to a newline or the end of the control socket; None if neither comes in time."""
        assert self._control is not None
        deadline_s = time.monotonic() + timeout_s
        while b"\n" not in self._received:
            self._control.settimeout(max(deadline_s - time.monotonic(), 0.001))
            try:
                piece = self._control.recv(65536)
            except TimeoutError:
                return None
            except ConnectionError:
                piece = b""
            if not piece:
                break
            self._received += piece
        line, newline, self._received = self._received.partition(b"\n")
        if line == CRASHES:
            self._crashed.add(self.pid)
        return line + newline

    @property
    def _exit_status(self) -> int | None:
        return None if self._process is None else self._process.returncode

    def _wait(self, timeout_s: float) -> str:
        """Wait, and return in words how it ended."""
        assert self._process is not None
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return f"and still runs after {timeout_s:g} s"
        return f"by {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"

    def _disown_after_fork(self) -> None:
        """In a forked process, close the copy of the control socket. It would keep the broker from noticing our
        death."""
        if self._process is not None:
            self._process.returncode = 0  # not a child of this process: nothing to wait for
        if self._guard is not None:
            self._guard.returncode = 0
            if self._guard.stdin is not None:
                self._guard.stdin.close()
            self._guard = None
        self.forget()
        self.temporary_folder = None


_children: weakref.WeakSet[Child] = weakref.WeakSet()


def _disown_all() -> None:
    for child in list(_children):
        child._disown_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


# --- Starting and stopping in `with` and `async with` -------------------------------------------------------


class InBlocks(abc.ABC):
    """Something that runs as long as a `with` block. If the block fails and stopping fails too, the second error
    becomes a note on the first."""

    @property
    @abc.abstractmethod
    def running(self) -> bool:
        """True if it was started and isn't stopped yet."""

    @abc.abstractmethod
    def start(self) -> Self:
        """Start it. Raises BrokerError if it doesn't start."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop it if it runs, and keep nothing of it. Raises BrokerError if it doesn't end well."""

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BrokerError as end:
            if error is None:
                raise
            error.add_note(str(end))

    async def __aenter__(self) -> Self:
        """Like `with`, without blocking the event loop."""
        import asyncio

        if not self.running:
            starting = asyncio.ensure_future(asyncio.to_thread(self.start))
            try:
                await asyncio.shield(starting)
            except asyncio.CancelledError:  # nobody is left to stop it
                with contextlib.suppress(BrokerError):
                    await starting
                    await asyncio.to_thread(self.close)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.shield(asyncio.to_thread(self.__exit__, kind, error, trace))


# --- Asking nodes, for whatever a broker and a cluster have in common ----------------------------------------


class Asked(Protocol):
    """A node that answers questions."""

    @property
    def pid(self) -> int:
        """The process id of the node that runs now, or ran last."""
        ...

    def has_crashed(self, pid: int) -> bool:
        """True if a fault has crashed its process with this id."""
        ...

    @property
    def paused(self) -> bool:
        """True if it is paused and answers nothing."""
        ...

    def resume(self) -> None:
        """Resume it."""
        ...

    def ask(self, question: Mapping[str, object]) -> Any:
        """Ask and return the answer. Raises QuestionRefusedError, BrokerError."""
        ...


class OfNodes(abc.ABC):
    """One node or several that can be asked."""

    @abc.abstractmethod
    def _decider(self) -> Asked:
        """The node that decides on the metadata."""

    @abc.abstractmethod
    def _named_nodes(self) -> Iterable[tuple[str, Asked]]:
        """All nodes that can be asked, with their names, or one without."""


def said(**words: object) -> dict[str, object]:
    """Return the arguments that aren't None."""
    return {name: value for name, value in words.items() if value is not None}
