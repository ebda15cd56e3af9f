"""Who leads a partition, for clients that asked the wrong node (KIP-951; Kafka: `KafkaApis.getCurrentLeader`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.controller.image import NO_LEADER
from broker.replicas.follower import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.replicas.partitions import Partitions


class CurrentLeader(NamedTuple):
    """Who leads a partition, and since which epoch."""

    leader_id: int
    leader_epoch: int


class LeaderNode(NamedTuple):
    """Where clients of one listener find a node."""

    node_id: int
    host: str
    port: int
    rack: str | None


class CurrentLeaders:
    """What the partition here says of its leader, else what the metadata does."""

    def __init__(self, partitions: Partitions, image: ClusterImage) -> None:
        self._partitions = partitions
        self._image = image

    def of_topic_id(self, topic_id: bytes, index: int) -> CurrentLeader:
        """As `of`."""
        topic = self._image.topics_by_id.get(topic_id)
        return CurrentLeader(NO_LEADER, NO_LEADER_EPOCH) if topic is None else self.of(topic.name, index)

    def of(self, topic: str, index: int) -> CurrentLeader:
        """NO_LEADER and NO_LEADER_EPOCH of a partition that nobody knows."""
        partition = self._partitions.find(topic, index)
        if partition is not None:
            return CurrentLeader(partition.leader_id, partition.leader_epoch)
        known = self._image.topics.get(topic)
        described = None if known is None else known.partitions.get(index)
        if described is None:
            return CurrentLeader(NO_LEADER, NO_LEADER_EPOCH)
        return CurrentLeader(described.leader, described.leader_epoch)

    def node(self, node_id: int, listener_name: str) -> LeaderNode | None:
        """None where the node isn't alive, or isn't advertised to clients of the listener."""
        broker = self._image.brokers.get(node_id)
        if broker is None or broker.fenced:
            return None
        for endpoint in broker.record.end_points:
            if endpoint.name == listener_name:
                return LeaderNode(node_id, endpoint.host, endpoint.port, broker.record.rack)
        return None
