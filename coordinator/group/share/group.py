"""A share group (KIP-932): its members, the states of its partitions, its records, and how the records build it.

A member object never changes: another one replaces it. Before a partition is assigned its state is
initialized: it is *initializing*, then *initialized*. Before a topic's state is deleted the topic is
*deleting*. A single record has all of this, and none of these values ever changes.

Source: `ShareGroup`, `ShareGroupMember`, `ShareGroupStatePartitionMetadataInfo`, `GroupMetadataManager`
(combineInitMaps, replay), `GroupCoordinatorRecordHelpers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from coordinator.group.modern.group import (
    ModernGroup,
    Subscriptions,
    Target,
    apply_target_epoch,
    count_subscribers,
    is_homogeneous,
)
from coordinator.group.offsets.commit import CommitRequest, Committer, NewOffset
from coordinator.group.records import AnyRecord, ShareGroupRecord
from coordinator.group.share.states import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    SHARE_GROUP_STATES,
    STABLE_MEMBER,
    ShareEpochRelation,
    ShareGroupState,
)
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import Error, KafkaError
from protocol.messages import group_records_share as messages
from protocol.messages.group_records_share import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartitions,
    TopicPartitionsInfo,
)

# --- members --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member of a share group."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    state: int = STABLE_MEMBER
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: JavaSet[str] = field(default_factory=JavaSet)
    listed_names: tuple[str, ...] = field(default=(), compare=False)
    """The names in Java's order, which takes too long to compute each time that somebody describes a large group.
    """
    assigned: Target = field(default_factory=JavaMap)

    def relation_of(self, epoch: int) -> ShareEpochRelation:
        """Compare the epoch of a heartbeat with the member's."""
        if epoch == JOIN_EPOCH:
            return ShareEpochRelation.JOINS
        if epoch == self.epoch:
            return ShareEpochRelation.CURRENT
        if epoch > self.epoch:
            return ShareEpochRelation.NEWER
        return ShareEpochRelation.PREVIOUS if epoch == self.previous_epoch else ShareEpochRelation.OLDER

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state == STABLE_MEMBER and self.epoch == assignment_epoch

    def subscribed_to(self, topics: Collection[str]) -> ShareMember:
        """The member with another subscription."""
        names: JavaSet[str] = JavaSet.of(topics)
        return replace(self, names=names, listed_names=tuple(names))

    # --- its records ----------------------------------------------------------------------------------------

    def metadata_value(self) -> ShareGroupMemberMetadataValue:
        """The record's value. Names of topics are in the order of Java's strings: by UTF-16 units."""
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(
                self.names, key=lambda name: name.encode("utf-16-be", "surrogatepass")
            ),
        )

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        """The member after replaying this record."""
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
        ).subscribed_to(value.subscribed_topic_names)

    def assignment_value(self) -> ShareGroupCurrentMemberAssignmentValue:
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=written_target(self.assigned),
        )

    def with_assignment(self, value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
        """The member after replaying this record."""
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=value.state,
            assigned=read_target(value.assigned_partitions),
        )

    def without_assignment(self) -> ShareMember:
        """The member after replaying the tombstone of its assignment."""
        return replace(self, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=JavaMap())


def written_target(target: Target) -> list[TopicPartitions]:
    """The target in the form of records."""
    return [
        TopicPartitions(topic_id=topic_id, partitions=[*partitions])
        for topic_id, partitions in target.items()
    ]


def read_target(topics: Sequence[TopicPartitions]) -> Target:
    """The target from its form in records."""
    target: Target = JavaMap()
    for topic in topics:
        target[topic.topic_id] = JavaSet.of(topic.partitions)
    return target


# --- the group's partitions that the share coordinator knows --------------------------------------------------

UNKNOWN_TOPIC = "<UNKNOWN>"
"""The name that Kafka writes for a topic that isn't in the metadata."""

NameOf = Callable[[bytes], str]
"""The name of a topic by its id; UNKNOWN_TOPIC if it isn't in the metadata."""

TopicsPartitions = Mapping[bytes, Iterable[int]]
"""Partitions by topic id."""


class InitTopic(NamedTuple):
    """Partitions of one topic (Kafka: `InitMapValue`)."""

    name: str
    partitions: JavaSet[int]
    since_ms: int
    """The time at which the record with them was applied."""


