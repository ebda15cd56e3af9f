"""A consumer group (KIP-848): its members, its epochs, its target assignment (Kafka: `ConsumerGroup`, `ModernGroup`).

All of it is durable, but for `refresh_deadline_ms`, `refresh_epoch` and `awaited_joins`. Only records change it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from coordinator.group.consumer.member import Assigned, ConsumerMember, Owned, Target
from coordinator.group.consumer.states import GROUP_STATES, GroupState, MemberState
from coordinator.java.maps import JavaMap, JavaSet, TimelineTable
from protocol.errors import Error, KafkaError

CONSUMER_PROTOCOL_TYPE = "consumer"
NO_TARGET: Target = JavaMap()
INITIAL_EPOCH = 1
NO_EPOCH = -1
METADATA_REFRESH_INTERVAL_MS = 2**31 - 1


class Subscribers(NamedTuple):
    """How a topic is subscribed to: by how many members' names, and by how many regular expressions."""

    by_name: int = 0
    by_regex: int = 0


class ResolvedRegex(NamedTuple):
    """What a regular expression came to. `version` is the metadata's at that time."""

    topics: JavaSet[str]
    version: int
    timestamp_ms: int


Subscriptions = dict[str, Subscribers]


def changed(counts: Subscriptions, topic: str, *, by_name: int = 0, by_regex: int = 0) -> None:
    """Count subscribers of a topic; nobody's is taken out."""
    old = counts.get(topic, Subscribers())
    new = Subscribers(max(old.by_name + by_name, 0), max(old.by_regex + by_regex, 0))
    if new == (0, 0):
        counts.pop(topic, None)
    else:
        counts[topic] = new


def is_homogeneous(regexes: Mapping[str, int], topics: Mapping[str, Subscribers], members: int) -> bool:
    """Whether all members subscribe to the same, as far as it can be told cheaply."""
    if not regexes:
        return all(count.by_name == members for count in topics.values())
    if next(iter(regexes.values())) != members:
        return False
    return all(count.by_regex == 1 and count.by_name == 0 for count in topics.values())


def regex_of(member: ConsumerMember | None) -> str | None:
    """The regular expression that a member subscribes to, None without one."""
    return (member.regex or None) if member is not None else None


