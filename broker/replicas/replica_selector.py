"""Choosing the replica to which a leader sends a consumer (KIP-392).

Source: `RackAwareReplicaSelector`, `ReplicaManager.findPreferredReadReplica`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.replicas.leader import Leader

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import BrokerNode, ClusterImage
    from broker.network.context import RequestContext
    from broker.replicas.partition import Partition
    from broker.replicas.replica import Replica

NO_REPLICA = -1


class RackAwareReplicaSelector:
    """Chooses for one consumer, which names its rack."""

    __slots__ = ("_image", "_listener_name", "_own_rack", "_rack")

    def __init__(self, image: ClusterImage, listener_name: str, own_rack: str | None, rack: str) -> None:
        """`listener_name` is the listener by which the consumer has come and will reach other brokers."""
        self._image = image
        self._listener_name = listener_name
        self._own_rack = own_rack
        self._rack = rack

    def select(self, partition: Partition, offset: int) -> int:
        """Return the id of the broker in the consumer's rack that is in sync, has the offset, and has most
        records.

        Returns NO_REPLICA if the consumer should read here: this broker is in its rack, isn't the leader, or
        no other fits.
        """
        role = partition.role
        if self._rack == self._own_rack or not isinstance(role, Leader) or role.replicas is None:
            return NO_REPLICA
        in_sync = role.replicas.in_sync.isr
        found = [
            replica
            for node_id, replica in role.replicas.others.items()
            if node_id in in_sync
            and replica.log_start_offset <= offset <= replica.log_end_offset
            and self._is_in_rack(node_id)
        ]
        return max(found, key=_how_far).node_id if found else NO_REPLICA

    def _is_in_rack(self, node_id: int) -> bool:
        node = self._node(node_id)
        return node is not None and node.rack == self._rack

    def _node(self, node_id: int) -> BrokerNode | None:
        broker = self._image.brokers.get(node_id)
        return None if broker is None or broker.fenced else broker.node(self._listener_name)


def selector_maker(
    config: BrokerConfig, image: ClusterImage
) -> Callable[[RequestContext, str], RackAwareReplicaSelector] | None:
    """Return a function that makes a selector from a consumer's request and its rack. None if
    `replica.selector.class` names no selector that is available here."""
    if not config.selects_replicas:
        return None
    own_rack = config.get_string("broker.rack")

    def make(context: RequestContext, rack: str) -> RackAwareReplicaSelector:
        return RackAwareReplicaSelector(image, context.listener_name, own_rack, rack)

    return make


def _how_far(replica: Replica) -> tuple[int, int, int]:
    return replica.log_end_offset, replica.caught_up_ms, replica.node_id
