"""A connection without a socket: it leads `support.wire.Client` straight to a node of this process."""

from __future__ import annotations

import asyncio

from broker.network.connection import Connection
from broker.server import Server


class Straight:
    """A connection to a node of this process without a socket. What is sent is served within the same call.

    A blocking client can't wait for an answer that comes later. Use `receive_frame` after the loop has turned, or
    `Client.answer`.
    """

    def __init__(self, node: Server, listener_name: str = "PLAINTEXT", *, host: str = "127.0.0.1") -> None:
        listener = node.listeners[listener_name]
        self._connection = listener._connection()
        self._transport = _Transport(self._connection, (host, 1))
        self._connection.connection_made(self._transport)

    def send(self, data: bytes) -> None:
        left = memoryview(data)
        while left and not self._transport.is_closing():
            room = self._connection.get_buffer(-1)
            size = min(len(room), len(left))
            room[:size] = left[:size]
            left = left[size:]
            self._connection.buffer_updated(size)

    def receive_into(self, view: memoryview, within_s: float) -> int:
        came = self._transport.written
        if not came:
            if self._transport.is_closing():
                return 0
            raise TimeoutError
        size = min(len(view), len(came))
        view[:size] = came[:size]
        del came[:size]
        return size

    def finish_sending(self) -> None:
        if not self._connection.eof_received():
            self._transport.close()

    def close(self) -> None:
        self._transport.close()


class _Transport(asyncio.Transport):
    """Keeps what is written for the reader."""

    def __init__(self, connection: Connection, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer})
        self.written = bytearray()
        self._connection = connection
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    def abort(self) -> None:
        self.written.clear()
        self.close()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass
