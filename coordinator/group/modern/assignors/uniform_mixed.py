"""The `uniform` assignor where members subscribe to different topics (Kafka: `UniformHeterogeneousAssignmentBuilder`).

Members keep what they have, as far as they subscribe to it; partitions that nobody has go to the least loaded; then
topic by topic the most loaded give to the least loaded.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.group.modern.assignors.balancer import Balancer
from coordinator.group.modern.assignors.spec import (
    Assignments,
    AssignorError,
    GroupSpec,
    copy_of,
    partitions_of,
)
from coordinator.group.modern.targets import Target
from coordinator.java.maps import JavaSet

NOBODY = -1
MAX_SWEEPS = 16


def assign_mixed(spec: GroupSpec) -> Assignments:
    """Raises AssignorError."""
    builder = _Builder(spec)
    if not builder.subscribers:
        return {}
    builder.keep_targets()
    builder.share_out()
    builder.balance()
    return dict(zip(builder.members, builder.targets, strict=True))


def _signed_order(topic_id: bytes) -> tuple[int, int]:
    return (
        int.from_bytes(topic_id[:8], "big", signed=True),
        int.from_bytes(topic_id[8:], "big", signed=True),
    )


class _Builder:
    """Members are numbered in their order; `loads` are how many partitions each has."""

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.members = spec.members.keys()
        self.loads = [0] * len(self.members)
        self.targets: list[Target] = [member.target for member in spec.members.values()]
        self.is_copy = [False] * len(self.members)
        self.subscribers: dict[bytes, list[int]] = {}
        for index, member in enumerate(spec.members.values()):
            for topic_id in member.topic_ids:
                if spec.partition_count(topic_id) < 0:
                    raise AssignorError(f"no such topic: {topic_id.hex()}")
                self.subscribers.setdefault(topic_id, []).append(index)
        self.owners = {topic_id: [NOBODY] * spec.partition_count(topic_id) for topic_id in self.subscribers}
        self.balancer = Balancer(self.loads)

    def _topic_order(self, topic_id: bytes) -> tuple[float, int, tuple[int, int]]:
        """Most partitions per subscriber first, then fewest subscribers."""
        subscribers = len(self.subscribers[topic_id])
        return -(len(self.owners[topic_id]) / subscribers), subscribers, _signed_order(topic_id)

    def _sorted(self, topic_ids: Iterable[bytes]) -> list[bytes]:
        return sorted(topic_ids, key=self._topic_order)

    def keep_targets(self) -> None:
        for index, member in enumerate(self.spec.members.values()):
            subscribed = {*member.topic_ids}
            for topic_id, partitions in member.target.items():
                if topic_id in subscribed:
                    self.loads[index] += len(partitions)
                    for partition in partitions:
                        self.owners[topic_id][partition] = index
                else:
                    self._own_copy(index).pop(topic_id)

    def share_out(self) -> None:
        """Partitions that nobody has."""
        unassigned = {
            topic_id: [index for index, owner in enumerate(owners) if owner == NOBODY]
            for topic_id, owners in self.owners.items()
        }
        for topic_id in self._sorted(topic_id for topic_id, found in unassigned.items() if found):
            self.balancer.begin(self.subscribers[topic_id])
            for partition in unassigned[topic_id]:
                self._give(topic_id, partition, self.balancer.next_least_loaded())

    def balance(self) -> None:
        """Sweep over the topics until one sweep comes back to the last topic that changed."""
        topic_ids = self._sorted(
            topic_id for topic_id, subscribers in self.subscribers.items() if len(subscribers) >= 2
        )
        last_changed = -1
        for _ in range(MAX_SWEEPS if topic_ids else 0):
            for index, topic_id in enumerate(topic_ids):
                if index == last_changed:
                    return
                if self._balance_topic(topic_id) or last_changed == -1:
                    last_changed = index

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Whether anything was moved."""
        owners = self.owners[topic_id]
        balancer = self.balancer
        if balancer.begin(self.subscribers[topic_id]) <= 1:
            return False
        to_give: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            to_give.setdefault(owner, []).append(partition)
        moved = False
        while not balancer.is_balanced():
            giver = balancer.next_most_loaded()
            while giver is not None and not to_give.get(giver):
                balancer.exclude_most_loaded()
                giver = balancer.next_most_loaded()
            if giver is None:
                break
            partition = to_give[giver].pop()
            taker = balancer.next_least_loaded()
            if balancer.is_balanced():
                break
            self._take(topic_id, partition, giver)
            self._give(topic_id, partition, taker)
            moved = True
        return moved

    # --- moving ---------------------------------------------------------------------------------------------

    def _own_copy(self, index: int) -> Target:
        """A member's target, to be changed."""
        if not self.is_copy[index]:
            self.is_copy[index] = True
            self.targets[index] = copy_of(self.targets[index])
        return self.targets[index]

    def _give(self, topic_id: bytes, partition: int, index: int) -> None:
        target = self._own_copy(index)
        subscribers = len(self.subscribers[topic_id])
        expected = (len(self.owners[topic_id]) + subscribers - 1) // subscribers
        target.compute_if_absent(topic_id, JavaSet(int(expected / 0.75 + 1)))
        partitions_of(target, topic_id).add(partition)
        self.owners[topic_id][partition] = index
        self.loads[index] += 1

    def _take(self, topic_id: bytes, partition: int, index: int) -> None:
        target = self._own_copy(index)
        partitions = partitions_of(target, topic_id)
        partitions.discard(partition)
        if not len(partitions):
            target.pop(topic_id)
        self.owners[topic_id][partition] = NOBODY
        self.loads[index] -= 1