InitTopics = JavaMap[bytes, InitTopic]
"""By topic id."""


class StatePartitions(NamedTuple):
    """The content of the record. Kafka keeps no names of deleting topics: they are looked up each time."""

    initializing: InitTopics
    initialized: InitTopics
    deleting: JavaSet[bytes]

    @classmethod
    def none(cls) -> StatePartitions:
        """For a group without such a record."""
        return cls(JavaMap(), JavaMap(), JavaSet())

    @classmethod
    def read(cls, value: ShareGroupStatePartitionMetadataValue, now_ms: int) -> StatePartitions:
        """The content of a record that is applied now."""
        deleting: JavaSet[bytes] = JavaSet()
        deleting.update(topic.topic_id for topic in value.deleting_topics)
        return cls(
            _read(value.initializing_topics, now_ms), _read(value.initialized_topics, now_ms), deleting
        )

    def written(self, name_of: NameOf) -> ShareGroupStatePartitionMetadataValue:
        """The value of the record."""
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=_written(self.initializing),
            initialized_topics=_written(self.initialized),
            deleting_topics=[
                TopicInfo(topic_id=topic_id, topic_name=name_of(topic_id)) for topic_id in self.deleting
            ],
        )

    def known_since(self, oldest_ms: int) -> InitTopics:
        """Partitions that are initialized, or have been initializing since then."""
        fresh: InitTopics = JavaMap()
        for topic_id, topic in self.initializing.items():
            if topic.since_ms > oldest_ms:
                fresh[topic_id] = topic
        return combined_topics(self.initialized, fresh)

    def begun(self, topics: InitTopics) -> StatePartitions:
        """The content with these initializing, too. None of their topics is deleting any more."""
        initializing = combined_topics(self.initializing, topics)
        deleting: JavaSet[bytes] = JavaSet()
        deleting.update(topic_id for topic_id in self.deleting if topic_id not in initializing)
        return self._replace(initializing=initializing, deleting=deleting)

    def done(self, topics: InitTopics) -> StatePartitions:
        """The content with these initialized, and no longer initializing."""
        return self._replace(
            initializing=_without(self.initializing, {key: each.partitions for key, each in topics.items()}),
            initialized=combined_topics(self.initialized, topics),
        )

    def given_up(self, topics: TopicsPartitions) -> StatePartitions:
        """The content with these no longer initializing."""
        return self._replace(initializing=_without(self.initializing, topics))

    def without_topics(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        """The content without these topics, which are gone."""
        gone = frozenset(topic_ids)
        deleting: JavaSet[bytes] = JavaSet()
        deleting.update(topic_id for topic_id in self.deleting if topic_id not in gone)
        return StatePartitions(_kept(self.initializing, gone), _kept(self.initialized, gone), deleting)

    def names_any(self, topic_ids: Iterable[bytes]) -> bool:
        """True if it contains one of the topics."""
        return any(
            topic_id in self.initializing or topic_id in self.initialized or topic_id in self.deleting
            for topic_id in topic_ids
        )


def combined_topics(first: InitTopics, second: InitTopics) -> InitTopics:
    """The partitions of both. Names and times are those of the second if it has the topic."""
    both: InitTopics = JavaMap()
    topic_ids: JavaSet[bytes] = JavaSet.of(first.keys())
    topic_ids.update(second)
    for topic_id in topic_ids:
        one, other = first.get(topic_id), second.get(topic_id)
        partitions: JavaSet[int] = JavaSet.of([*one.partitions] if one is not None else [])
        if other is not None:
            partitions.update(other.partitions)
        latest = other or one
        assert latest is not None
        both[topic_id] = InitTopic(latest.name, partitions, latest.since_ms)
    return both


def init_topics(topics: TopicsPartitions, name_of: NameOf, now_ms: int) -> InitTopics:
    """These partitions, with the current time."""
    found: InitTopics = JavaMap()
    for topic_id, partitions in topics.items():
        found[topic_id] = InitTopic(name_of(topic_id), JavaSet.of([*partitions]), now_ms)
    return found


def _kept(topics: InitTopics, gone: frozenset[bytes]) -> InitTopics:
    kept: InitTopics = JavaMap()
    for topic_id, topic in topics.items():
        if topic_id not in gone:
            kept[topic_id] = topic
    return kept


def _without(topics: InitTopics, partitions: TopicsPartitions) -> InitTopics:
    left: InitTopics = JavaMap()
    for topic_id, topic in topics.items():
        taken = frozenset(partitions.get(topic_id, ()))
        if topic_id not in partitions:
            left[topic_id] = topic
        elif rest := [each for each in topic.partitions if each not in taken]:
            left[topic_id] = topic._replace(partitions=JavaSet.of(rest))
    return left


def _read(topics: Iterable[TopicPartitionsInfo], now_ms: int) -> InitTopics:
    found: InitTopics = JavaMap()
    for topic in topics:
        found[topic.topic_id] = InitTopic(topic.topic_name, JavaSet.of(topic.partitions), now_ms)
    return found


def _written(topics: InitTopics) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=[*topic.partitions])
        for topic_id, topic in topics.items()
    ]


