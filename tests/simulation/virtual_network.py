"""Connections through memory: the broker's real `Connection` on one side, a test's client on the other.

Bytes arrive in order, after a delay and in random pieces. A connection may end at any byte.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from broker.environment.network import CONNECTION_SETUP_TIMEOUT_S, Bound, MakeProtocol
from tests.simulation.history import History
from tests.simulation.virtual_links import Link, Links
from tests.simulation.virtual_scheduler import NodeScheduler
from tests.simulation.virtual_transports import (
    CLIENTS,
    ClientConnection,
    OutgoingConnection,
    ServerTransport,
)

EPHEMERAL_PORT = 40_000
AGAIN_S = 0.2
"""The time until a client tries again if nothing gets through."""
SILENT_S = 5.0
"""The time within which clients notice that a machine has lost its power."""


class VirtualNetwork:
    """Everything that is connected."""

    def __init__(self, loop: asyncio.AbstractEventLoop, luck: random.Random, history: History) -> None:
        self.loop = loop
        self.luck = luck
        self.history = history
        self.bound: dict[int, VirtualBound] = {}
        self.links = Links(loop, luck)
        self.hosts: dict[int, str] = {}
        """Which host has, or had, each port."""
        self.nodes: dict[str, NodeNetwork] = {}
        """By host, the network of its present run, or its last."""
        self._last_client = EPHEMERAL_PORT

    @property
    def is_calm(self) -> bool:
        """True when nothing is lost or late any more."""
        return self.links.is_calm

    @is_calm.setter
    def is_calm(self, is_calm: bool) -> None:
        self.links.is_calm = is_calm

    def pieces(self, data: bytes) -> list[bytes]:
        if self.luck.random() < 0.7 or len(data) < 2:
            return [data]
        cut = self.luck.randrange(1, len(data))
        return [data[:cut], *self.pieces(data[cut:])]

    async def connect(self, port: int) -> ClientConnection:
        """Connect. Raises ConnectionRefusedError."""
        link = self.link_to(CLIENTS, port)
        await asyncio.sleep(self.links.delay_s(link))
        while not self.is_open(link):
            await asyncio.sleep(AGAIN_S)
        bound = self.bound.get(port)
        if bound is None or bound.refuses:
            raise ConnectionRefusedError(port)
        client = ClientConnection(self, self.next_client())
        bound.come(client)
        return client

    def link_to(self, source: str, port: int) -> Link:
        return Link(source, self.hosts.get(port, ""))

    def is_open(self, link: Link) -> bool:
        """Return True if both directions are open, which a new connection needs."""
        return self.links.is_open(link) and self.links.is_open(link.back)

    def next_client(self) -> int:
        """Return the port that the next client comes from."""
        self._last_client += 1
        return self._last_client

    def of_node(self, scheduler: NodeScheduler, host: str = "") -> NodeNetwork:
        node = self.nodes[host] = NodeNetwork(self, scheduler, host)
        return node

    def break_between(self, one: str, other: str) -> int:
        """End all connections between two hosts, wherever they are within a frame. Return how many."""
        broken = 0
        for host, peer in ((one, other), (other, one)):
            node = self.nodes.get(host)
            for transport in [*node.transports] if node is not None else ():
                if transport.client.host == peer:
                    transport.break_off()
                    broken += 1
        return broken


class NodeNetwork:
    """The network of one run of a node."""

    def __init__(self, network: VirtualNetwork, scheduler: NodeScheduler, host: str) -> None:
        self.host = host
        self._network = network
        self.scheduler = scheduler
        self._bound: list[VirtualBound] = []
        self.transports: dict[ServerTransport, None] = {}
        self._outgoing: dict[OutgoingConnection, None] = {}

    def bind(self, host: str, port: int, backlog: int) -> Bound:
        if port in self._network.bound:
            raise OSError(98, "Address already in use")
        bound = VirtualBound(self, self._network, port)
        self._network.bound[port] = bound
        self._network.hosts[port] = self.host
        self._bound.append(bound)
        return bound

    def connect(
        self, host: str, port: int, make_protocol: MakeProtocol, failed: Callable[[OSError], None]
    ) -> None:
        """Connect to whatever node has the port: all addresses are the same here."""
        delay_s = self._network.links.delay_s(self._network.link_to(self.host, port))
        deadline_s = self._network.loop.time() + CONNECTION_SETUP_TIMEOUT_S
        self.scheduler.call_later(delay_s, self._connected, port, make_protocol, failed, deadline_s)

    def _connected(
        self, port: int, make_protocol: MakeProtocol, failed: Callable[[OSError], None], deadline_s: float
    ) -> None:
        network = self._network
        if not network.is_open(network.link_to(self.host, port)):
            if network.loop.time() >= deadline_s:
                failed(TimeoutError(110, f"Connect call timed out, port {port}"))
            else:
                self.scheduler.call_later(AGAIN_S, self._connected, port, make_protocol, failed, deadline_s)
            return
        bound = network.bound.get(port)
        if bound is None or bound.refuses:
            failed(ConnectionRefusedError(111, f"Connect call failed, port {port}"))
            return
        connection = OutgoingConnection(network, self, self._outgoing)
        connection.begin(make_protocol(), bound)

    def accept(self, client: ClientConnection, make_protocol: MakeProtocol) -> None:
        transport = ServerTransport(self, self._network, client)
        self.transports[transport] = None
        transport.begin(make_protocol())

    def die(self, *, power_lost: bool) -> None:
        """The machine is gone. Connected clients notice: late if nobody is left to tell them."""
        network = self._network
        for bound in self._bound:
            bound.close()
        for transport in [*self.transports]:
            client = transport.client
            link = Link(self.host, client.host)
            delay_s = network.links.delay_s(link)
            if power_lost and not network.is_calm:
                delay_s += network.luck.uniform(0, SILENT_S)
            arrival_s = network.loop.time() + delay_s
            network.links.carry(link, arrival_s, client.lose, ConnectionResetError("the broker is gone"))
            client.let_go()
        self.transports.clear()
        self._end_outgoing(reset=True)

    def end(self) -> None:
        """The process has ended. Connected clients notice after they have received what was sent to them."""
        for transport in [*self.transports]:
            transport.tell_client_of_end()
            transport.client.let_go()
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
        self.refuses = False
        self._make_protocol: MakeProtocol | None = None
        self._waiting: list[ClientConnection] = []

    def refuse(self) -> None:
        self.refuses = True
        self._let_go_of_waiting()

    def listen(self) -> None:
        self.refuses = False

    async def serve(self, make_protocol: MakeProtocol) -> None:
        self._make_protocol = make_protocol
        self._accept()

    def come(self, client: ClientConnection) -> None:
        self._waiting.append(client)
        if self._make_protocol is not None:
            self._node.scheduler.call_soon(self._accept)

    def _accept(self) -> None:
        assert self._make_protocol is not None
        waiting, self._waiting = self._waiting, []
        for client in waiting:
            self._node.accept(client, self._make_protocol)

    def close(self) -> None:
        if self._network.bound.get(self.port) is self:
            del self._network.bound[self.port]
        self._let_go_of_waiting()

    def _let_go_of_waiting(self) -> None:
        for client in self._waiting:
            client.lose(ConnectionResetError("nobody listens any more"))
            client.let_go()
        self._waiting.clear()
