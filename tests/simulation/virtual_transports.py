"""The two ends of a connection through memory: a broker's transport, a test's client, a node that asks another one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.history import short
from tests.simulation.virtual_links import Link

if TYPE_CHECKING:
    from tests.simulation.virtual_network import NodeNetwork, VirtualBound, VirtualNetwork

CLIENTS = "clients"
"""The host of all test clients."""
CLIENT_ADDRESS = "127.0.0.1"
LOW_WATER_DIVISOR = 4


class ServerTransport(asyncio.Transport):
    """What the broker's protocol writes to and reads from."""

    def __init__(self, node: NodeNetwork, network: VirtualNetwork, client: ClientConnection) -> None:
        super().__init__({"peername": (CLIENT_ADDRESS, client.number)})
        self.client = client
        self.host = node.host
        self._node = node
        self._network = network
        self._scheduler = node.scheduler
        self._protocol: Any = None
        self._arrived = bytearray()
        self._reading = True
        self._closing = False
        self._lost = False
        self._high = 64 * 1024
        self._unread = 0  # bytes in flight to the client
        self._writing_paused = False
        self._next_arrival_s = 0.0

    def begin(self, protocol: asyncio.BufferedProtocol) -> None:
        self._protocol = protocol
        self.client.attach(self)
        self._call(protocol.connection_made, self)

    def _call(self, callback: Callable[..., object], *args: Any) -> None:
        """As in asyncio's transports, an error of a protocol ends its connection."""
        try:
            callback(*args)
        except Exception as error:
            self.abort()
            self._scheduler.failed(error, False)

    # ---- from the client

    def came(self, what: str, args: tuple[Any, ...]) -> None:
        """`what` is the method below to call once the node has its turn."""
        self._scheduler.call_soon(getattr(self, what), *args)

    def arrive(self, data: bytes) -> None:
        if not self._closing:
            self._arrived += data
            self._feed()

    def _feed(self) -> None:
        while self._arrived and self._reading and not self._closing:
            self._call(self._feed_once)

    def _feed_once(self) -> None:
        room = self._protocol.get_buffer(-1)
        count = min(len(room), len(self._arrived))
        room[:count] = self._arrived[:count]
        del self._arrived[:count]
        self._protocol.buffer_updated(count)

    def end_of_stream(self) -> None:
        if not self._closing:
            self._call(self._end_of_stream)

    def _end_of_stream(self) -> None:
        if not self._protocol.eof_received():
            self.close()

    def reset(self) -> None:
        if not self._lost:
            self._closing = True
            self._lose(ConnectionResetError("by the client"))

    # ---- asyncio's side

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._scheduler.call_soon(self._feed)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high = high
        self._pause_if_full()

    def get_write_buffer_size(self) -> int:
        return self._unread

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._lost or self._scheduler.dead:
            return
        for piece in self._network.pieces(bytes(data)):
            self._unread += len(piece)
            self._at_client(self._read_by_client, piece)
        self._pause_if_full()

    def _pause_if_full(self) -> None:
        if self._unread > self._high and not self._writing_paused:
            self._writing_paused = True
            self._call(self._protocol.pause_writing)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def _at_client(self, callback: Callable[..., object], *args: Any) -> None:
        """Call it in the order of the calls, after a delay."""
        links, link = self._network.links, Link(self.host, self.client.host)
        arrival_s = self._network.loop.time() + links.delay_s(link)
        self._next_arrival_s = max(self._next_arrival_s + 1e-6, arrival_s)
        links.carry(link, self._next_arrival_s, callback, *args)

    def _read_by_client(self, piece: bytes) -> None:
        self.client.arrive(piece)
        if self._scheduler.dead or self._lost:
            return
        self._unread -= len(piece)
        if self._writing_paused and self._unread <= self._high // LOW_WATER_DIVISOR:
            self._writing_paused = False
            self._scheduler.call_soon(self._call, self._protocol.resume_writing)
        if self._closing and not self._unread:
            self._lose(None)

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._unread:
            self._lose(None)

    def abort(self) -> None:
        self._closing = True
        if not self._lost:
            self._lose(None)

    def break_off(self) -> None:
        """End it at both ends, as something in between would. What is in flight doesn't arrive."""
        self.client.lose(ConnectionResetError("broken off"))
        self.came("reset", ())

    def tell_client_of_end(self) -> None:
        self._at_client(self.client.lose, ConnectionResetError("by the broker"))

    def _lose(self, error: Exception | None) -> None:
        self._lost = True
        self._node.transports.pop(self, None)
        self.client.let_go()
        self.tell_client_of_end()
        self._scheduler.call_soon(self._call, self._protocol.connection_lost, error)


