"""Connections through memory: the broker's real `Connection` on one side, a client of a test on the other.

Bytes arrive in order, after a delay and in pieces that luck chooses. A connection may end at any byte.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from broker.environment.network import Bound, MakeProtocol
from tests.simulation.history import History
from tests.simulation.virtual_scheduler import NodeScheduler
from tests.simulation.virtual_transports import ClientConnection, OutgoingConnection, ServerTransport

EPHEMERAL_PORT = 40_000
LONGEST_DELAY_S = 0.4


class VirtualNetwork:
    """All that is connected."""

    def __init__(self, loop: asyncio.AbstractEventLoop, luck: random.Random, history: History) -> None:
        self.loop = loop
        self.luck = luck
        self.history = history
        self.bound: dict[int, VirtualBound] = {}
        self.is_calm = False
        """Whether nothing is lost or late any more."""
        self._last_client = EPHEMERAL_PORT

    def delay_s(self) -> float:
        if self.is_calm or self.luck.random() < 0.97:
            return self.luck.uniform(0.0001, 0.004)
        return self.luck.uniform(0.004, LONGEST_DELAY_S)

    def pieces(self, data: bytes) -> list[bytes]:
        if self.luck.random() < 0.7 or len(data) < 2:
            return [data]
        cut = self.luck.randrange(1, len(data))
        return [data[:cut], *self.pieces(data[cut:])]

    async def connect(self, port: int) -> ClientConnection:
        """Raises ConnectionRefusedError."""
        await asyncio.sleep(self.delay_s())
        bound = self.bound.get(port)
        if bound is None:
            raise ConnectionRefusedError(port)
        client = ClientConnection(self, self.next_client())
        bound.come(client)
        return client

    def next_client(self) -> int:
        """The port that the next one comes from."""
        self._last_client += 1
        return self._last_client

    def of_node(self, scheduler: NodeScheduler) -> NodeNetwork:
        return NodeNetwork(self, scheduler)


class NodeNetwork:
    """The network as one run of a node sees it."""

    def __init__(self, network: VirtualNetwork, scheduler: NodeScheduler) -> None:
        self._network = network
        self._scheduler = scheduler
        self._bound: list[VirtualBound] = []
        self.transports: dict[ServerTransport, None] = {}
        self._outgoing: dict[OutgoingConnection, None] = {}

    def bind(self, host: str, port: int, backlog: int) -> Bound:
        if port in self._network.bound:
            raise OSError(98, "Address already in use")
        bound = VirtualBound(self, self._network, port)
        self._network.bound[port] = bound
        self._bound.append(bound)
        return bound

    def connect(
        self, host: str, port: int, make_protocol: MakeProtocol, failed: Callable[[OSError], None]
    ) -> None:
        """To whatever node has the port: hosts are one here."""
        delay_s = self._network.delay_s()
        self._scheduler.call_later(delay_s, self._connected, port, make_protocol, failed)

    def _connected(self, port: int, make_protocol: MakeProtocol, failed: Callable[[OSError], None]) -> None:
        bound = self._network.bound.get(port)
        if bound is None:
            failed(ConnectionRefusedError(111, f"Connect call failed, port {port}"))
            return
        connection = OutgoingConnection(self._network, self._scheduler, self._outgoing)
        connection.begin(make_protocol(), bound)

    def accept(self, client: ClientConnection, make_protocol: MakeProtocol) -> None:
        transport = ServerTransport(self, self._network, self._scheduler, client)
        self.transports[transport] = None
        transport.begin(make_protocol())

    def die(self) -> None:
        """The machine is gone: who is connected finds out."""
        for bound in self._bound:
            bound.close()
        for transport in [*self.transports]:
            transport.client.lose(ConnectionResetError("the broker is gone"))
        self.transports.clear()
        self._end_outgoing(reset=True)

    def end(self) -> None:
        """The process has come to its end: who is connected finds out behind what was sent to it."""
        for transport in [*self.transports]:
            transport.tell_client_of_end()
        self.transports.clear()
        self._end_outgoing(reset=False)

    def _end_outgoing(self, *, reset: bool) -> None:
        for connection in [*self._outgoing]:
            connection.close(reset=reset)
        self._outgoing.clear()


class VirtualBound:
    def __init__(self, node: NodeNetwork, network: VirtualNetwork, port: int) -> None:
        self.port = port
        self._node = node
        self._network = network
        self._make_protocol: MakeProtocol | None = None
        self._waiting: list[ClientConnection] = []

    async def serve(self, make_protocol: MakeProtocol) -> None:
        self._make_protocol = make_protocol
        for client in self._waiting:
            self._node.accept(client, make_protocol)
        self._waiting.clear()

    def come(self, client: ClientConnection) -> None:
        if self._make_protocol is None:
            self._waiting.append(client)
        else:
            self._node.accept(client, self._make_protocol)

    def close(self) -> None:
        if self._network.bound.get(self.port) is self:
            del self._network.bound[self.port]
        for client in self._waiting:
            client.lose(ConnectionResetError("nobody listens any more"))
        self._waiting.clear()
