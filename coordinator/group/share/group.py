"""A share group (KIP-932): its members, what state its partitions have, its records, the group, and how records make
it.

A member is never changed: another one takes its place. Before a partition is assigned to anybody its state is
initialized: *initializing*, then *initialized*. Before a topic's state is deleted it is *deleting*. One record says
all of it, and none of these values is ever changed.

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
    """A member."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    state: int = STABLE_MEMBER
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: JavaSet[str] = field(default_factory=JavaSet)
    listed_names: tuple[str, ...] = field(default=(), compare=False)
    """The same in Java's order, which is long to find anew each time that somebody describes a large group."""
    assigned: Target = field(default_factory=JavaMap)

    def relation_of(self, epoch: int) -> ShareEpochRelation:
        """How the epoch of a heartbeat stands to its own."""
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
        """As it is with another subscription."""
        names: JavaSet[str] = JavaSet.of(topics)
        return replace(self, names=names, listed_names=tuple(names))

    # --- its records ----------------------------------------------------------------------------------------

    def metadata_value(self) -> ShareGroupMemberMetadataValue:
        """The record's value, with the topics' names in the order of Java's strings: by UTF-16 units."""
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(
                self.names, key=lambda name: name.encode("utf-16-be", "surrogatepass")
            ),
        )

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        """As it is once such a record was replayed."""
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
        """As it is once such a record was replayed."""
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=value.state,
            assigned=read_target(value.assigned_partitions),
        )

    def without_assignment(self) -> ShareMember:
        """As it is once the end of its assignment was replayed."""
        return replace(self, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=JavaMap())


def written_target(target: Target) -> list[TopicPartitions]:
    """As records have it."""
    return [
        TopicPartitions(topic_id=topic_id, partitions=[*partitions])
        for topic_id, partitions in target.items()
    ]


def read_target(topics: Sequence[TopicPartitions]) -> Target:
    """What such a record says."""
    target: Target = JavaMap()
    for topic in topics:
        target[topic.topic_id] = JavaSet.of(topic.partitions)
    return target


# --- which partitions the share coordinator knows of the group ------------------------------------------------

UNKNOWN_TOPIC = "<UNKNOWN>"
"""The name of a topic that isn't in the metadata, as Kafka writes it."""

NameOf = Callable[[bytes], str]
"""The name of a topic by its id; UNKNOWN_TOPIC where it isn't in the metadata."""

TopicsPartitions = Mapping[bytes, Iterable[int]]
"""Partitions by topic id."""


class InitTopic(NamedTuple):
    """Partitions of one topic (Kafka: `InitMapValue`)."""

    name: str
    partitions: JavaSet[int]
    since_ms: int
    """When the record was applied that says so."""


InitTopics = JavaMap[bytes, InitTopic]
"""By topic id."""


