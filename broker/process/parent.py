"""The tie to the process that started this broker from Python: one end of a socket pair.

When the broker is ready it writes one line of JSON there; when the other end is closed, by the parent or by its death
of any kind, the broker stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping


class ParentTie:
    """The broker's end. Raises OSError where the descriptor isn't an open socket."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)

    @property
    def gone(self) -> bool:
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def watch(self, on_parent_gone: Callable[[], None]) -> None:
        """Calls once, on the loop, when the parent has closed its end, on purpose or by dying."""
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

        loop.add_reader(self._socket.fileno(), readable)

    def tell_ready(self, bootstrap: str, listeners: Mapping[str, str]) -> None:
        line = json.dumps({"bootstrap": bootstrap, "listeners": dict(listeners), "pid": os.getpid()})
        with contextlib.suppress(OSError):  # it's gone already, as `watch` will notice
            self._socket.sendall(line.encode() + b"\n")

    def close(self) -> None:
        self._socket.close()
