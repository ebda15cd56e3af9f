"""A consumer group (KIP-848): its members, its records, and how the records build it.

A member object never changes: `replace` makes another one. The group's state comes from records, except for
`awaited_joins`, the time of the next refresh, and counts of its members. The same functions apply records
that were just appended and those replayed at a start.

Source: `ConsumerGroup`, `ConsumerGroupMember`, `GroupCoordinatorRecordHelpers`, `GroupMetadataManager.replay`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from coordinator.group.consumer.states import (
    GROUP_STATES,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    GroupState,
    MemberEpochRelation,
    MemberState,
)
from coordinator.group.modern.group import (
    NO_EPOCH,
    NO_TARGET,
    ModernGroup,
    Subscriptions,
    Target,
    apply_target_epoch,
    count_subscribers,
    is_homogeneous,
    target_from,
    target_value,
)
from coordinator.group.offsets.commit import CommitRequest, Committer, NewOffset
from coordinator.group.records import AnyRecord, ConsumerGroupRecord
from coordinator.java.maps import JavaMap, JavaSet, TimelineTable
from protocol.errors import Error, KafkaError
from protocol.messages import group_records as messages
from protocol.messages.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)

# --- members --------------------------------------------------------------------------------------------------


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched. `version` is that of the metadata at the time."""

    topics: JavaSet[str]
    version: int
    timestamp_ms: int


Assigned = JavaMap[bytes, JavaMap[int, int]]
"""Topic id → partition → the assignment epoch at which the member got it."""

Owned = Sequence[tuple[bytes, Sequence[int]]] | None
"""The partitions that a member reports to own, by topic id. None if it doesn't say."""


class ClassicMetadata(NamedTuple):
    """Additional data of a member of the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # name and metadata, in order of preference


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member. `regex` is "" or None if it has none. `pending` are the partitions that it has to give up."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    names: JavaSet[str] = field(default_factory=JavaSet)
    regex: str | None = ""
    assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=JavaMap)
    pending: Assigned = field(default_factory=JavaMap)
    classic: ClassicMetadata | None = None

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def owns_at_most(self, owned: Owned) -> bool:
        """True if all partitions that it reports to own are assigned to it. False if it reports none."""
        if owned is None:
            return False
        for topic_id, partitions in owned:
            known = self.assigned.get(topic_id)
            if known is None or not all(partition in known for partition in partitions):
                return False
        return True

    def relation_of(self, epoch: int, owned: Owned) -> MemberEpochRelation:
        """Compare the epoch of a heartbeat with the member's."""
        if epoch == JOIN_EPOCH:
            return MemberEpochRelation.JOINS
        if epoch == self.epoch:
            return MemberEpochRelation.CURRENT
        if epoch > self.epoch:
            return MemberEpochRelation.NEWER
        if epoch == self.previous_epoch and self.owns_at_most(owned):
            return MemberEpochRelation.PREVIOUS
        return MemberEpochRelation.OLDER

    def assignment_epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch since which the partition has been the member's, even if it is about to give it up."""
        for assigned in (self.assigned, self.pending):
            partitions = assigned.get(topic_id)
            if partitions is not None and partition in partitions:
                return partitions[partition]
        return None

    def at_epoch(self, epoch: int, **changes: object) -> ConsumerMember:
        """The member with these changes, and its current epoch as the previous one."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch, **changes)  # type: ignore[arg-type]

    # --- records --------------------------------------------------------------------------------------------

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        """The record's value. Names of topics are in the order of Java's strings: by UTF-16 units."""
        classic = self.classic
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(
                self.names, key=lambda name: name.encode("utf-16-be", "surrogatepass")
            ),
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=None
            if classic is None
            else ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
                ],
            ),
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """The member after replaying this record."""
        classic = value.classic_member_metadata
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            names=JavaSet.of(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicMetadata(
                classic.session_timeout_ms,
                tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
            ),
        )

    def assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_written(self.assigned),
            partitions_pending_revocation=_written(self.pending),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """The member after replaying this record. A state of a later Kafka becomes UNKNOWN."""
        known = value.state in MemberState._value2member_map_
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_read(value.assigned_partitions, value.member_epoch),
            pending=_read(value.partitions_pending_revocation, value.member_epoch),
        )


def _written(assigned: Assigned) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id, partitions=partitions.keys(), assignment_epochs=partitions.values()
        )
        for topic_id, partitions in assigned.items()
    ]


def _read(topics: Sequence[TopicPartitions], member_epoch: int) -> Assigned:
    """Read assigned partitions. Without assignment epochs (before Kafka 4.3) use the member's own epoch."""
    assigned: Assigned = JavaMap()
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        partitions: JavaMap[int, int] = JavaMap()
        for partition, epoch in zip(topic.partitions, epochs, strict=True):
            partitions[partition] = epoch
        assigned[topic.topic_id] = partitions
    return assigned


