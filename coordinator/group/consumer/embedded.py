"""What members of the classic protocol say to each other, as the coordinator reads and writes it for them.

Their subscriptions and assignments begin with a version; one that is newer than those known here is read as the newest
known. Kafka: `ConsumerProtocol`, `org.apache.kafka.coordinator.group.Utils`.
"""

from __future__ import annotations

from struct import Struct

from coordinator.group.consumer.member import Assigned, Owned
from coordinator.group.known_topics import KnownTopics
from coordinator.group.modern.targets import Target
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import CodecError
from protocol.messages.groups import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from protocol.wire.codec import decode, encode

NEWEST_VERSION = 3
_INT16 = Struct(">h")


def version_of(data: bytes) -> int:
    """Raises CodecError."""
    if len(data) < _INT16.size:
        raise CodecError("no version")
    version: int = _INT16.unpack_from(data)[0]
    if version < 0:
        raise CodecError(f"version {version}")
    return min(version, NEWEST_VERSION)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Raises CodecError."""
    return decode(ConsumerProtocolSubscription, version_of(data), data, _INT16.size)


def read_assignment(data: bytes, topics: KnownTopics) -> tuple[Target, bytes]:
    """Partitions by topic id, as far as the topics are known, and the user data. Raises CodecError."""
    target: Target = JavaMap()
    if not data:
        return target, b""
    found = decode(ConsumerProtocolAssignment, version_of(data), data, _INT16.size)
    for assigned in found.assigned_partitions:
        topic = topics.by_name(assigned.topic)
        if topic is not None:
            target[topic.topic_id] = JavaSet.of(assigned.partitions)
    return target, bytes(found.user_data or b"")


def write_assignment(target: Target, topics: KnownTopics, version: int) -> bytes:
    """In the version of the member's own subscription."""
    assigned = [
        TopicPartition(topic=topic.name, partitions=[*partitions])
        for topic_id, partitions in target.items()
        if (topic := topics.by_id(topic_id)) is not None
    ]
    return _INT16.pack(version) + encode(ConsumerProtocolAssignment(assigned_partitions=assigned), version)


def owned_of(subscription: ConsumerProtocolSubscription, topics: KnownTopics) -> Owned:
    return [
        (topic.topic_id, owned.partitions)
        for owned in subscription.owned_partitions
        if (topic := topics.by_name(owned.topic)) is not None
    ]


def without_epochs(assigned: Assigned) -> Target:
    target: Target = JavaMap()
    for topic_id, partitions in assigned.items():
        target[topic_id] = JavaSet.of(partitions)
    return target
