"""The common part of groups that the server assigns, whatever their protocol (Kafka: `ModernGroup`).

It has members, epochs, and the hash of the topics' metadata. Groups that assign partitions also have the
target assignment and the subscribed topics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from coordinator.group.kinds import RetentionStart
from coordinator.group.offsets.commit import CommitRequest, Committer
from coordinator.java.maps import JavaMap, JavaSet, TimelineTable
from protocol.errors import Error, KafkaError
from protocol.messages.group_records import ConsumerGroupTargetAssignmentMemberValue, TopicPartition
from protocol.messages.groups import ListedGroup

# --- how often topics are subscribed to (Kafka: `SubscriptionCount`) ------------------------------------------


class Subscribers(NamedTuple):
    """The number of members that subscribe to a topic by name, and of regular expressions that match it."""

    by_name: int = 0
    by_regex: int = 0


NOBODY = Subscribers()

Subscriptions = dict[str, Subscribers]
"""By topic. Topics without subscribers have no entry."""


def count_subscribers(counts: Subscriptions, topic: str, *, by_name: int = 0, by_regex: int = 0) -> None:
    """Add subscribers to a topic. Subtracting the last one removes its entry."""
    old = counts.get(topic, NOBODY)
    new = Subscribers(max(old.by_name + by_name, 0), max(old.by_regex + by_regex, 0))
    if new == NOBODY:
        counts.pop(topic, None)
    else:
        counts[topic] = new


def is_homogeneous(regexes: Mapping[str, int], topics: Subscriptions, members: int) -> bool:
    """True if all members subscribe to the same topics, as far as that is cheap to find out.

    `regexes`: how many of them subscribe to each regular expression.
    """
    if not regexes:
        return all(count.by_name == members for count in topics.values())
    if next(iter(regexes.values())) != members:
        return False
    return all(count.by_regex == 1 and count.by_name == 0 for count in topics.values())


# --- the target assignment, and its values in records ---------------------------------------------------------

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
    """True if both have the same partitions, in any order."""
    return (
        other is not None
        and len(one) == len(other)
        and all(topic in other and set(one[topic]) == set(other[topic]) for topic in one)
    )


# --- groups ---------------------------------------------------------------------------------------------------

M = TypeVar("M")

INITIAL_EPOCH = 1
NO_EPOCH = -1
METADATA_REFRESH_INTERVAL_MS = 2**31 - 1


class AssignedGroup(Generic[M]):
    """A group that the server assigns. `members` iterate in Kafka's order.

    Its state is durable, except for `changes`, `refresh_deadline_ms` and `refresh_epoch`.
    """

    type: ClassVar[str]
    """The type of the group and of its protocol in ListGroups."""

    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp_ms",
        "changes",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "refresh_deadline_ms",
        "refresh_epoch",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.changes = 0
        """Counts its changes, for decisions that are based on an earlier look."""
        self.epoch = INITIAL_EPOCH
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp_ms = 0
        self.metadata_hash = 0
        self.members: TimelineTable[M] = TimelineTable()
        self.refresh_deadline_ms = 0
        self.refresh_epoch = 0

    @property
    def state(self) -> Enum:
        """The state in ListGroups."""
        raise NotImplementedError

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return not self.members

    def has_member(self, member_id: str) -> bool:
        """True if there is a member of this id."""
        return member_id in self.members

    def member(self, member_id: str) -> M:
        """Raises KafkaError (UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def copy_common(self, other: AssignedGroup[M]) -> None:
        """Take over the durable state that all kinds of groups have. Members are shared, as they never change."""
        self.changes = other.changes
        self.epoch, self.metadata_hash = other.epoch, other.metadata_hash
        self.assignment_epoch = other.assignment_epoch
        self.assignment_timestamp_ms = other.assignment_timestamp_ms
        self.members = other.members.copy()

    # --- for its offsets and for administrators (see `kinds.Group`) -----------------------------------------

    def takes_commit_of_anybody(self, committer: Committer, request: CommitRequest) -> bool:
        """True if this non-member may commit: if the group is empty, or in a transaction of a client that
        doesn't know groups."""
        if committer.generation < 0 and self.is_empty:
            return True
        is_nobody = not committer.member_id and committer.instance_id is None
        return request.in_transaction and committer.generation == NO_EPOCH and is_nobody

    def check_deletion(self) -> None:
        if not self.is_empty:
            raise KafkaError(Error.NON_EMPTY_GROUP)

    def retention_start(self) -> RetentionStart | None:
        return lambda offset: offset.commit_timestamp_ms

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.type,
            group_state=self.state.value,
            group_type=self.type,
        )

    # --- its assignment -------------------------------------------------------------------------------------

    def may_be_assigned(self, interval_ms: int, now_ms: int) -> bool:
        """True if the last assignment is at least this long ago."""
        since_ms = self.assignment_timestamp_ms
        return not since_ms or not interval_ms or now_ms >= since_ms + interval_ms

    # --- the metadata of its topics -------------------------------------------------------------------------

    def needs_refresh(self, now_ms: int) -> bool:
        """True if the hash of the topics' metadata has to be compared again."""
        return now_ms >= self.refresh_deadline_ms or self.epoch < self.refresh_epoch

    def was_refreshed(self, now_ms: int, epoch: int) -> None:
        self.refresh_deadline_ms = now_ms + METADATA_REFRESH_INTERVAL_MS
        self.refresh_epoch = epoch

    def request_refresh(self) -> None:
        self.changes += 1
        self.refresh_deadline_ms = self.refresh_epoch = 0


def apply_target_epoch(group: AssignedGroup[Any], key: Any, value: Any, now_ms: int = 0) -> None:
    """Apply a record of the assignment's epoch, of any kind of group."""
    if value is None:
        group.assignment_epoch, group.assignment_timestamp_ms = NO_EPOCH, 0
    else:
        group.assignment_epoch = value.assignment_epoch
        group.assignment_timestamp_ms = value.assignment_timestamp


class ModernGroup(AssignedGroup[M]):
    """A group whose members are assigned partitions of the topics that they subscribe to."""

    __slots__ = ("homogeneous", "inverted_targets", "targets", "topics")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.targets: dict[str, Target] = {}
        self.inverted_targets: dict[bytes, dict[int, str]] = {}
        self.topics: Subscriptions = {}
        self.homogeneous = True

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topics

    # --- the target assignment ------------------------------------------------------------------------------

    def target_of(self, member_id: str) -> Target:
        return self.targets.get(member_id, NO_TARGET)

    def set_target(self, member_id: str, target: Target | None) -> None:
        """Set a member's target. None removes the member from the assignment."""
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
