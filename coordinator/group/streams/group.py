"""A streams group (KIP-1071): its topology, its members, its epochs, its target assignment (Kafka: `StreamsGroup`).

Records make it, but for what is in memory alone, as in Kafka: the topology beside the topics that are there, the epoch
of the endpoints, who asked for a shutdown, whether the first assignment waits for more members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from coordinator.group.kinds import RetentionStart
from coordinator.group.modern.group import NO_EPOCH, AssignedGroup
from coordinator.group.offsets.commit import Committer, NewOffset
from coordinator.group.records import AnyRecord
from coordinator.group.streams.configured_topology import ConfiguredTopology
from coordinator.group.streams.member import StreamsMember
from coordinator.group.streams.records import streams_group_tombstones
from coordinator.group.streams.states import STREAMS_GROUP_STATES, StreamsGroupState
from coordinator.group.streams.tasks import NO_TARGET_TASKS, TargetTasks, TaskHolders
from coordinator.group.streams.topology import StreamsTopology
from protocol.errors import Error, KafkaError
from protocol.messages.groups import ListedGroup

STREAMS_TYPE = "streams"
"""Of the group, and of its protocol."""
STREAMS_MEMBER_VERSION = 9  # of OffsetCommit


class StreamsGroup(AssignedGroup[StreamsMember]):
    """`members` are walked in Kafka's order."""

    __slots__ = (
        "assignment_configs",
        "configured",
        "counted",
        "endpoint_epoch",
        "holders",
        "is_delayed",
        "shutdown_requested_by",
        "targets",
        "topology",
        "validated_epoch",
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topology: StreamsTopology | None = None
        self.validated_epoch = 0
        """Of the topology whose topics all fit and are there; 0 in a group that has no record of it yet, as Kafka's."""
        self.assignment_configs: Mapping[str, str] = {}
        self.targets: dict[str, TargetTasks] = {}
        self.holders = TaskHolders()
        self.configured: ConfiguredTopology | None = None
        self.endpoint_epoch = 0
        self.shutdown_requested_by: str | None = None
        self.is_delayed = False
        self.counted = (-1, 0)  # as of which of its `changes`, and how many bytes: see `member_memory`

    def copy(self) -> StreamsGroup:
        """One that can be changed by itself. Members, targets and the topology are never changed, so they are the same
        ones."""
        made = StreamsGroup(self.group_id)
        made.changes = self.changes
        made.epoch, made.metadata_hash = self.epoch, self.metadata_hash
        made.assignment_epoch = self.assignment_epoch
        made.assignment_timestamp_ms = self.assignment_timestamp_ms
        made.members = self.members.copy()
        made.topology, made.validated_epoch = self.topology, self.validated_epoch
        made.assignment_configs = self.assignment_configs
        made.targets = dict(self.targets)
        made.holders = self.holders.copy()
        made.counted = self.counted
        made.follow(self)
        return made

    def follow(self, other: StreamsGroup) -> None:
        """What isn't durable is as of the other one from here on; nobody has left by the records in between."""
        self.configured = other.configured
        self.endpoint_epoch = other.endpoint_epoch
        self.shutdown_requested_by = other.shutdown_requested_by
        self.is_delayed = other.is_delayed
        self.refresh_deadline_ms, self.refresh_epoch = other.refresh_deadline_ms, other.refresh_epoch

    # --- what it is -----------------------------------------------------------------------------------------

    @property
    def state(self) -> StreamsGroupState:
        topology = self.topology
        is_valid = topology is not None and topology.epoch == self.validated_epoch
        reconciled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        has_members = bool(self.members)
        return STREAMS_GROUP_STATES[has_members, is_valid, self.epoch > self.assignment_epoch, reconciled]

    def member(self, member_id: str) -> StreamsMember:
        """Raises KafkaError (UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def has_settled(self, member: StreamsMember, now_ms: int) -> bool:
        """Whether nothing is to be decided for a member that says nothing new: it has what it is to have, and no
        topic has to be looked at."""
        is_assigned = self.assignment_epoch >= self.epoch and not self.is_delayed
        is_configured = self.configured is not None and not self.needs_refresh(now_ms)
        return is_assigned and is_configured and member.is_reconciled_to(self.assignment_epoch)

    def target_of(self, member_id: str) -> TargetTasks:
        return self.targets.get(member_id, NO_TARGET_TASKS)

    def requires_any(self, topics: Set[str]) -> bool:
        """Whether its topology needs one of these to be there."""
        return self.topology is not None and not topics.isdisjoint(self.topology.required_names)

    def request_shutdown(self, member_id: str) -> None:
        """Who asks first is remembered, until everybody has left."""
        if self.shutdown_requested_by is None:
            self.shutdown_requested_by = member_id

    # --- for its offsets and for administrators (see `kinds.Group`) -----------------------------------------

    def is_subscribed_to(self, topic: str) -> bool:
        return not self.is_empty and self.topology is not None and topic in self.topology.sources

    def check_commit(
        self, committer: Committer, offsets: Sequence[NewOffset], api_version: int | None
    ) -> None:
        """A member's epoch may be behind: an offset counts if its task was the member's at that epoch (KIP-1251).

        Kafka: `StreamsGroup.validateOffsetCommit`.
        """
        epoch = committer.generation
        if epoch < 0 and self.is_empty:
            return
        in_transaction = api_version is None
        if in_transaction and epoch == NO_EPOCH and not committer.member_id and committer.instance_id is None:
            return
        member = self.member(committer.member_id)
        if api_version is not None and api_version < STREAMS_MEMBER_VERSION:
            raise KafkaError(Error.UNSUPPORTED_VERSION)
        if epoch == member.epoch:
            return
        stale = Error.ILLEGAL_GENERATION if in_transaction else Error.STALE_MEMBER_EPOCH
        if epoch > member.epoch or self.topology is None:
            raise KafkaError(stale)
        for offset in offsets:
            subtopology_id = self.topology.sources.get(offset.topic)
            since = None
            if subtopology_id is not None:
                since = member.assignment_epoch_of(subtopology_id, offset.partition)
            if since is None or epoch < since:
                raise KafkaError(stale)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        if member_id is None and epoch < 0:
            return
        if member_id is None:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR)  # Kafka: a NullPointerException
        if epoch != self.member(member_id).epoch:
            raise KafkaError(Error.STALE_MEMBER_EPOCH)

    def check_offset_deletion(self) -> None:
        """Always, of topics that it doesn't read."""

    def check_deletion(self) -> None:
        if not self.is_empty:
            raise KafkaError(Error.NON_EMPTY_GROUP)

    def retention_start(self) -> RetentionStart:
        return lambda offset: offset.commit_timestamp_ms

    def tombstones(self) -> list[AnyRecord]:
        return streams_group_tombstones(self.group_id, self.members)

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=STREAMS_TYPE,
            group_state=self.state.value,
            group_type=STREAMS_TYPE,
        )

    # --- applying records -----------------------------------------------------------------------------------

    def put(self, member: StreamsMember) -> None:
        """A member is new or another than before."""
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is not None:
            self._release(old)
        self.holders.hold(member.assigned, member.process_id)
        self.holders.hold(member.pending, member.process_id)

    def remove(self, member_id: str) -> None:
        old = self.members.pop(member_id)
        if old is not None:
            self._release(old)
        if self.is_empty:
            self.shutdown_requested_by = None

    def _release(self, member: StreamsMember) -> None:
        self.holders.release(member.assigned, member.process_id)
        self.holders.release(member.pending, member.process_id)
