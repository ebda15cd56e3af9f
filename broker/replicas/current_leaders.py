"""The leader of a partition, for clients that asked the wrong node (KIP-951; Kafka:
`KafkaApis.getCurrentLeader`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.controller.image import NO_LEADER, alive_node
from broker.replicas.replica import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from broker.controller.image import BrokerNode, ClusterImage
    from broker.replicas.partitions import Partitions


class CurrentLeader(NamedTuple):
    """A partition's leader and leader epoch."""

    leader_id: int
    leader_epoch: int


class CurrentLeaders:
    """Finds leaders, in the partition on this node if there is one, otherwise in the metadata."""

    def __init__(self, partitions: Partitions, image: ClusterImage) -> None:
        self._partitions = partitions
        self._image = image

    def of_topic_id(self, topic_id: bytes, index: int) -> CurrentLeader:
        """Like `of`, by the topic's id."""
        topic = self._image.topics_by_id.get(topic_id)
        return CurrentLeader(NO_LEADER, NO_LEADER_EPOCH) if topic is None else self.of(topic.name, index)

    def of(self, topic: str, index: int) -> CurrentLeader:
        """Return the leader. NO_LEADER and NO_LEADER_EPOCH for an unknown partition."""
        partition = self._partitions.find(topic, index)
        if partition is not None:
            return CurrentLeader(partition.leader_id, partition.leader_epoch)
        known = self._image.topics.get(topic)
        described = None if known is None else known.partitions.get(index)
        if described is None:
            return CurrentLeader(NO_LEADER, NO_LEADER_EPOCH)
        return CurrentLeader(described.leader, described.leader_epoch)

    def node(self, node_id: int, listener_name: str) -> BrokerNode | None:
        """Return the node's address, or None if it isn't alive or doesn't advertise the listener."""
        return alive_node(self._image, node_id, listener_name)