# --- records --------------------------------------------------------------------------------------------------


def share_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupMetadataKey(group_id=group_id),
        ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def share_member_record(group_id: str, member: ShareMember) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), member.metadata_value()
    )


def share_target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def share_target_record(group_id: str, member_id: str, target: Target) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(topic_partitions=written_target(target)),
    )


def share_assignment_record(group_id: str, member: ShareMember) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        member.assignment_value(),
    )


def state_partitions_record(group_id: str, state: StatePartitions, name_of: NameOf) -> ShareGroupRecord:
    return ShareGroupRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), state.written(name_of))


# --- tombstones ---------------------------------------------------------------------------------------------


_MEMBER_KEYS = (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupMemberMetadataKey,
)


def share_member_tombstones(group_id: str, member_id: str) -> list[AnyRecord]:
    return [ShareGroupRecord(key(group_id=group_id, member_id=member_id), None) for key in _MEMBER_KEYS]


def share_group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[AnyRecord]:
    """The tombstones of a group with these members."""
    ids = [*member_ids]
    current, targets, members = (
        [ShareGroupRecord(key(group_id=group_id, member_id=each), None) for each in ids]
        for key in _MEMBER_KEYS
    )
    return [
        *current,
        *targets,
        ShareGroupRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *members,
        ShareGroupRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        ShareGroupRecord(ShareGroupMetadataKey(group_id=group_id), None),
    ]


# --- the group ------------------------------------------------------------------------------------------------

SHARE_TYPE = "share"
"""The protocol type and the group type in ListGroups."""


