"""The cluster as clients of one listener are told of it: who is there, who leads, which replicas are offline.

Source: `KRaftMetadataCache`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.controller.image import MIGRATING, NO_LEADER

if TYPE_CHECKING:
    from broker.controller.image import BrokerImage, BrokerNode, ClusterImage, PartitionImage


class ListenerView:
    """Of the brokers as they are registered when this is made."""

    __slots__ = ("_reachable", "_registered", "nodes")

    def __init__(self, image: ClusterImage, listener_name: str) -> None:
        self.nodes: dict[int, BrokerNode] = {}
        """Those that are advertised to clients of the listener, fenced ones among them, by id: Kafka has them in a hash
        map, whose order is that of ids where they aren't far apart."""
        self._registered = frozenset(image.brokers)
        self._reachable: dict[int, BrokerImage] = {}
        for node_id, broker in sorted(image.brokers.items()):
            node = broker.node(listener_name)
            if node is not None:
                self.nodes[node_id] = node
                if not broker.fenced:
                    self._reachable[node_id] = broker

    def alive_nodes(self) -> list[BrokerNode]:
        """Those that a client may connect to."""
        return [self.nodes[node_id] for node_id in self._reachable]

    def leader(self, partition: PartitionImage) -> int:
        """NO_LEADER where nobody leads it, and where clients of the listener can't find who does."""
        return partition.leader if partition.leader in self.nodes else NO_LEADER

    def has_leader_elsewhere(self, partition: PartitionImage) -> bool:
        """Whether the leader is registered, with other listeners perhaps."""
        return partition.leader in self._registered

    def offline_replicas(self, partition: PartitionImage) -> list[int]:
        """Of brokers that are fenced, gone or not to be found by the listener, or whose directory is offline."""
        reachable, directories = self._reachable, partition.directories
        named = len(directories)
        return [
            replica
            for place, replica in enumerate(partition.replicas)
            if (broker := reachable.get(replica)) is None
            or not broker.has_online_dir(directories[place] if place < named else MIGRATING)
        ]

    def reachable(self, node_ids: Sequence[int]) -> list[int]:
        """Those among them that are alive and to be found by the listener."""
        return [node_id for node_id in node_ids if node_id in self._reachable]


def alive_node(image: ClusterImage, node_id: int, listener_name: str) -> BrokerNode | None:
    """One broker; None where it isn't alive, or isn't advertised to clients of the listener."""
    broker = image.brokers.get(node_id)
    return None if broker is None or broker.fenced else broker.node(listener_name)
