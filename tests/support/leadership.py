"""A broker's partitions lose their leader, and get it back: by the decisions of a controller."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from broker.controller.image import ClusterImage
from broker.controller.partition_changes import BrokerChange, leader_and_isr_updates, updates_of
from broker.controller.registration import register_broker
from protocol.waiting import at_once
from protocol.wire.schema import Message


def take_leadership_away(image: ClusterImage, node_id: int, topic: str | None = None) -> Sequence[Message]:
    """As where it is fenced; of one topic alone, if one is named."""
    change = BrokerChange(removed=node_id)
    if topic is None:
        return at_once(leader_and_isr_updates(image, change))
    found = image.topics[topic]
    return at_once(updates_of(image, change, [(found, found.partitions.items())]))


def elect(image: ClusterImage, node_id: int, online: Collection[bytes]) -> Sequence[Message]:
    """As where it is unfenced, and has these directories."""
    with_it = image.copy()
    with_it.apply(register_broker(node_id, b"i" * 16, 5, [("PLAINTEXT", "h", 1)], [*online], None))
    return at_once(leader_and_isr_updates(with_it, BrokerChange(added=node_id)))
