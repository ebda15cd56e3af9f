"""What an assignor is given, and what it gives back (Kafka: `GroupSpec`, `GroupAssignment`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from coordinator.group.modern.targets import Target
from coordinator.java.maps import JavaMap, JavaSet

Assignments = dict[str, Target]
"""Member id → target. Who isn't in it is assigned nothing."""


class AssignorError(Exception):
    """No assignment is possible (Kafka: `PartitionAssignorException`)."""


@dataclass(slots=True)
class MemberSpec:
    """A member: the topics it subscribes to, in the order of its subscription, and its target so far.

    `subscription_size` counts names of topics that don't exist, too: Java's tables are sized by it.
    """

    instance_id: str | None
    topic_ids: tuple[bytes, ...]
    subscription_size: int
    target: Target


@dataclass(slots=True)
class GroupSpec:
    """`members` are walked in Kafka's order; `homogeneous`: all of them subscribe to the same."""

    members: JavaMap[str, MemberSpec]
    homogeneous: bool
    owners: Mapping[bytes, Mapping[int, str]]
    """Whose target a partition is in so far, be it a member that has left, by topic id."""
    partition_count: Callable[[bytes], int]
    """Partitions of a topic by id."""


def copy_of(target: Target) -> Target:
    """One that may be changed (Kafka: `AssignorHelpers.deepCopyAssignment`)."""
    copy: Target = JavaMap(len(target))
    for topic_id, partitions in target.items():
        copy[topic_id] = JavaSet.of(partitions)
    return copy


def partitions_of(target: Target, topic_id: bytes) -> JavaSet[int]:
    """The partitions of a topic in a target that was made by `copy_of`."""
    found = target[topic_id]
    assert isinstance(found, JavaSet)
    return found
