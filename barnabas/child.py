"""The broker's process as its parent holds it: started, watched, ended, and nothing left of it.

The two processes share one socket, the *control socket*. The broker writes one line of JSON to it
when it is ready, and one for each that it is asked; otherwise it only learns of its end: whatever ends
this process, SIGKILL included, ends that socket, and the broker then stops and removes its folder if
that is a temporary one. What the broker prints goes to a file without a name, so that nothing has to be
removed for that either, or to one that is given.
"""

from __future__ import annotations

import abc
import contextlib
import json
import os
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
"""How often it's looked whether a process that doesn't answer has stopped itself."""

GUARD = ("/bin/sh", "-c", 'read -r _; kill -CONT "$0"')
"""Of a process that is paused: it goes on when whoever paused it says so, or has died."""


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
    """A node doesn't answer what it is asked: why."""


class Ready(TypedDict):
    """What the broker says of itself, once, when it is ready."""

    bootstrap: str
    listeners: dict[str, str]
    pid: int


class Child:
    """One process at a time, and what belongs to it: control socket, log, temporary folder."""

    __slots__ = (
        "__weakref__",
        "_asked",
        "_control",
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
        """`log_file` is where what it prints goes, behind what is there. `is_temporary`: nothing that it has is wanted
        any more once nobody is there to ask for its end."""
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._log_file = log_file
        self._is_temporary = is_temporary
        self._received = b""  # by the control socket, and not looked at yet
        self._asked = 0
        self.pid = -1
        self.temporary_folder: Path | None = None
        _children.add(self)

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_text(self) -> str:
        """All that every process so far printed."""
        if self._log is None:
            return ""
        # The processes write at the offset that they share with us: read without moving it.
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode("utf-8", errors="replace")

    def spawn(
        self,
        command: Callable[[int], list[str]],
        first: Mapping[str, object] | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        """Start the command made for the descriptor of the control socket's other end. `first` is a question that it
        finds there, whose answer nobody waits for. `inherited`: descriptors that it has too."""
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
                # Ctrl-C in a terminal is for the parent to answer: the broker goes when it lets go.
                start_new_session=True,
            )
        self.pid = self._process.pid

    def wait_until_ready(self, timeout_s: float) -> Ready:
        """Raises BrokerError if it ends instead, or takes longer."""
        deadline_s = time.monotonic() + timeout_s
        said: dict[str, object] = {"id": None}
        while "id" in said:  # an answer to what it was asked before
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
        """What the process answers. Raises QuestionRefusedError, and BrokerError where nothing comes."""
        return self.answer_to(self.begin_to_ask(question))

    def begin_to_ask(self, question: Mapping[str, object]) -> int:
        """For `answer_to`, where others are asked meanwhile."""
        self._asked += 1
        line = json.dumps({"id": self._asked, **question})
        with contextlib.suppress(OSError):  # its end is found where an answer is waited for
            if self._control is not None:
                self._control.settimeout(ANSWER_TIMEOUT_S)
                self._control.sendall(line.encode() + b"\n")
        return self._asked

    def answer_to(self, asked: int) -> Any:
        """Raises as `ask`. Of what was asked before, the answers are passed over."""
        if self._control is None:
            raise BrokerError("the broker doesn't run", self.log_text)
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            left_s = deadline_s - time.monotonic()
            line = self._receive(min(left_s, STOPPED_CHECK_S))
            if line is None:
                if self._guard is None and self.paused:
                    raise BrokerError("the broker has paused itself when it was asked", self.log_text)
                if left_s > STOPPED_CHECK_S:
                    continue
                raise BrokerError(f"the broker has not answered within {ANSWER_TIMEOUT_S:g} s", self.log_text)
            if not line.endswith(b"\n"):
                raise BrokerError("the broker ended when it was asked", self.log_text)
            said = json.loads(line)
            if said.get("id") != asked:
                continue
            if "error" in said:
                raise QuestionRefusedError(said["error"])
            return said["answer"]

    @property
    def paused(self) -> bool:
        """Whether it is between `pause()` and `resume()`, or has stopped itself, as a fault has it do."""
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
        """SIGSTOP; nothing if it is paused."""
        if self._guard is None:
            self._guard = subprocess.Popen(
                [*GUARD, str(self.pid)],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # it may have been killed meanwhile
                start_new_session=True,
            )
            os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT; nothing if it isn't paused."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate()

    def stop(self) -> None:
        """A clean stop. Raises BrokerError if it doesn't end well."""
        self.begin_to_stop(leave=True)
        self.wait_until_ended()

    def begin_to_stop(self, *, leave: bool) -> None:
        """For `wait_until_ended`, where others end meanwhile; nothing where none runs. `leave`: others are to take over
        first what it leads. Raises BrokerError where it had ended by itself."""
        self.resume()
        if self._process is None:
            return
        if self._process.poll() is not None:
            status, exit_status = self._wait(0), self._exit_status
            self.kill()
            raise BrokerError(f"the broker had ended by itself, {status}", self.log_text, exit_status)
        self.begin_to_ask({"ask": "stop", "leave": leave})

    def wait_until_ended(self) -> None:
        """Raises BrokerError if it doesn't end well; nothing where none runs."""
        if self._process is None:
            return
        try:
            deadline_s = time.monotonic() + STOP_TIMEOUT_S
            line: bytes | None = b"\n"
            while line:  # an answer to what it was asked before
                line = self._receive(deadline_s - time.monotonic())
            if line is None:
                raise BrokerError(f"the broker did not stop within {STOP_TIMEOUT_S:g} s", self.log_text)
            status = self._wait(STOP_TIMEOUT_S)
            if self._process.returncode != 0:
                raise BrokerError(f"the broker did not stop well, {status}", self.log_text, self._exit_status)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.resume()
        self.forget()

    def forget(self) -> None:
        """There is no process any more: somebody else may have ended it."""
        if self._control is not None:
            self._control.close()
        self._control = None
        self._process = None

    def end(self) -> None:
        """What happens where nobody asked for an end: the object is gone, or the interpreter exits."""
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
        return line + newline

    @property
    def _exit_status(self) -> int | None:
        return None if self._process is None else self._process.returncode

    def _wait(self, timeout_s: float) -> str:
        """How it ended, in words."""
        assert self._process is not None
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return f"and still runs after {timeout_s:g} s"
        return f"by {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"

    def _disown_after_fork(self) -> None:
        """A copy of the control socket in a forked process would keep the broker from seeing us die."""
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


# --- What starts and stops, in `with` and `async with` --------------------------------------------------------


class InBlocks(abc.ABC):
    """It runs as long as the block, and what it fails to stop with is a note where the block fails, too."""

    @property
    @abc.abstractmethod
    def running(self) -> bool:
        """Whether it was started, and not stopped yet."""

    @abc.abstractmethod
    def start(self) -> Self:
        """Raises BrokerError if it does not start."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop it if it runs, and keep nothing of it. Raises BrokerError if it does not end well."""

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
        """As `with`, and the loop isn't held up meanwhile."""
        import asyncio

        if not self.running:
            starting = asyncio.ensure_future(asyncio.to_thread(self.start))
            try:
                await asyncio.shield(starting)
            except asyncio.CancelledError:  # nobody is there to stop it any more
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


# --- What is asked of nodes, by whatever a broker and a cluster have in common ---------------------------------


class Asked(Protocol):
    """A node."""

    @property
    def paused(self) -> bool:
        """Whether it stands still, so that it answers nothing."""
        ...

    def resume(self) -> None:
        """It goes on."""
        ...

    def ask(self, question: Mapping[str, object]) -> Any:
        """Raises QuestionRefusedError, BrokerError."""
        ...


class OfNodes(abc.ABC):
    """One node or several, of which something is asked."""

    @abc.abstractmethod
    def _decider(self) -> Asked:
        """The node that decides on the metadata."""

    @abc.abstractmethod
    def _named_nodes(self) -> Iterable[tuple[str, Asked]]:
        """All nodes that can be asked, with their names, or one without."""


def said(**words: object) -> dict[str, object]:
    """Those that somebody has said: the others are None."""
    return {name: value for name, value in words.items() if value is not None}
