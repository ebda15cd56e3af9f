"""The assignors on the server (KIP-848): `range` and `uniform`.

- `range` (`RangeAssignor`) gives contiguous ranges of each topic's partitions, to static members first. It isn't
  sticky: the same members and topics always lead to the same assignment.
- `uniform` if all members subscribe to the same topics (`UniformHomogeneousAssignmentBuilder`): all get the same number
  of partitions, give or take one, of whatever topics. Each keeps as many of its partitions as possible.
- `uniform` if members subscribe to different topics (`UniformHeterogeneousAssignmentBuilder`): members keep the
  partitions of topics that they still subscribe to. Partitions without an owner go to the least loaded. Then, topic
  by topic, the most loaded members give partitions to the least loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from coordinator.group.modern.group import Target
from coordinator.java.maps import JavaMap, JavaSet

# --- the input and the output of an assignor (Kafka: `GroupSpec`, `GroupAssignment`) --------------------------

Assignments = dict[str, Target]
"""Member id → target. Members without an entry get nothing."""


class AssignorError(Exception):
    """No assignment is possible (Kafka: `PartitionAssignorException`)."""


@dataclass(slots=True)
class MemberSpec:
    """A member: the topics that it subscribes to, in the order of its subscription, and its current target.

    `subscription_size` also counts names of topics that don't exist, because the size of Java's tables
    depends on it.
    """

    instance_id: str | None
    topic_ids: tuple[bytes, ...]
    subscription_size: int
    target: Target


@dataclass(slots=True)
class GroupSpec:
    """The input of an assignor. `members` iterate in Kafka's order. `homogeneous`: all subscribe to the same
    topics."""

    members: JavaMap[str, MemberSpec]
    homogeneous: bool
    owners: Mapping[bytes, Mapping[int, str]]
    """Topic id → partition → the member whose target has it now, which may have left."""
    partition_count: Callable[[bytes], int]
    """The number of partitions of a topic, by its id."""


def copy_of(target: Target) -> Target:
    """A copy that may be changed (Kafka: `AssignorHelpers.deepCopyAssignment`)."""
    copy: Target = JavaMap(len(target))
    for topic_id, partitions in target.items():
        copy[topic_id] = JavaSet.of(partitions)
    return copy


def partitions_of(target: Target, topic_id: bytes) -> JavaSet[int]:
    """The partitions of a topic in a target that `copy_of` made."""
    found = target[topic_id]
    assert isinstance(found, JavaSet)
    return found


# --- `range` --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Topic:
    """How a topic's partitions are shared out: the next one to give, and how many members get one more."""

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
    """Assign contiguous ranges, topic by topic. If it doesn't come out even, the first ranges are longer by one."""
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
    """Static members by instance id, then the others by member id. UTF-16 units decide, as in Java."""

    def key(item: tuple[str, MemberSpec]) -> tuple[bool, bytes]:
        member_id, member = item
        name = member_id if member.instance_id is None else member.instance_id
        return member.instance_id is None, name.encode("utf-16-be", "surrogatepass")

    return [member_id for member_id, _ in sorted(spec.members.items(), key=key)]


# --- choosing who gets the next partition, and who gives one (Kafka: `MemberAssignmentBalancer`) --------------
#
# Members are sorted by load, and walked from both ends. Each of the least loaded gets one, which makes them
# as loaded as the next ones, so these join them. At the other end, each of the most loaded gives one.


