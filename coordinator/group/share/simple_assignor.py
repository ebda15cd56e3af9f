"""The assignor of share groups: a partition may have several members, and a member several partitions.

Each assignable partition gets enough members so that each member gets one. Previous assignments are kept as
far as possible. If members subscribe to different topics, each topic is shared out by itself.

A deliberate difference: if all members that have too few partitions are full and a partition still lacks members,
for instance because others hold partitions that aren't assignable any more, it stays that way. Kafka fails.
Source: `SimpleAssignor`, `SimpleHomogeneousAssignmentBuilder`, `SimpleHeterogeneousAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from math import ceil
from typing import Generic, TypeVar

from coordinator.group.modern.assignors import Assignments, AssignorError, GroupSpec, copy_of, partitions_of
from coordinator.group.modern.group import Target
from coordinator.java.maps import JavaMap, JavaSet

SIMPLE = "simple"

K = TypeVar("K", bound=Hashable)

Assignable = Mapping[bytes, Collection[int]]
"""Topic id → the partitions that may be assigned. A topic without an entry has none."""


def assign_simply(spec: GroupSpec, assignable: Assignable) -> Assignments:
    """Assign partitions. Raises AssignorError if a subscribed topic doesn't exist."""
    members = [*spec.members]
    specs = [spec.members[member_id] for member_id in members]
    new: dict[int, Target] = {}
    old = [each.target for each in specs]
    if spec.homogeneous:
        if not specs or not specs[0].subscription_size:
            return {}
        _share_out_all(spec, specs[0].topic_ids, assignable, old, new)
    else:
        subscribed: JavaSet[bytes] = JavaSet()
        subscribers: dict[bytes, list[int]] = {}
        for index, each in enumerate(specs):
            subscribed.update(each.topic_ids)
            for topic_id in each.topic_ids:
                subscribers.setdefault(topic_id, []).append(index)
        if not len(subscribed):
            return {}
        for topic_id in subscribed:
            partitions = _assignable(spec, topic_id, assignable)
            _TopicSharing(topic_id, partitions, subscribers[topic_id], old, new).share_out()
    return {member_id: new.get(index, old[index]) for index, member_id in enumerate(members)}


def _assignable(spec: GroupSpec, topic_id: bytes, assignable: Assignable) -> list[int]:
    count = spec.partition_count(topic_id)
    if count == -1:
        raise AssignorError("a topic that members subscribe to doesn't exist")
    allowed = assignable.get(topic_id, ())
    return [partition for partition in range(count) if partition in allowed]


def _share_out_all(
    spec: GroupSpec,
    topic_ids: Sequence[bytes],
    assignable: Assignable,
    old: Sequence[Target],
    new: dict[int, Target],
) -> None:
    """Share out all topics together: each member subscribes to them all."""
    partitions = [
        (topic_id, partition)
        for topic_id in topic_ids
        for partition in _assignable(spec, topic_id, assignable)
    ]
    _GroupSharing(topic_ids, partitions, range(len(old)), old, new).share_out()