class ConsumerGroup:
    """`members` and `server_assignors` are walked in Kafka's order."""

    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp_ms",
        "awaited_joins",
        "classic_protocols",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "homogeneous",
        "inverted_targets",
        "members",
        "metadata_hash",
        "partition_epochs",
        "refresh_deadline_ms",
        "refresh_epoch",
        "regexes",
        "resolved",
        "server_assignors",
        "static_members",
        "targets",
        "topics",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = INITIAL_EPOCH
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp_ms = 0
        self.metadata_hash = 0
        self.members: TimelineTable[ConsumerMember] = TimelineTable()
        self.static_members: dict[str, str] = {}  # instance id → member id
        self.targets: dict[str, Target] = {}
        self.inverted_targets: dict[bytes, dict[int, str]] = {}
        self.partition_epochs: dict[bytes, dict[int, int]] = {}  # of who holds a partition
        self.topics: Subscriptions = {}
        self.regexes: Counter[str] = Counter()  # how many members subscribe to each
        self.resolved: dict[str, ResolvedRegex] = {}
        self.server_assignors: TimelineTable[int] = TimelineTable()
        self.classic_protocols: Counter[str] = Counter()
        self.homogeneous = True
        self.has_partition_metadata = False  # a record of Kafka before 4.1, to be deleted
        self.refresh_deadline_ms = 0
        self.refresh_epoch = 0
        self.awaited_joins: set[str] = set()  # members of the classic protocol that were told to join again

    # --- what it is -----------------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        reconciled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return GROUP_STATES[bool(self.members), self.epoch > self.assignment_epoch, reconciled]

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def classic_count(self) -> int:
        return sum(member.is_classic for member in self.members.values())

    def member(self, member_id: str) -> ConsumerMember:
        """Raises KafkaError (UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Raises KafkaError (UNKNOWN_MEMBER_ID) for an instance id that its owner changed before it left."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.member(member_id)

    def target_of(self, member_id: str) -> Target:
        return self.targets.get(member_id, NO_TARGET)

    def target_of_member(self, member: ConsumerMember) -> Target:
        """Of a static member: that of whoever has its instance id."""
        if member.instance_id is None:
            return self.target_of(member.member_id)
        owner = self.static_members.get(member.instance_id)
        return NO_TARGET if owner is None else self.target_of(owner)

    def partition_epoch(self, topic_id: bytes, partition: int) -> int:
        return self.partition_epochs.get(topic_id, {}).get(partition, NO_EPOCH)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topics

    def needs_refresh(self, now_ms: int) -> bool:
        """Whether the hash of the metadata has to be compared again."""
        return now_ms >= self.refresh_deadline_ms or self.epoch < self.refresh_epoch

    def was_refreshed(self, now_ms: int, epoch: int) -> None:
        self.refresh_deadline_ms = now_ms + METADATA_REFRESH_INTERVAL_MS
        self.refresh_epoch = epoch

    def request_refresh(self) -> None:
        self.refresh_deadline_ms = self.refresh_epoch = 0

    def supports_classic(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member of the classic protocol with these protocols can be one of the group."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        count = self.classic_count
        return any(self.classic_protocols[name] == count for name in set(protocols))

    def all_classic_without(self, *members: ConsumerMember) -> bool:
        """Whether only members of the classic protocol are left once these are gone."""
        excluded = sum(member.is_classic for member in members)
        return self.classic_count - excluded == len(self.members) - len(members)

    def waits_for_unreleased(self, member: ConsumerMember) -> bool:
        """Whether something is still held by another that is to be this member's."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        for topic_id, partitions in self.target_of(member.member_id).items():
            assigned = member.assigned.get(topic_id)
            for partition in partitions:
                if (assigned is None or partition not in assigned) and (
                    self.partition_epoch(topic_id, partition) != NO_EPOCH
                ):
                    return True
        return False

    # --- as it would be -------------------------------------------------------------------------------------

    def regexes_with(self, old: ConsumerMember, new: ConsumerMember) -> Counter[str]:
        """How many subscribe to each regular expression once `new` takes the place of `old`."""
        return self._regexes_changed(regex_of(old), regex_of(new))

    def _regexes_changed(self, old: str | None, new: str | None) -> Counter[str]:
        counts = Counter(self.regexes)
        if old is not None and old in counts:
            counts[old] -= 1
        if new is not None:
            counts[new] += 1
        return +counts

    def topics_with(self, old: ConsumerMember, new: ConsumerMember) -> Subscriptions:
        """The subscribed topics once `new` takes the place of `old`."""
        counts = dict(self.topics)
        for topic in old.names:
            changed(counts, topic, by_name=-1)
        for topic in new.names:
            changed(counts, topic, by_name=1)
        regex = regex_of(old)
        if regex is not None and regex != regex_of(new) and self.regexes[regex] == 1:
            self._without_regex(counts, regex)
        return counts

    def topics_without(self, members: Iterable[ConsumerMember], regexes: Iterable[str]) -> Subscriptions:
        counts = dict(self.topics)
        for member in members:
            for topic in member.names:
                changed(counts, topic, by_name=-1)
        for regex in regexes:
            self._without_regex(counts, regex)
        return counts

    def _without_regex(self, counts: Subscriptions, regex: str) -> None:
        found = self.resolved.get(regex)
        for topic in found.topics if found is not None else ():
            changed(counts, topic, by_regex=-1)

    def preferred_assignor(
        self, old: ConsumerMember | None = None, new: ConsumerMember | None = None
    ) -> str | None:
        """The server assignor that most members name, once `new` takes the place of `old`; None where none does."""
        if old is None and new is None:
            counts = self.server_assignors.items()
        else:
            copy: JavaMap[str, int] = JavaMap(max(int(len(self.server_assignors) / 0.75 + 1.0), 1))
            if not self.server_assignors:
                copy = JavaMap()
            for name, count in self.server_assignors.items():
                copy[name] = count
            for member, by in ((old, -1), (new, 1)):
                if member is not None and member.assignor is not None:
                    copy.compute(member.assignor, lambda count, by=by: _counted(count, by))  # type: ignore[misc]
            counts = copy.items()
        return max(counts, key=lambda each: each[1])[0] if counts else None

    # --- applying records -----------------------------------------------------------------------------------

    def put(self, member: ConsumerMember) -> None:
        """A member is new or another than before."""
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._recount(old, member)
        if old is not None:
            self._release(old)
        for assigned in (member.assigned, member.pending):
            self._hold(assigned, member.epoch)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.homogeneous = is_homogeneous(self.regexes, self.topics, len(self.members))

    def remove(self, member_id: str) -> None:
        old = self.members.pop(member_id)
        if old is not None:
            self._recount(old, None)
            self._release(old)
            if old.instance_id is not None:
                self.static_members.pop(old.instance_id, None)
        self.awaited_joins.discard(member_id)
        self.homogeneous = is_homogeneous(self.regexes, self.topics, len(self.members))

    def _recount(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        for member, by in ((old, -1), (new, 1)):
            if member is None:
                continue
            for topic in member.names:
                changed(self.topics, topic, by_name=by)
            if member.assignor is not None:
                count = _counted(self.server_assignors.get(member.assignor), by)
                if count is None:
                    self.server_assignors.pop(member.assignor)
                else:
                    self.server_assignors[member.assignor] = count
            for name, _ in member.classic.protocols if member.classic is not None else ():
                self.classic_protocols[name] += by
        self.regexes = self._regexes_changed(regex_of(old), regex_of(new))

    def _release(self, member: ConsumerMember) -> None:
        """Free what a member held, but what another holds at another epoch by now (KAFKA-19862)."""
        for assigned in (member.assigned, member.pending):
            for topic_id, partitions in assigned.items():
                epochs = self.partition_epochs.get(topic_id, {})
                for partition in partitions:
                    if epochs.get(partition) == member.epoch:
                        del epochs[partition]
                if not epochs:
                    self.partition_epochs.pop(topic_id, None)

    def _hold(self, assigned: Assigned, epoch: int) -> None:
        """An older holder, of whom a compacted log still speaks, doesn't take it from a newer one."""
        for topic_id, partitions in assigned.items():
            epochs = self.partition_epochs.setdefault(topic_id, {})
            for partition in partitions:
                epochs[partition] = max(epochs.get(partition, epoch), epoch)
            if not epochs:
                del self.partition_epochs[topic_id]

    def set_target(self, member_id: str, target: Target | None) -> None:
        """What a member is to have; None: it isn't assigned anything any more, and isn't known to the assignment."""
        for topic_id, partitions in self.target_of(member_id).items():
            owners = self.inverted_targets.get(topic_id, {})
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self.inverted_targets.pop(topic_id, None)
        if target is None:
            self.targets.pop(member_id, None)
            return
        self.targets[member_id] = target
        for topic_id, partitions in target.items():
            self.inverted_targets.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def set_resolved(self, regex: str, resolved: ResolvedRegex | None) -> None:
        old = self.resolved.pop(regex, None)
        for topic in old.topics if old is not None else ():
            changed(self.topics, topic, by_regex=-1)
        if resolved is not None:
            self.resolved[regex] = resolved
            for topic in resolved.topics:
                changed(self.topics, topic, by_regex=1)


def _counted(count: int | None, by: int) -> int | None:
    return (count or 0) + by or None


def owned_is_part_of(owned: Owned, assigned: Assigned) -> bool:
    """Whether all that a member reports to own is assigned to it; False where it doesn't say."""
    if owned is None:
        return False
    for topic_id, partitions in owned:
        known = assigned.get(topic_id)
        if known is None or not all(partition in known for partition in partitions):
            return False
    return True
