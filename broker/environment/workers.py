"""Work that would hold up the loop for long, done by a process beside the broker.

A thread is enough for work that waits for the disk. Computing needs another process: a thread holds the interpreter for
some milliseconds at a time, and each turn of the loop would wait for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from broker.environment.worker_channel import framed, taken

log = logging.getLogger("barnabas.workers")

_RECEIVED_BYTES = 1 << 18
_REAP_S = 0.01
LONGEST_WAIT_S = 5.0

# The child can import what this process can, and nothing that an environment variable or a .pth file would add.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); __import__(sys.argv[2], fromlist=['x']).main()"
)


class Worker(Protocol):
    """One process."""

    def send(self, message: object) -> None:
        """Send a message of plain data, as soon as the process takes it."""
        ...

    def kill(self, gone: Callable[[], None]) -> None:
        """Kill the process. No messages of it are reported any more. `gone` is called in a later turn, once it has
        ended."""
        ...

    def kill_and_wait(self) -> bool:
        """Kill the process, and wait for its end, which takes some milliseconds. Returns False, after some seconds, if
        the kernel doesn't end it, as with a disk that doesn't answer."""
        ...


class Workers(Protocol):
    """Starts processes."""

    def start(self, module: str, received: Callable[[Any], None], ended: Callable[[], None]) -> Worker:
        """Start a process that runs `main()` of the module. Its standard input is a socket to the broker.

        `received` is called with each message of the process, `ended` once it has ended without being killed here. It
        ends when the broker does. Raises OSError.
        """
        ...


class WorkerProcesses:
    """The machine's processes."""

    __slots__ = ()

    def start(self, module: str, received: Callable[[Any], None], ended: Callable[[], None]) -> Worker:
        """Start the process with the Python that runs this. That takes a millisecond or two."""
        if not sys.executable:
            raise FileNotFoundError("the Python that runs this isn't known (sys.executable)")
        ours, theirs = socket.socketpair()
        try:
            # It has a session of its own, so that it doesn't get the terminal's signals to the broker.
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _START, json.dumps(sys.path), module],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return _WorkerProcess(process, ours, received, ended)


def _nobody(*_: object) -> None:
    """The callback of a process that is over: it does nothing."""


class _WorkerProcess:
    def __init__(
        self,
        process: subprocess.Popen[bytes],
        ours: socket.socket,
        received: Callable[[Any], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._socket = ours
        self._received = received
        self._ended = ended
        self._unread = bytearray()
        self._unheard: deque[Any] = deque()  # messages
        self._unsent = bytearray()
        self._closed = False
        self._gone: Callable[[], None] | None = None
        ours.setblocking(False)
        self._loop.add_reader(ours.fileno(), self._readable)

    def send(self, message: object) -> None:
        if self._closed:
            return
        was_empty = not self._unsent
        self._unsent += framed(message)
        if was_empty:
            self._write()
            if self._unsent and not self._closed:
                self._loop.add_writer(self._socket.fileno(), self._writable)

    def _writable(self) -> None:
        self._write()
        if not self._unsent and not self._closed:
            self._loop.remove_writer(self._socket.fileno())

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()  # the process is gone, as reading will show
            return
        del self._unsent[:sent]

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_RECEIVED_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._gone = self._ended
            self._close()
            self._process.kill()  # it may still run without its end of the socket
            self._reap()
            return
        self._unread += data
        self._unheard += taken(self._unread)
        self._hand_on()

    def _hand_on(self) -> None:
        """Report the messages. If one fails, the error goes to the loop, and later messages are reported all the
        same."""
        while self._unheard:
            message = self._unheard.popleft()
            try:
                self._received(message)
            except BaseException:
                self._loop.call_soon(self._hand_on)
                raise

    def kill(self, gone: Callable[[], None]) -> None:
        if not self._closed:
            self._close()
            self._process.kill()
        self._gone = gone
        self._loop.call_soon(self._reap)

    def kill_and_wait(self) -> bool:
        if not self._closed:
            self._close()
        self._gone = None
        self._process.kill()
        try:
            self._process.wait(LONGEST_WAIT_S)
        except subprocess.TimeoutExpired:
            log.error("process %d was killed, but hasn't ended after %d s", self._process.pid, LONGEST_WAIT_S)
            return False
        return True

    def _close(self) -> None:
        self._closed = True
        self._received = self._ended = _nobody  # drops references to the owner
        self._unheard.clear()
        fd = self._socket.fileno()
        self._loop.remove_reader(fd)
        self._loop.remove_writer(fd)
        self._socket.close()

    def _reap(self) -> None:
        """Ask how the process ended; until then the kernel keeps it."""
        if self._process.poll() is None:
            self._loop.call_later(_REAP_S, self._reap)
        elif self._gone is not None:
            gone, self._gone = self._gone, None
            gone()
