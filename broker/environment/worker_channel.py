"""The channel between the broker and a process that it has started: messages each way, as a length and pickled data.

It is apart from `workers`, so that such a process needn't load the broker's side.
"""

from __future__ import annotations

import os
import socket
import threading
from queue import SimpleQueue
from typing import Any

_LENGTH_BYTES = 4


def framed(message: object) -> bytes:
    """A message as both ends write it."""
    import pickle  # loaded with the first message: most brokers send none in their first seconds

    data = pickle.dumps(message, protocol=5)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def taken(unread: bytearray) -> list[Any]:
    """Take the whole messages out of the bytes that were read."""
    import pickle

    messages = []
    start = 0
    while len(unread) - start >= _LENGTH_BYTES:
        end = start + _LENGTH_BYTES + int.from_bytes(unread[start : start + _LENGTH_BYTES], "big")
        if end > len(unread):
            break
        messages.append(pickle.loads(memoryview(unread)[start + _LENGTH_BYTES : end]))
        start = end
    del unread[:start]
    return messages


# --- The process's end --------------------------------------------------------------------------------------

_RECEIVED_BYTES = 1 << 18


class WorkerChannel:
    """The worker's end. A thread waits for the broker's messages, so that the process ends with the broker, whatever it
    is doing: else a killed broker would leave it behind."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=0)
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._receive, daemon=True).start()

    def receive(self) -> Any:
        """The next message. Blocks until there is one."""
        return self._inbox.get()

    def send(self, message: object) -> None:
        """Send a message. Blocks until the broker, or the kernel for it, has taken it. If the broker is gone, the
        process ends here."""
        try:
            self._socket.sendall(framed(message))
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)  # the thread below may not have noticed yet

    def _receive(self) -> None:
        unread = bytearray()
        while True:
            try:
                data = self._socket.recv(_RECEIVED_BYTES)
            except OSError:
                data = b""
            if not data:
                os._exit(0)
            unread += data
            for message in taken(unread):
                self._inbox.put(message)
