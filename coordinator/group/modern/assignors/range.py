"""The `range` assignor: each topic's partitions in contiguous ranges, static members first (Kafka: `RangeAssignor`).

It isn't sticky: the same members and topics come to the same assignment, whatever was before.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.group.modern.assignors.spec import Assignments, GroupSpec, MemberSpec
from coordinator.group.modern.targets import Target
from coordinator.java.maps import JavaMap


@dataclass(slots=True)
class _Topic:
    """How a topic's partitions are shared: the next one to give, and how many members get one more."""

    partitions: int
    subscribers: int = 0
    next_partition: int = 0
    longer_ranges: int = -1

    def take(self) -> range:
        """The next subscriber's range."""
        if self.longer_ranges < 0:
            self.longer_ranges = self.partitions % self.subscribers
        length = self.partitions // self.subscribers
        if self.longer_ranges > 0:
            self.longer_ranges -= 1
            length += 1
        start = self.next_partition
        self.next_partition = min(start + length, self.partitions)
        return range(start, self.next_partition)


def assign_range(spec: GroupSpec) -> Assignments:
    """Contiguous ranges, topic by topic, the first members' longer by one where it doesn't come out even."""
    if not len(spec.members):
        return {}
    ordered = _ordered(spec)
    topics: dict[bytes, _Topic] = {}
    if spec.homogeneous:
        for topic_id in spec.members[ordered[0]].topic_ids:
            topics[topic_id] = _Topic(spec.partition_count(topic_id), len(ordered))
    else:
        for member_id in ordered:
            for topic_id in spec.members[member_id].topic_ids:
                topic = topics.setdefault(topic_id, _Topic(spec.partition_count(topic_id)))
                topic.subscribers += 1
    assignments: Assignments = {}
    for member_id in ordered:
        member = spec.members[member_id]
        topic_ids = tuple(topics) if spec.homogeneous else member.topic_ids
        size = len(topic_ids) if spec.homogeneous else member.subscription_size
        target: Target = JavaMap(int(size / 0.75 + 1))
        for topic_id in topic_ids:
            partitions = topics[topic_id].take()
            if partitions:
                target[topic_id] = partitions
        assignments[member_id] = target
    return assignments


def _ordered(spec: GroupSpec) -> list[str]:
    """Static members by instance id, then the others by member id; by UTF-16 units, as Java compares strings."""

    def key(item: tuple[str, MemberSpec]) -> tuple[bool, bytes]:
        member_id, member = item
        name = member_id if member.instance_id is None else member.instance_id
        return member.instance_id is None, name.encode("utf-16-be", "surrogatepass")

    return [member_id for member_id, _ in sorted(spec.members.items(), key=key)]
