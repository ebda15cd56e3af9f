"""A client of several brokers. It asks who leads and coordinates, and remembers the answer until that proves wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from protocol.errors import Error
from protocol.messages.fetch import FetchRequest
from protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from tests.simulation.cluster.nodes import BROKERS, Nodes, Term
from tests.simulation.cluster.routes import (
    GROUP,
    MOVED,
    OfLeader,
    Route,
    errors_of,
    route_of,
)
from tests.simulation.wire_client import NoAnswer, WireClient
from tests.simulation.work import Place

NOT_YET = MOVED | {
    Error.INVALID_REPLICATION_FACTOR,
    Error.NOT_CONTROLLER,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
"""With several brokers, errors after which the client tries again, too."""
INTERNAL = {GROUP: "__consumer_offsets", 1: "__transaction_state"}


class ClusterClient(WireClient):
    def __init__(self, nodes: Nodes, name: str, luck: random.Random) -> None:
        super().__init__(nodes.world.network, name, -1, luck)
        self._nodes = nodes
        self._clients = {
            broker: WireClient(nodes.world.network, f"{name} at {broker}", machine.port, luck)
            for broker, machine in nodes.brokers.items()
        }
        patience_s = luck.choice((2.5, 6.0, 20.0))
        for client in self._clients.values():
            client.patience_s = patience_s
        self._tries = luck.choice((1, 4, 20))
        """A factor for the number of tries before giving up."""
        self.reads_anywhere = luck.random() < 0.3
        self._found: dict[Route, str] = {}

    async def ask(self, request: Any, version: int) -> Any:
        route = route_of(request)
        broker = self._found.get(route) or await self._find(route)
        if isinstance(request, FetchRequest) and self.reads_anywhere:
            broker = self.luck.choice(BROKERS)
        self.asked_in = None
        before = self._term(route, broker)
        try:
            answer = await self._clients[broker].ask(request, version)
        except NoAnswer:
            self._found.pop(route, None)
            raise
        if before is not None and self._term(route, broker) == before:
            self.asked_in = before
        if self.asked_in is None or not MOVED.isdisjoint(errors_of(answer)):
            self._found.pop(route, None)
        return answer

    def _term(self, route: Route, broker: str) -> Term | None:
        if isinstance(route, OfLeader):
            return self._nodes.term(broker, *route)
        server = self._nodes.brokers[broker].server
        if route is None or server is None:
            return None
        host = server.groups if route.key_type == GROUP else server.transactions
        return self._nodes.term(broker, INTERNAL[route.key_type], host.partition_of(route.key))

    async def leader_of(self, place: Place) -> str:
        """Return the name of the leading broker, as far as known. Raises NoAnswer if nobody knows."""
        route = OfLeader(*place)
        return self._found.get(route) or await self._find(route)

    def forget(self) -> None:
        """Forget leaders and coordinators: something proved wrong."""
        self._found.clear()

    async def _find(self, route: Route) -> str:
        """Find a broker for the route. Raises NoAnswer if nobody knows one."""
        asked = self.luck.choice(BROKERS)
        if route is None:
            return asked
        client = self._clients[asked]
        if isinstance(route, OfLeader):
            topics = [MetadataRequestTopic(name=route.topic)]
            [topic] = (await client.ask(MetadataRequest(topics=topics), 12)).topics
            leaders = {each.partition_index: each.leader_id for each in topic.partitions}
            node_id = leaders.get(route.index, -1)
        else:
            node_id = (
                await client.ask(FindCoordinatorRequest(key=route.key, key_type=route.key_type), 3)
            ).node_id
        machine = self._nodes.by_id(node_id)
        if machine is None:
            self.note(f"finds nobody for {route}")
            raise NoAnswer
        self._found[route] = machine.name
        return machine.name

    def at(self, broker: str) -> WireClient:
        """Return a client for this broker, whatever it leads."""
        return self._clients[broker]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    async def wait_out(self) -> None:
        await asyncio.gather(*(client.wait_out() for client in self._clients.values()))

    async def insist(
        self, ask: Callable[[], Awaitable[Error]], tries: int = 200, also: frozenset[Error] = frozenset()
    ) -> Error | None:
        """Insist longer than a controller's disk may fail, because no leader is elected meanwhile."""
        return await super().insist(ask, 3 * tries * self._tries, also | NOT_YET)
