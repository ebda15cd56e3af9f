"""A cluster of three brokers as node 1 knows it, and channels to the others that a test can look into."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from broker.controller.image import NO_LEADER, ClusterImage
from protocol.messages import metadata_records as records

OWN, SECOND, THIRD = 1, 2, 3


def cluster(topic: str, leaders: Sequence[int]) -> ClusterImage:
    """Return a cluster with a topic whose partitions these brokers lead."""
    image = ClusterImage()
    topic_id = b"the topic's id.."
    image.apply(records.TopicRecord(name=topic, topic_id=topic_id))
    for index, leader in enumerate(leaders):
        image.apply(
            records.PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[OWN, SECOND, THIRD],
                isr=[OWN, SECOND, THIRD] if leader != NO_LEADER else [SECOND],
                leader=leader,
                leader_epoch=1,
                partition_epoch=1,
                directories=[bytes(16)] * 3,
            )
        )
    return image


class Channels:
    """Channels that keep what was said to which node, and how to make requests and handle answers."""

    def __init__(self) -> None:
        self.said: dict[Hashable, tuple[int, Any]] = {}
        self.request_of: Any = None
        self.answered: Any = None
        self.is_stopped = False

    def __call__(self, *, request_of: Callable[..., Any], answered: Callable[..., Any]) -> Any:
        self.request_of, self.answered = request_of, answered
        return self

    def waiting(self, node_id: int, key: Hashable) -> Any:
        return self.said.get((node_id, key), (node_id, None))[1]

    def say(self, node_id: int, item: Any, key: Hashable | None = None) -> None:
        self.said[node_id, len(self.said) if key is None else key] = node_id, item

    def stop(self) -> None:
        self.is_stopped = True

    def items(self, node_id: int) -> list[Any]:
        """Return what was said to the node."""
        return [item for said_to, item in self.said.values() if said_to == node_id]