class ShareGroup(ModernGroup[ShareMember]):
    """A share group. `members` iterate in Kafka's order. `state_partitions` is None without its record."""

    type = SHARE_TYPE

    __slots__ = ("settled", "state_partitions")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state_partitions: StatePartitions | None = None
        self.settled = -1
        """The value of `changes` at which nothing had to be initialized or assigned, whatever the time."""

    def copy(self) -> ShareGroup:
        """A copy that can change independently. It shares members, targets and states of partitions, which
        never change."""
        made = ShareGroup(self.group_id)
        made.copy_common(self)
        made.targets = dict(self.targets)
        made.topics = dict(self.topics)
        made.homogeneous = self.homogeneous
        made.state_partitions = self.state_partitions
        made.follow(self)
        return made

    def follow(self, other: ShareGroup) -> None:
        """Take over the other group's state that isn't durable. This group hasn't settled, as records have
        changed it."""
        self.refresh_deadline_ms, self.refresh_epoch = other.refresh_deadline_ms, other.refresh_epoch

    @property
    def state(self) -> ShareGroupState:
        return SHARE_GROUP_STATES[bool(self.members)]

    def check_is_empty(self) -> None:
        """Raises KafkaError (NON_EMPTY_GROUP)."""
        if not self.is_empty:
            raise KafkaError(Error.NON_EMPTY_GROUP, "The group is not empty.")

    # --- for its offsets and for administrators (see `kinds.Group`) -----------------------------------------

    def _is_no_consumer_group(self) -> KafkaError:
        return KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def check_commit(
        self, committer: Committer, offsets: Sequence[NewOffset], request: CommitRequest
    ) -> None:
        """Nobody can commit offsets to it."""
        raise self._is_no_consumer_group()

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Anybody may fetch its offsets, and gets none, as in Kafka."""

    def check_offset_deletion(self) -> None:
        raise self._is_no_consumer_group()

    def check_deletion(self) -> None:
        self.check_is_empty()

    def retention_start(self) -> None:
        """It has no offsets, and stays without any."""

    def tombstones(self) -> list[AnyRecord]:
        return share_group_tombstones(self.group_id, self.members)

    # --- after a change that isn't made yet ---------------------------------------------------------------------

    def subscriptions_with(self, old: ShareMember, new: ShareMember | None) -> tuple[Subscriptions, bool]:
        """The subscribed topics after `new` replaces `old`, or after it leaves, and whether all members then
        subscribe to the same."""
        counts = dict(self.topics)
        for topic in old.names:
            count_subscribers(counts, topic, by_name=-1)
        count = len(self.members)
        if new is not None:
            for topic in new.names:
                count_subscribers(counts, topic, by_name=1)
            count += new.member_id not in self.members
        return counts, is_homogeneous({}, counts, count)

    def has_settled(self, member: ShareMember, now_ms: int) -> bool:
        """True if a member that reports nothing new needs no decision. Changes of its topics count as changes
        of the group."""
        return (
            self.settled == self.changes
            and self.assignment_epoch >= self.epoch
            and member.is_reconciled_to(self.assignment_epoch)
            and not self.needs_refresh(now_ms)
        )

    def awaits_assignment(self) -> bool:
        """True if the initialized partitions of a subscribed topic differ from the assigned ones.

        Source: `GroupMetadataManager.initializedAssignmentPending`.
        """
        state = self.state_partitions
        if state is None or not self.topics:
            return False
        for topic_id, topic in state.initialized.items():
            if topic.name not in self.topics:
                continue
            assigned: set[int] = set()
            for target in self.targets.values():
                assigned.update(target.get(topic_id) or ())
            if assigned != set(topic.partitions):
                return True
        return False

    # --- applying records -----------------------------------------------------------------------------------

    def put(self, member: ShareMember) -> None:
        """Add or replace a member."""
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._recount(old, member)

    def remove(self, member_id: str) -> None:
        self._recount(self.members.pop(member_id), None)

    def _recount(self, old: ShareMember | None, new: ShareMember | None) -> None:
        for topic in () if old is None else old.names:
            count_subscribers(self.topics, topic, by_name=-1)
        for topic in () if new is None else new.names:
            count_subscribers(self.topics, topic, by_name=1)
        self.homogeneous = is_homogeneous({}, self.topics, len(self.members))


# --- applying its records -------------------------------------------------------------------------------------
#
# Compaction may have removed some records of a step. Unknown entities are created as far as a record names
# them. Tombstones of unknown ones are ignored. The end of a group removes everything that is left of it.


def apply(group: ShareGroup, record: ShareGroupRecord, now_ms: int) -> None:
    """Change the group by one of its records, except by the tombstone that deletes it."""
    group.changes += 1
    _APPLY[type(record.key)](group, record.key, record.value, now_ms)


def _group(group: ShareGroup, key: Any, value: Any, now_ms: int) -> None:
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _member(group: ShareGroup, key: Any, value: Any, now_ms: int) -> None:
    if value is not None:
        group.put(_known(group, key.member_id).with_metadata(value))
    elif key.member_id in group.members:
        group.remove(key.member_id)


def _target(group: ShareGroup, key: Any, value: Any, now_ms: int) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = read_target(value.topic_partitions)


def _assignment(group: ShareGroup, key: Any, value: Any, now_ms: int) -> None:
    if value is not None:
        group.put(_known(group, key.member_id).with_assignment(value))
    elif key.member_id in group.members:
        group.put(group.members[key.member_id].without_assignment())


def _state_partitions(group: ShareGroup, key: Any, value: Any, now_ms: int) -> None:
    group.state_partitions = None if value is None else StatePartitions.read(value, now_ms)


def _known(group: ShareGroup, member_id: str) -> ShareMember:
    return group.members.get(member_id) or ShareMember(member_id)


_APPLY: dict[type, Callable[[ShareGroup, Any, Any, int], None]] = {
    messages.ShareGroupMetadataKey: _group,
    messages.ShareGroupMemberMetadataKey: _member,
    messages.ShareGroupTargetAssignmentMetadataKey: apply_target_epoch,
    messages.ShareGroupTargetAssignmentMemberKey: _target,
    messages.ShareGroupCurrentMemberAssignmentKey: _assignment,
    messages.ShareGroupStatePartitionMetadataKey: _state_partitions,
}
