"""A share group (KIP-932): its members, its epochs, its target assignment, and what state its partitions have.

Source: `ShareGroup`.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.group.modern.group import ModernGroup
from coordinator.group.modern.subscriptions import Subscriptions, count_subscribers, is_homogeneous
from coordinator.group.offsets.commit import Committer, NewOffset
from coordinator.group.records import AnyRecord
from coordinator.group.share.member import ShareMember
from coordinator.group.share.records import share_group_tombstones
from coordinator.group.share.state_partitions import StatePartitions
from coordinator.group.share.states import SHARE_GROUP_STATES, ShareGroupState
from protocol.errors import Error, KafkaError
from protocol.messages.groups import ListedGroup

SHARE_TYPE = "share"
"""Protocol type and group type, as ListGroups shows them."""


class ShareGroup(ModernGroup[ShareMember]):
    """`members` are walked in Kafka's order. `state_partitions` is None without a record that says it."""

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
        made.changes = self.changes
        made.epoch, made.metadata_hash = self.epoch, self.metadata_hash
        made.assignment_epoch = self.assignment_epoch
        made.assignment_timestamp_ms = self.assignment_timestamp_ms
        made.members = self.members.copy()
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

    def member(self, member_id: str) -> ShareMember:
        """Raises KafkaError (UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def check_is_empty(self) -> None:
        """Raises KafkaError (NON_EMPTY_GROUP)."""
        if not self.is_empty:
            raise KafkaError(Error.NON_EMPTY_GROUP, "The group is not empty.")

    # --- for its offsets and for administrators (see `kinds.Group`) -----------------------------------------

    def _is_no_consumer_group(self) -> KafkaError:
        return KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def check_commit(
        self, committer: Committer, offsets: Sequence[NewOffset], api_version: int | None
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

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=SHARE_TYPE,
            group_state=self.state.value,
            group_type=SHARE_TYPE,
        )

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
