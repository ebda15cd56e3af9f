"""The tie to the process that started this broker from Python: one end of a socket pair.

When the broker is ready it writes one line of JSON there; when the other end is closed, by a death of any kind of the
parent's, the broker stops. Meanwhile the parent may ask, a line each (`broker.process.control`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping

LONGEST_LINE_BYTES = 65_536
"""Of a question, with its end. What is longer isn't one, and is passed over."""


class ParentTie:
    """The broker's end. Raises OSError where the descriptor isn't an open socket."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self._line = bytearray()  # as far as it came

    @property
    def gone(self) -> bool:
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def watch(self, on_parent_gone: Callable[[], None], asked: Callable[[bytes], None]) -> None:
        """`asked` is called on the loop with each line that comes, without its end; `on_parent_gone` once, when the
        parent's end is closed, since it has died. What the parent has said before is heard in this call."""
        loop = asyncio.get_running_loop()

        def readable() -> None:
            try:
                data = self._socket.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                loop.remove_reader(self._socket.fileno())
                on_parent_gone()
                return
            for line in self._lines(data):
                asked(line)

        loop.add_reader(self._socket.fileno(), readable)
        readable()

    def _lines(self, data: bytes) -> Iterator[bytes]:
        """Those that have come whole with the data. One that is too long comes as far as it may, which is no JSON."""
        *whole, rest = data.split(b"\n")
        for piece in whole:
            line = bytes(self._line + piece)[:LONGEST_LINE_BYTES]
            self._line.clear()
            yield line
        self._line += rest[: max(LONGEST_LINE_BYTES - len(self._line), 0)]

    def tell_ready(self, bootstrap: str, listeners: Mapping[str, str]) -> None:
        self.tell(json.dumps({"bootstrap": bootstrap, "listeners": dict(listeners), "pid": os.getpid()}))

    def tell(self, line: str) -> None:
        """A line, without its end."""
        with contextlib.suppress(OSError):  # it's gone already, as `watch` will notice
            self._socket.sendall(line.encode() + b"\n")

    def close(self) -> None:
        self._socket.close()
