"""What a process that the broker started has of it: messages each way, a length, then plain data, pickled.

Apart from `workers`, so that such a process needn't load what the broker needs to have it.
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
    import pickle  # with the first message: most brokers send none in their first seconds

    data = pickle.dumps(message, protocol=5)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def taken(unread: bytearray) -> list[Any]:
    """Takes the messages that are whole out of what was read."""
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
    """The worker's end. A thread waits for what the broker says, so that the process ends with it whatever it is at:
    else a broker that was killed would leave it behind."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=0)
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._receive, daemon=True).start()

    def receive(self) -> Any:
        """The next message; waits for it."""
        return self._inbox.get()

    def send(self, message: object) -> None:
        """Waits until the broker takes it, or the kernel for it. Where the broker is gone, the process ends here."""
        try:
            self._socket.sendall(framed(message))
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)  # the thread below may be yet to notice

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