class StatePartitions(NamedTuple):
    """All that the record says. Kafka keeps no names of what is deleting: they are looked up each time."""

    initializing: InitTopics
    initialized: InitTopics
    deleting: JavaSet[bytes]

    @classmethod
    def none(cls) -> StatePartitions:
        """Of a group that has no such record."""
        return cls(JavaMap(), JavaMap(), JavaSet())

    @classmethod
    def read(cls, value: ShareGroupStatePartitionMetadataValue, now_ms: int) -> StatePartitions:
        """What a record says that is applied now."""
        deleting: JavaSet[bytes] = JavaSet()
        deleting.update(topic.topic_id for topic in value.deleting_topics)
        return cls(
            _read(value.initializing_topics, now_ms), _read(value.initialized_topics, now_ms), deleting
        )

    def written(self, name_of: NameOf) -> ShareGroupStatePartitionMetadataValue:
        """As the record has it."""
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=_written(self.initializing),
            initialized_topics=_written(self.initialized),
            deleting_topics=[
                TopicInfo(topic_id=topic_id, topic_name=name_of(topic_id)) for topic_id in self.deleting
            ],
        )

    def known_since(self, oldest_ms: int) -> InitTopics:
        """What is initialized, or was initializing since then."""
        fresh: InitTopics = JavaMap()
        for topic_id, topic in self.initializing.items():
            if topic.since_ms > oldest_ms:
                fresh[topic_id] = topic
        return combined_topics(self.initialized, fresh)

    def begun(self, topics: InitTopics) -> StatePartitions:
        """With these initializing, too; what was to be deleted of them isn't any more."""
        initializing = combined_topics(self.initializing, topics)
        deleting: JavaSet[bytes] = JavaSet()
        deleting.update(topic_id for topic_id in self.deleting if topic_id not in initializing)
        return self._replace(initializing=initializing, deleting=deleting)

    def done(self, topics: InitTopics) -> StatePartitions:
        """These are initialized, and no longer initializing."""
        return self._replace(
            initializing=_without(self.initializing, {key: each.partitions for key, each in topics.items()}),
            initialized=combined_topics(self.initialized, topics),
        )

    def given_up(self, topics: TopicsPartitions) -> StatePartitions:
        """These are no longer initializing."""
        return self._replace(initializing=_without(self.initializing, topics))

    def without_topics(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        """The topics are gone, and so is all that was of them."""
        gone = frozenset(topic_ids)
        deleting: JavaSet[bytes] = JavaSet()
        deleting.update(topic_id for topic_id in self.deleting if topic_id not in gone)
        return StatePartitions(_kept(self.initializing, gone), _kept(self.initialized, gone), deleting)

    def names_any(self, topic_ids: Iterable[bytes]) -> bool:
        """Whether one of the topics is in it."""
        return any(
            topic_id in self.initializing or topic_id in self.initialized or topic_id in self.deleting
            for topic_id in topic_ids
        )


def combined_topics(first: InitTopics, second: InitTopics) -> InitTopics:
    """The partitions of both; names and times are those of the second where it has the topic."""
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
    """These partitions, as of now."""
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


# --- ends ---------------------------------------------------------------------------------------------------


_MEMBER_KEYS = (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupMemberMetadataKey,
)


def share_member_tombstones(group_id: str, member_id: str) -> list[AnyRecord]:
    return [ShareGroupRecord(key(group_id=group_id, member_id=member_id), None) for key in _MEMBER_KEYS]


def share_group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[AnyRecord]:
    """The end of a group with these members."""
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
"""Protocol type and group type, as ListGroups shows them."""


class ShareGroup(ModernGroup[ShareMember]):
    """`members` are walked in Kafka's order. `state_partitions` is None without a record that says it."""

    type = SHARE_TYPE

    __slots__ = ("settled", "state_partitions")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state_partitions: StatePartitions | None = None
        self.settled = -1
        """As of which of its `changes` nothing is to be initialized or assigned, whatever the time."""

    def copy(self) -> ShareGroup:
        """One that can be changed by itself. Members, targets and what states its partitions have are never changed, so
        they are the same ones."""
        made = ShareGroup(self.group_id)
        made.copy_common(self)
        made.targets = dict(self.targets)
        made.topics = dict(self.topics)
        made.homogeneous = self.homogeneous
        made.state_partitions = self.state_partitions
        made.follow(self)
        return made

    def follow(self, other: ShareGroup) -> None:
        """What isn't durable is as of the other one from here on. It hasn't settled: records have made it."""
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
        """Nobody commits to it."""
        raise self._is_no_consumer_group()

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whoever asks is told that there are none, as in Kafka."""

    def check_offset_deletion(self) -> None:
        raise self._is_no_consumer_group()

    def check_deletion(self) -> None:
        self.check_is_empty()

    def retention_start(self) -> None:
        """It has no offsets, and stays without them."""

    def tombstones(self) -> list[AnyRecord]:
        return share_group_tombstones(self.group_id, self.members)

    # --- as it would be -------------------------------------------------------------------------------------

    def subscriptions_with(self, old: ShareMember, new: ShareMember | None) -> tuple[Subscriptions, bool]:
        """The subscribed topics once `new` takes the place of `old`, or nobody does, and whether all subscribe to the
        same then."""
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
        """Whether nothing is to be decided for a member that says nothing new. What becomes of its topics counts as a
        change of the group."""
        return (
            self.settled == self.changes
            and self.assignment_epoch >= self.epoch
            and member.is_reconciled_to(self.assignment_epoch)
            and not self.needs_refresh(now_ms)
        )

    def awaits_assignment(self) -> bool:
        """Whether the initialized partitions of a subscribed topic are others than those that are assigned.

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
        """A member is new or another than before."""
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


# --- records, applied -----------------------------------------------------------------------------------------
#
# Compaction may have left out parts of a step: what isn't known is made as far as it is named, tombstones of
# what isn't there are passed over, and a group's end takes along what nobody has taken away.


def apply(group: ShareGroup, record: ShareGroupRecord, now_ms: int) -> None:
    """Change a group by one of its records, but for the one that ends it."""
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
