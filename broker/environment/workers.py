"""Work that would hold up the loop for long, done by a process of our own beside the broker.

A thread would do for what waits for the disk. What computes needs another process: a thread has the interpreter for
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

# The child has what this process can import, and nothing of what an environment variable or a .pth file would add.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); __import__(sys.argv[2], fromlist=['x']).main()"
)


class Worker(Protocol):
    """One process."""

    def send(self, message: object) -> None:
        """The message, of plain data, goes there as soon as it takes it."""
        ...

    def kill(self, gone: Callable[[], None]) -> None:
        """End it at once, whatever it does; nothing is heard of it any more. `gone` is called when it has done its
        last, in a later turn."""
        ...

    def kill_and_wait(self) -> bool:
        """End it. Whether it has done its last when the call returns, after some milliseconds; False, after some
        seconds, where the kernel doesn't let go of it, as with a disk that doesn't answer."""
        ...


class Workers(Protocol):
    """Where processes are to be had."""

    def start(self, module: str, received: Callable[[Any], None], ended: Callable[[], None]) -> Worker:
        """A process that runs `main()` of the module, a socket to us being its standard input.

        `received` is called with each message from there, `ended` once it is gone without having been killed by us.
        It ends when we do. Raises `OSError`.
        """
        ...


class WorkerProcesses:
    """The machine's own."""

    __slots__ = ()

    def start(self, module: str, received: Callable[[Any], None], ended: Callable[[], None]) -> Worker:
        """With the Python that runs this, in a millisecond or two."""
        if not sys.executable:
            raise FileNotFoundError("it isn't known which Python runs this")
        ours, theirs = socket.socketpair()
        try:
            # a session of its own: what a terminal tells the broker isn't meant for it
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
    """Who hears of a process that we have done with."""


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
            self._unsent.clear()  # it has gone, which reading tells
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
            self._process.kill()  # it may be there without its end of the socket
            self._reap()
            return
        self._unread += data
        self._unheard += taken(self._unread)
        self._hand_on()

    def _hand_on(self) -> None:
        """What is read: where the loop is told that one message failed, those behind it are heard all the same."""
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
            log.error("process %d was killed, and isn't gone after %d s", self._process.pid, LONGEST_WAIT_S)
            return False
        return True

    def _close(self) -> None:
        self._closed = True
        self._received = self._ended = _nobody  # who holds this
        self._unheard.clear()
        fd = self._socket.fileno()
        self._loop.remove_reader(fd)
        self._loop.remove_writer(fd)
        self._socket.close()

    def _reap(self) -> None:
        """Until somebody asks how it ended the kernel keeps it."""
        if self._process.poll() is None:
            self._loop.call_later(_REAP_S, self._reap)
        elif self._gone is not None:
            gone, self._gone = self._gone, None
            gone()