class Balancer:
    """Chooses members by load. The caller owns `loads`, and changes them as it gives and takes."""

    def __init__(self, loads: Sequence[int]) -> None:
        self._loads = loads
        self._sorted: list[int] = []
        self._least_end = 0
        self._least_load = 0
        self._next_least = 0
        self._most_start = 0
        self._most_end = 0
        self._most_load = 0
        self._next_most = 0

    def begin(self, members: Sequence[int]) -> int:
        """Start over with these members, at least one. Returns how much their loads differ."""
        loads = self._loads
        self._sorted = sorted(members, key=lambda member: (loads[member], member))
        least, most = loads[self._sorted[0]], loads[self._sorted[-1]]
        self._least_end = 0
        self._least_load = least - 1
        self._next_least = 0
        self._most_start = self._most_end = len(self._sorted)
        self._most_load = most + 1
        self._next_most = len(self._sorted) - 1
        return most - least

    def is_balanced(self) -> bool:
        return self._most_load - self._least_load <= 1

    def next_least_loaded(self) -> int:
        """The member that gets the next partition: each of the least loaded in turn."""
        if self._next_least >= self._least_end:
            self._least_load += 1
            while (
                self._least_end < len(self._sorted)
                and self._loads[self._sorted[self._least_end]] == self._least_load
            ):
                self._least_end += 1
            self._next_least = 0
        member = self._sorted[self._next_least]
        self._next_least += 1
        return member

    def next_most_loaded(self) -> int | None:
        """The member that gives the next partition, or None if nobody can."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # All of them were excluded: go on with the next ones.
                self._most_load = self._loads[self._sorted[self._most_start - 1]]
            else:
                self._most_load -= 1
            while self._most_start > 0 and self._loads[self._sorted[self._most_start - 1]] == self._most_load:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return None
        member = self._sorted[self._next_most]
        self._next_most -= 1
        return member

    def exclude_most_loaded(self) -> None:
        """Exclude the member that was returned last, as it has nothing to give: move it to the end of its
        range and out."""
        at, last = self._next_most + 1, self._most_end - 1
        self._sorted[at], self._sorted[last] = self._sorted[last], self._sorted[at]
        self._most_end -= 1


# --- `uniform` with different subscriptions -------------------------------------------------------------------

NOBODY = -1
MAX_SWEEPS = 16


def assign_mixed(spec: GroupSpec) -> Assignments:
    """Assign partitions if subscriptions differ. Raises AssignorError."""
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
    """Builds an assignment. Members are numbers in their order; `loads` count each member's partitions."""

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
        """Sort key: first most partitions per subscriber, then fewest subscribers."""
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
        """Give out the partitions that have no owner."""
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
        """Balance one topic. Returns True if a partition was moved."""
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
        """The member's target as a copy that may be changed."""
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


# --- `uniform` with the same subscriptions --------------------------------------------------------------------


def assign_uniform(spec: GroupSpec) -> Assignments:
    """Assign partitions evenly. Raises AssignorError."""
    if not len(spec.members):
        return {}
    return _assign_same(spec) if spec.homogeneous else assign_mixed(spec)


def _assign_same(spec: GroupSpec) -> Assignments:
    member = next(iter(spec.members.values()))
    subscribed = JavaSet.of(member.topic_ids, member.subscription_size)
    if not len(subscribed):
        return {}
    total = 0
    unassigned: list[tuple[bytes, int]] = []
    for topic_id in subscribed:
        count = spec.partition_count(topic_id)
        total += count
        owners = spec.owners.get(topic_id, {})
        unassigned += [(topic_id, index) for index in range(count) if index not in owners]
    assignments: Assignments = {}
    unfilled = _keep_quotas(spec, subscribed, total, assignments, unassigned)
    taken = 0
    for member_id, quota in unfilled:
        target = assignments[member_id]
        if target is spec.members[member_id].target:
            target = assignments[member_id] = copy_of(target)
        for topic_id, partition in unassigned[taken : taken + quota]:
            target.compute_if_absent(topic_id, JavaSet())
            partitions_of(target, topic_id).add(partition)
        taken += quota
    if taken < len(unassigned):
        raise AssignorError("Partitions were left unassigned")
    return assignments


def _keep_quotas(
    spec: GroupSpec,
    subscribed: JavaSet[bytes],
    total: int,
    assignments: Assignments,
    unassigned: list[tuple[bytes, int]],
) -> list[tuple[str, int]]:
    """Let each member keep what its quota allows; the rest goes to `unassigned`. Returns who lacks how many
    partitions."""
    members = len(spec.members)
    quota_of_all, one_more = divmod(total, members)
    unfilled: list[tuple[str, int]] = []
    for index, (member_id, member) in enumerate(spec.members.items()):
        has_one_more = one_more > 0
        target, quota = _kept(member.target, subscribed, quota_of_all + has_one_more, unassigned)
        if quota > 0 and has_one_more and members - index > one_more:
            # A later member may already hold one more: leave it to that one.
            quota -= 1
            has_one_more = False
        if quota > 0:
            unfilled.append((member_id, quota))
        if has_one_more:
            one_more -= 1
        assignments[member_id] = target
    return unfilled


def _kept(
    old: Target, subscribed: JavaSet[bytes], quota: int, unassigned: list[tuple[bytes, int]]
) -> tuple[Target, int]:
    """The part of its target that a member keeps, and the rest of its quota."""
    new: Target | None = None
    for topic_id, partitions in old.items():
        if topic_id not in subscribed:
            new = copy_of(old) if new is None else new
            new.pop(topic_id)
        elif len(partitions) <= quota:
            quota -= len(partitions)
        else:
            for partition in partitions:
                if quota > 0:
                    quota -= 1
                    continue
                new = copy_of(old) if new is None else new
                kept = partitions_of(new, topic_id)
                kept.discard(partition)
                if not len(kept):
                    new.pop(topic_id)
                unassigned.append((topic_id, partition))
    return old if new is None else new, quota


# --- by name --------------------------------------------------------------------------------------------------

ASSIGNORS: dict[str, Callable[[GroupSpec], Assignments]] = {"uniform": assign_uniform, "range": assign_range}