class _Sharing(Generic[K]):
    """Shares out some partitions among some members, which are numbers: their places in the group.

    `old` is what all members of the group have. `new` has entries for those members whose target changes.
    """

    def __init__(
        self, partitions: Sequence[K], members: Sequence[int], old: Sequence[Target], new: dict[int, Target]
    ) -> None:
        self._partitions = partitions
        self._members = members
        self._old = old
        self._new = new
        count = len(partitions)
        self._sharing = (len(members) + count - 1) // count if count else 0
        each = self._sharing * count / len(members) if members else 0.0
        self._desired = {
            member: ceil(each * (place + 1)) - ceil(each * place) for place, member in enumerate(members)
        }
        self._holders: JavaMap[K, JavaSet[int]] = JavaMap(int((count + 1) / 0.75 + 1))
        self._held: dict[int, JavaSet[K]] = {}

    def share_out(self) -> None:
        """Keep, take away, and give."""
        for member, target in enumerate(self._old):
            for key in self._kept(member, target):
                self._holders.compute_if_absent(key, JavaSet()).add(member)
                self._held.setdefault(member, JavaSet()).add(key)
        self._take_from_overfilled()
        self._take_of_overshared()
        for key in self._partitions:
            self._holders.compute_if_absent(key, JavaSet())
        self._give_to_unfilled()

    def _kept(self, member: int, target: Target) -> Iterable[K]:
        """The partitions that stay with a member, unless it or others have too many."""
        raise NotImplementedError

    def _place(self, key: K) -> tuple[bytes, int]:
        """The topic id and the partition."""
        raise NotImplementedError

    def _changed(self, member: int) -> Target:
        """The member's new target, which may be changed."""
        found = self._new.get(member)
        if found is None:
            found = self._new[member] = copy_of(self._old[member])
        return found

    def _take(self, member: int, key: K) -> None:
        topic_id, partition = self._place(key)
        partitions_of(self._changed(member), topic_id).discard(partition)
        self._held[member].discard(key)
        self._holders[key].discard(member)

    def _take_from_overfilled(self) -> None:
        for member in sorted(self._held):
            held = self._held[member]
            too_many = len(held) - self._desired.get(member, 0)
            for key in [*held][: max(too_many, 0)]:
                self._take(member, key)

    def _take_of_overshared(self) -> None:
        for key, holders in self._holders.items():
            too_many = len(holders) - self._sharing
            for member in [*holders][: max(too_many, 0)]:
                self._take(member, key)

    def _give_to_unfilled(self) -> None:
        """Give each partition to members that lack some, in turn, starting after the last one that got one."""
        unfilled = [
            member
            for member in sorted(self._members)
            if len(self._held.get(member, ())) < self._desired[member]
        ]
        at, gave = 0, False
        for key, holders in self._holders.items():
            missing = self._sharing - len(holders)
            while missing > 0 and unfilled:
                if at == len(unfilled):
                    if not gave:
                        break
                    at, gave = 0, False
                member = unfilled[at]
                at += 1
                if member in holders:
                    continue
                topic_id, partition = self._place(key)
                target = self._changed(member)
                target.compute_if_absent(
                    topic_id, JavaSet()
                )  # Java's table may grow, even if the topic is there
                partitions_of(target, topic_id).add(partition)
                held = self._held.setdefault(member, JavaSet())
                held.add(key)
                missing -= 1
                gave = True
                if len(held) >= self._desired[member]:
                    at -= 1
                    del unfilled[at]


class _GroupSharing(_Sharing[tuple[bytes, int]]):
    """Shares out all topics together."""

    def __init__(
        self,
        topic_ids: Sequence[bytes],
        partitions: Sequence[tuple[bytes, int]],
        members: Sequence[int],
        old: Sequence[Target],
        new: dict[int, Target],
    ) -> None:
        super().__init__(partitions, members, old, new)
        self._topic_ids = frozenset(topic_ids)

    def _kept(self, member: int, target: Target) -> Iterable[tuple[bytes, int]]:
        kept = 0
        for topic_id, partitions in target.items():
            if topic_id in self._topic_ids:
                for partition in partitions:
                    yield topic_id, partition
                    kept += 1
                    if kept >= self._desired[member]:
                        self._changed(member)  # Java's copy has an order of its own
            else:
                self._changed(member).pop(topic_id)

    def _place(self, key: tuple[bytes, int]) -> tuple[bytes, int]:
        return key


class _TopicSharing(_Sharing[int]):
    """Shares out one topic."""

    def __init__(
        self,
        topic_id: bytes,
        partitions: Sequence[int],
        members: Sequence[int],
        old: Sequence[Target],
        new: dict[int, Target],
    ) -> None:
        super().__init__(partitions, members, old, new)
        self._topic_id = topic_id

    def _kept(self, member: int, target: Target) -> Iterable[int]:
        found = target.get(self._topic_id)
        return () if found is None else [*found]

    def _place(self, key: int) -> tuple[bytes, int]:
        return self._topic_id, key