class ClientConnection:
    """A client's end: it sends and receives whole frames."""

    host = CLIENTS

    def __init__(self, network: VirtualNetwork, number: int) -> None:
        self.number = number
        self.is_let_go = False
        """True when nothing that was sent will arrive any more."""
        self._network = network
        self._transport: ServerTransport | None = None
        self._unsent: list[tuple[str, bytes]] = []
        self._data = bytearray()
        self._frames: deque[bytes] = deque()
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._next_arrival_s = 0.0

    @property
    def has_ended(self) -> bool:
        """True if it was closed at either end. What came before may still be received."""
        return self._error is not None

    def attach(self, transport: ServerTransport) -> None:
        """Attach the transport that the broker accepted."""
        self._transport = transport
        unsent, self._unsent = self._unsent, []
        for what, data in unsent:
            self._at_broker(what, data)

    def send(self, frame: bytes) -> None:
        """Send the bytes of one frame, including its size. Raises ConnectionError if the connection has ended."""
        if self._error is not None:
            raise self._error
        for piece in self._network.pieces(frame):
            self._to_broker("arrive", piece)

    def close(self, *, reset: bool = False) -> None:
        if self._error is None:
            self._error = ConnectionAbortedError("closed here")
            self._to_broker("reset" if reset else "end_of_stream", b"")

    def let_go(self) -> None:
        """Note that the other end is gone."""
        self.is_let_go = True

    def _to_broker(self, what: str, data: bytes) -> None:
        if self._transport is None:
            self._unsent.append((what, data))
        else:
            self._at_broker(what, data)

    def _at_broker(self, what: str, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        links, link = self._network.links, Link(self.host, transport.host)
        arrival_s = self._network.loop.time() + links.delay_s(link)
        self._next_arrival_s = max(self._next_arrival_s + 1e-6, arrival_s)
        args = (data,) if what == "arrive" else ()
        links.carry(link, self._next_arrival_s, transport.came, what, args)

    def arrive(self, data: bytes) -> None:
        if self._error is not None:
            return
        self._data += data
        while len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4], "big")
            if len(self._data) < end:
                break
            self._frames.append(bytes(self._data[4:end]))
            del self._data[:end]
        self._wake()

    def lose(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def receive(self) -> bytes:
        """Return the next frame, without its size. Raises ConnectionError if none comes any more."""
        while not self._frames:
            if self._error is not None:
                raise self._error
            self._waiter = self._network.loop.create_future()
            await self._waiter
        frame = self._frames.popleft()
        self._network.history.note("network", f"to client {self.number} {short(frame)}")
        return frame


class OutgoingConnection(ClientConnection):
    """A node's end of a connection to another node. Its protocol gets what arrives, and writes to `_Outgoing`."""

    def __init__(
        self, network: VirtualNetwork, node: NodeNetwork, open_ones: dict[OutgoingConnection, None]
    ) -> None:
        super().__init__(network, network.next_client())
        self.host = node.host
        self._scheduler = node.scheduler
        self._open = open_ones
        self._protocol: Any = None

    def begin(self, protocol: asyncio.BaseProtocol, bound: VirtualBound) -> None:
        self._protocol = protocol
        self._open[self] = None
        bound.come(self)
        protocol.connection_made(_Outgoing(self))

    def arrive(self, data: bytes) -> None:
        self._scheduler.call_soon(self._feed, data)

    def _feed(self, data: bytes) -> None:
        left = memoryview(data)
        while left and self._error is None:
            room = self._protocol.get_buffer(-1)
            count = min(len(room), len(left))
            room[:count] = left[:count]
            left = left[count:]
            self._protocol.buffer_updated(count)

    def lose(self, error: Exception) -> None:
        self._scheduler.call_soon(self._lose, error)

    def _lose(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            self._lost(error)

    def close(self, *, reset: bool = False) -> None:
        if self._error is None:
            super().close(reset=reset)
            self._lost(None)

    def _lost(self, error: Exception | None) -> None:
        self._open.pop(self, None)
        self._scheduler.call_soon(self._protocol.connection_lost, error)


class _Outgoing(asyncio.Transport):
    """Nobody reads slowly here: a node's requests are small."""

    def __init__(self, connection: OutgoingConnection) -> None:
        super().__init__()
        self._connection = connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_closing():
            self._connection.send(bytes(data))

    def is_closing(self) -> bool:
        return self._connection._error is not None

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._connection.close(reset=True)
