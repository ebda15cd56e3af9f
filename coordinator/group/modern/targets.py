"""Who is to have which partitions: the target assignment of a group, and its values in records."""

from __future__ import annotations

from collections.abc import Collection

from coordinator.java.maps import JavaMap, JavaSet
from protocol.messages.group_records import ConsumerGroupTargetAssignmentMemberValue, TopicPartition

Target = JavaMap[bytes, Collection[int]]
"""Topic id → partitions."""

NO_TARGET: Target = JavaMap()


def target_value(target: Target) -> ConsumerGroupTargetAssignmentMemberValue:
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=[*partitions])
            for topic_id, partitions in target.items()
        ]
    )


def target_from(value: ConsumerGroupTargetAssignmentMemberValue) -> Target:
    target: Target = JavaMap()
    for topic in value.topic_partitions:
        target[topic.topic_id] = JavaSet.of(topic.partitions)
    return target


def same_target(one: Target, other: Target | None) -> bool:
    """Whether they are the same partitions, in whatever order."""
    return (
        other is not None
        and len(one) == len(other)
        and all(topic in other and set(one[topic]) == set(other[topic]) for topic in one)
    )