# --- records --------------------------------------------------------------------------------------------------


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def partition_metadata_tombstone(group_id: str) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_record(group_id: str, member: ConsumerMember) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), member.metadata_value()
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def target_record(group_id: str, member_id: str, target: Target) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), target_value(target)
    )


def assignment_record(group_id: str, member: ConsumerMember) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        member.assignment_value(),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex | None) -> ConsumerGroupRecord:
    """None: nobody subscribes to the expression any more."""
    value = None
    if resolved is not None:
        value = ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics, key=lambda name: name.encode("utf-16-be", "surrogatepass")),
            version=resolved.version,
            timestamp=resolved.timestamp_ms,
        )
    return ConsumerGroupRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value
    )


# --- tombstones -----------------------------------------------------------------------------------------------


_MEMBER_KEYS = (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupMemberMetadataKey,
)


def member_tombstones(group_id: str, member_id: str) -> list[AnyRecord]:
    return [ConsumerGroupRecord(key(group_id=group_id, member_id=member_id), None) for key in _MEMBER_KEYS]


def group_tombstones(group_id: str, member_ids: Iterable[str], regexes: Iterable[str]) -> list[AnyRecord]:
    """The tombstones of a group with these members and resolved regular expressions."""
    ids = [*member_ids]
    current, targets, members = (
        [ConsumerGroupRecord(key(group_id=group_id, member_id=each), None) for each in ids]
        for key in _MEMBER_KEYS
    )
    return [
        *current,
        *targets,
        ConsumerGroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *members,
        *(regex_record(group_id, regex, None) for regex in regexes),
        partition_metadata_tombstone(group_id),
        ConsumerGroupRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


# --- the group ------------------------------------------------------------------------------------------------

CONSUMER_PROTOCOL_TYPE = "consumer"
CONSUMER_TYPE = "consumer"
CONSUMER_MEMBER_VERSION = 9  # of OffsetCommit


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """A consumer group. `members` and `server_assignors` iterate in Kafka's order."""

    type = CONSUMER_TYPE

    __slots__ = (
        "awaited_joins",
        "classic_protocols",
        "counted",
        "has_partition_metadata",
        "partition_epochs",
        "regexes",
        "resolved",
        "server_assignors",
        "static_members",
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}  # instance id → member id
        self.partition_epochs: dict[bytes, dict[int, int]] = {}  # the epoch of each partition's holder
        self.regexes: Counter[str] = Counter()  # expression → number of members that subscribe to it
        self.resolved: dict[str, ResolvedRegex] = {}
        self.server_assignors: TimelineTable[int] = TimelineTable()
        self.classic_protocols: Counter[str] = Counter()
        self.has_partition_metadata = False  # a record of Kafka before 4.1, to be deleted
        self.counted = (-1, 0)  # (its `changes` at the last count, bytes): see `member_memory`
        self.awaited_joins: set[str] = set()  # members of the classic protocol that have to join again

    def copy(self) -> ConsumerGroup:
        """A copy that can change independently. It shares members and targets, which never change."""
        made = ConsumerGroup(self.group_id)
        made.copy_common(self)
        made.targets = dict(self.targets)
        made.inverted_targets = {topic_id: dict(owners) for topic_id, owners in self.inverted_targets.items()}
        made.topics = dict(self.topics)
        made.homogeneous = self.homogeneous
        made.static_members = dict(self.static_members)
        made.partition_epochs = {topic_id: dict(epochs) for topic_id, epochs in self.partition_epochs.items()}
        made.regexes = Counter(self.regexes)
        made.resolved = dict(self.resolved)
        made.server_assignors = self.server_assignors.copy()
        made.classic_protocols = Counter(self.classic_protocols)
        made.counted = self.counted
        made.has_partition_metadata = self.has_partition_metadata
        made.follow(self)
        return made

    def follow(self, other: ConsumerGroup) -> None:
        """Take over the other group's state that isn't durable."""
        self.awaited_joins = set(other.awaited_joins)
        self.refresh_deadline_ms, self.refresh_epoch = other.refresh_deadline_ms, other.refresh_epoch

    # --- what it is -----------------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        reconciled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return GROUP_STATES[bool(self.members), self.epoch > self.assignment_epoch, reconciled]

    @property
    def classic_count(self) -> int:
        return sum(member.is_classic for member in self.members.values())

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.member(member_id)

    def member_as(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the member. With an instance id, it must own that.

        Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        if instance_id is None:  # for each heartbeat; `member` only raises the error
            return self.members.get(member_id) or self.member(member_id)
        owner = self.static_member(instance_id)
        if owner is None:
            raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if owner.member_id != member_id:
            raise KafkaError(
                Error.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {owner.member_id}.",
            )
        return owner

    def target_of_member(self, member: ConsumerMember) -> Target:
        """The member's target. For a static member, it is that of the current owner of its instance id."""
        if member.instance_id is None:
            return self.target_of(member.member_id)
        owner = self.static_members.get(member.instance_id)
        return NO_TARGET if owner is None else self.target_of(owner)

    def partition_epoch(self, topic_id: bytes, partition: int) -> int:
        return self.partition_epochs.get(topic_id, {}).get(partition, NO_EPOCH)

    def has_settled(self, member: ConsumerMember, now_ms: int) -> bool:
        """True if a member that reports nothing new needs no decision.

        It has its target, and neither metadata nor regular expressions have to be checked.
        """
        return (
            member.state is MemberState.STABLE
            and member.epoch == self.assignment_epoch >= self.epoch >= self.refresh_epoch
            and now_ms < self.refresh_deadline_ms
            and not self.regexes
        )

    def supports_classic(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """True if a member of the classic protocol with these protocols can join the group."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        count = self.classic_count
        return any(self.classic_protocols[name] == count for name in set(protocols))

    def all_classic_without(self, *members: ConsumerMember) -> bool:
        """True if only members of the classic protocol remain without these."""
        excluded = sum(member.is_classic for member in members)
        return self.classic_count - excluded == len(self.members) - len(members)

    def waits_for_unreleased(self, member: ConsumerMember) -> bool:
        """True if another member still holds a partition of this member's target."""
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

    # --- for its offsets and for administrators (see `kinds.Group`) -----------------------------------------

    def check_commit(
        self, committer: Committer, offsets: Sequence[NewOffset], request: CommitRequest
    ) -> None:
        """Check a commit. A member's epoch may be behind: an offset counts if its partition was the member's
        at that epoch (KIP-1251).

        Kafka: `ConsumerGroup.validateOffsetCommit`.
        """
        epoch = committer.generation
        if self.takes_commit_of_anybody(committer, request):
            return
        member = self.member(committer.member_id)
        is_commit = not request.in_transaction
        if is_commit and not member.is_classic and request.version < CONSUMER_MEMBER_VERSION:
            raise KafkaError(Error.UNSUPPORTED_VERSION)
        if epoch == member.epoch:
            return
        knows_epochs = request.tells_stale_epochs and not member.is_classic
        stale = Error.STALE_MEMBER_EPOCH if knows_epochs else Error.ILLEGAL_GENERATION
        if epoch > member.epoch:
            raise KafkaError(stale)
        for offset in offsets:
            since = member.assignment_epoch_of(offset.topic_id, offset.partition)
            if since is None or epoch < since:
                raise KafkaError(stale)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH; ILLEGAL_GENERATION for a member of the classic protocol."""
        if member_id is None and epoch < 0:
            return
        if member_id is None:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR)  # Kafka: a NullPointerException
        member = self.member(member_id)
        if epoch != member.epoch:
            raise KafkaError(Error.ILLEGAL_GENERATION if member.is_classic else Error.STALE_MEMBER_EPOCH)

    def check_offset_deletion(self) -> None:
        """Offsets of topics that nobody subscribes to can always be deleted."""

    def tombstones(self) -> list[AnyRecord]:
        return group_tombstones(self.group_id, self.members, self.resolved)

    # --- after a change that isn't made yet ---------------------------------------------------------------------

    def regexes_with(self, old: ConsumerMember, new: ConsumerMember) -> Counter[str]:
        """Regular expressions with their number of subscribers, after `new` replaces `old`."""
        return _recounted(self.regexes, old.regex or None, new.regex or None)

    def subscriptions_with(self, old: ConsumerMember, new: ConsumerMember) -> tuple[Subscriptions, bool]:
        """The subscribed topics after `new` replaces `old`, and whether all members then subscribe to the same."""
        counts = dict(self.topics)
        regexes = self.regexes_with(old, new)
        for topic in old.names:
            count_subscribers(counts, topic, by_name=-1)
        for topic in new.names:
            count_subscribers(counts, topic, by_name=1)
        regex = old.regex
        if regex and regex != new.regex and self.regexes[regex] == 1:
            self._without_regex(counts, regex)
        is_one_more = new.member_id not in self.members and new.instance_id not in self.static_members
        count = len(self.members) + is_one_more
        return counts, is_homogeneous(regexes, counts, count)

    def topics_without(self, members: Iterable[ConsumerMember], regexes: Iterable[str]) -> Subscriptions:
        counts = dict(self.topics)
        for member in members:
            for topic in member.names:
                count_subscribers(counts, topic, by_name=-1)
        for regex in regexes:
            self._without_regex(counts, regex)
        return counts

    def _without_regex(self, counts: Subscriptions, regex: str) -> None:
        found = self.resolved.get(regex)
        for topic in found.topics if found is not None else ():
            count_subscribers(counts, topic, by_regex=-1)

    def preferred_assignor(
        self, old: ConsumerMember | None = None, new: ConsumerMember | None = None
    ) -> str | None:
        """The server assignor that most members name, after `new` replaces `old`. None if nobody names one."""
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
        """Add or replace a member."""
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is not None:
            self._release(old)
        for assigned in (member.assigned, member.pending):
            self._hold(assigned, member.epoch)
        if old is not None and old.instance_id is not None:
            self.static_members.pop(old.instance_id, None)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._recount(old, member)
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
        was = None if old is None else old.regex or None
        now = None if new is None else new.regex or None
        self.regexes = _recounted(self.regexes, was, now)
        for member, by in ((old, -1), (new, 1)):
            if member is None:
                continue
            for topic in member.names:
                count_subscribers(self.topics, topic, by_name=by)
            if member.assignor is not None:
                count = _counted(self.server_assignors.get(member.assignor), by)
                if count is None:
                    self.server_assignors.pop(member.assignor)
                else:
                    self.server_assignors[member.assignor] = count
            for name, _ in member.classic.protocols if member.classic is not None else ():
                self.classic_protocols[name] += by

    def _release(self, member: ConsumerMember) -> None:
        """Free the partitions of a member, except those that another member now holds at another epoch
        (KAFKA-19862)."""
        for assigned in (member.assigned, member.pending):
            for topic_id, partitions in assigned.items():
                epochs = self.partition_epochs.get(topic_id, {})
                for partition in partitions:
                    if epochs.get(partition) == member.epoch:
                        del epochs[partition]
                if not epochs:
                    self.partition_epochs.pop(topic_id, None)

    def _hold(self, assigned: Assigned, epoch: int) -> None:
        """Note the holder's epoch. An older holder, in a compacted log, doesn't take the partition from a
        newer one."""
        for topic_id, partitions in assigned.items():
            epochs = self.partition_epochs.setdefault(topic_id, {})
            for partition in partitions:
                epochs[partition] = max(epochs.get(partition, epoch), epoch)
            if not epochs:
                del self.partition_epochs[topic_id]

    def set_resolved(self, regex: str, resolved: ResolvedRegex | None) -> None:
        old = self.resolved.pop(regex, None)
        for topic in old.topics if old is not None else ():
            count_subscribers(self.topics, topic, by_regex=-1)
        if resolved is not None:
            self.resolved[regex] = resolved
            for topic in resolved.topics:
                count_subscribers(self.topics, topic, by_regex=1)


def _counted(count: int | None, by: int) -> int | None:
    return (count or 0) + by or None


def _recounted(regexes: Counter[str], old: str | None, new: str | None) -> Counter[str]:
    counts = Counter(regexes)
    if old is not None and old in counts:
        counts[old] -= 1
    if new is not None:
        counts[new] += 1
    return +counts


# --- applying its records -------------------------------------------------------------------------------------
#
# Compaction may have removed some records of a step. Unknown entities are created as far as a record names
# them. Tombstones of unknown ones are ignored. The end of a group removes everything that is left of it.


def apply(group: ConsumerGroup, record: ConsumerGroupRecord) -> None:
    """Change the group by one of its records, except by the tombstone that deletes it."""
    group.changes += 1
    _APPLY[type(record.key)](group, record.key, record.value)


def _group(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _partition_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.has_partition_metadata = value is not None


def _member(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.remove(key.member_id)
    else:
        group.put(_known(group, key.member_id).with_metadata(value))


def _target(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.set_target(key.member_id, None if value is None else target_from(value))


def _assignment(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.put(_known(group, key.member_id).with_assignment(value))
    elif key.member_id in group.members:
        member = group.members[key.member_id]
        group.put(
            replace(
                member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=JavaMap(), pending=JavaMap()
            )
        )


def _regex(group: ConsumerGroup, key: Any, value: Any) -> None:
    resolved = None
    if value is not None:
        resolved = ResolvedRegex(JavaSet.of(value.topics), value.version, value.timestamp)
    group.set_resolved(key.regular_expression, resolved)


def _known(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    return group.members.get(member_id) or ConsumerMember(member_id)


_APPLY: dict[type, Callable[[ConsumerGroup, Any, Any], None]] = {
    messages.ConsumerGroupMetadataKey: _group,
    messages.ConsumerGroupPartitionMetadataKey: _partition_metadata,
    messages.ConsumerGroupMemberMetadataKey: _member,
    messages.ConsumerGroupTargetAssignmentMetadataKey: apply_target_epoch,
    messages.ConsumerGroupTargetAssignmentMemberKey: _target,
    messages.ConsumerGroupCurrentMemberAssignmentKey: _assignment,
    messages.ConsumerGroupRegularExpressionKey: _regex,
}
