"""Share groups whose partitions several brokers lead: a member has a session at each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.shares.share_partition_manager import LedSharePartition
from tests.simulation.shares.share_member import Leaders
from tests.simulation.shares.share_work import ShareWork
from tests.simulation.wire_client import WireClient
from tests.simulation.work import Place

if TYPE_CHECKING:
    from tests.simulation.cluster.cluster_simulation import ClusterSimulation


class SeveralLeaders(Leaders):
    """`cluster` makes the clients."""

    def __init__(self, cluster: ClusterSimulation, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._finder = cluster.client(f"{name}'s finder")
        self._clients = 0

    async def leader_of(self, place: Place) -> str:
        return await self._finder.leader_of(place)

    def client_at(self, broker: str) -> WireClient:
        self._clients += 1
        return self._cluster.client(f"{self._name}'s fetches {self._clients}").at(broker)

    def forget(self) -> None:
        self._finder.forget()


def on_several_nodes(cluster: ClusterSimulation) -> ShareWork:
    ids: dict[str, bytes] = {}

    def term_of(broker: str, group_id: str, place: Place) -> LedSharePartition | None:
        machine = cluster.nodes.brokers[broker]
        if machine.server is None or not machine.is_up:
            return None
        return machine.server.shares._groups.get(group_id, {}).get((ids[place[0]], place[1]))

    def leads(broker: str, place: Place) -> bool:
        return cluster.nodes.term(broker, *place) is not None

    return ShareWork(cluster, lambda name: SeveralLeaders(cluster, name), term_of, leads, ids)
