"""A streams group (KIP-1071): its members, its records, and how the records build it.

A member object never changes: `replace` makes another one. The group's state comes from records, except for
what is only in memory, as in Kafka: the configured topology, the epoch of the endpoints, who requested a
shutdown, whether the first assignment waits for more members, and the members' positions in their state.

Source: `StreamsGroup`, `StreamsGroupMember`, `StreamsCoordinatorRecordHelpers`, `GroupMetadataManager.replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from coordinator.group.consumer.states import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    MemberEpochRelation,
)
from coordinator.group.modern.group import NO_EPOCH, AssignedGroup, apply_target_epoch
from coordinator.group.offsets.commit import CommitRequest, Committer, NewOffset
from coordinator.group.records import AnyRecord, StreamsGroupRecord
from coordinator.group.streams import tasks
from coordinator.group.streams.states import STREAMS_GROUP_STATES, StreamsGroupState, StreamsMemberState
from coordinator.group.streams.tasks import (
    NO_OFFSETS,
    NO_TARGET_TASKS,
    NO_TASKS,
    ActiveTasks,
    MemberTasks,
    OwnedTasks,
    TargetTasks,
    TaskHolders,
    TaskOffsets,
    target_task_ids,
    task_sets,
)
from coordinator.group.streams.topology import ConfiguredTopology, StreamsTopology
from coordinator.java.maps import JavaMap
from protocol.errors import Error, KafkaError
from protocol.messages import group_records as messages
from protocol.messages.group_records import (
    Endpoint,
    KeyValue,
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)

# --- members --------------------------------------------------------------------------------------------------


class UserEndpoint(NamedTuple):
    """The address at which an application answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member. The members of one process have the same `process_id`. `pending` are tasks that it has to give up."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: UserEndpoint | None = None
    tags: JavaMap[str, str] = field(default_factory=JavaMap)
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: MemberTasks = NO_TASKS
    pending: MemberTasks = NO_TASKS

    @property
    def is_away(self) -> bool:
        """True if it is a static member that has left for a while."""
        return self.epoch == LEAVE_STATIC_EPOCH

    def left_for_a_while(self) -> StreamsMember:
        """The static member after leaving with epoch −2. It keeps its tasks, as if it had always had them."""
        active: ActiveTasks = JavaMap()
        for subtopology_id, epochs in self.assigned.active.items():
            since = active[subtopology_id] = JavaMap()
            for partition in epochs:
                since[partition] = 0
        return replace(
            self, epoch=LEAVE_STATIC_EPOCH, assigned=self.assigned._replace(active=active), pending=NO_TASKS
        )

    def taken_over_by(self, member_id: str) -> StreamsMember:
        """The static member under the new id with which it comes back."""
        return replace(self, member_id=member_id, epoch=0, previous_epoch=0)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is StreamsMemberState.STABLE and self.epoch == assignment_epoch

    def relation_of(self, epoch: int, owned: OwnedTasks) -> MemberEpochRelation:
        """Compare the epoch of a heartbeat with the member's."""
        if epoch == JOIN_EPOCH:
            return MemberEpochRelation.JOINS
        if epoch == self.epoch:
            return MemberEpochRelation.CURRENT
        if epoch > self.epoch:
            return MemberEpochRelation.NEWER
        if epoch == self.previous_epoch and owned.is_within(self.assigned):
            return MemberEpochRelation.PREVIOUS
        return MemberEpochRelation.OLDER

    def assignment_epoch_of(self, subtopology_id: str, partition: int) -> int | None:
        """The epoch since which the active task has been the member's, even if it is about to give it up."""
        for held in (self.assigned, self.pending):
            epochs = held.active.get(subtopology_id)
            if epochs is not None and partition in epochs:
                return epochs[partition]
        return None

    def at_epoch(
        self, epoch: int, state: StreamsMemberState, assigned: MemberTasks, pending: MemberTasks = NO_TASKS
    ) -> StreamsMember:
        """The member after one step of reconciliation, with its current epoch as the previous one."""
        return replace(
            self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, pending=pending
        )

    # --- records --------------------------------------------------------------------------------------------

    def metadata_value(self) -> StreamsGroupMemberMetadataValue:
        """The record's value, with the tags in the order of their keys."""
        endpoint = self.endpoint
        return StreamsGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
            client_tags=[
                KeyValue(key=key, value=self.tags[key]) for key in sorted(self.tags, key=tasks.by_name)
            ],
        )

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
        """The member after replaying this record."""
        endpoint = value.user_endpoint
        tags: JavaMap[str, str] = JavaMap()
        for tag in value.client_tags:
            tags[tag.key] = tag.value
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
            tags=tags,
        )

    def assignment_value(self) -> StreamsGroupCurrentMemberAssignmentValue:
        """The record's value. Tasks are sorted."""
        assigned, pending = self.assigned, self.pending
        return StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            active_tasks=tasks.active_task_ids(assigned.active),
            standby_tasks=tasks.current_task_ids(assigned.standby),
            warmup_tasks=tasks.current_task_ids(assigned.warmup),
            active_tasks_pending_revocation=tasks.active_task_ids(pending.active),
            standby_tasks_pending_revocation=tasks.current_task_ids(pending.standby),
            warmup_tasks_pending_revocation=tasks.current_task_ids(pending.warmup),
        )

    def with_assignment(self, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
        """The member after replaying this record. A state of a later Kafka becomes UNKNOWN."""
        known = value.state in StreamsMemberState._value2member_map_
        epoch = value.member_epoch
        return replace(
            self,
            epoch=epoch,
            previous_epoch=value.previous_member_epoch,
            state=StreamsMemberState(value.state) if known else StreamsMemberState.UNKNOWN,
            assigned=MemberTasks(
                tasks.active_tasks(value.active_tasks, epoch),
                tasks.task_sets(value.standby_tasks),
                tasks.task_sets(value.warmup_tasks),
            ),
            pending=MemberTasks(
                tasks.active_tasks(value.active_tasks_pending_revocation, epoch),
                tasks.task_sets(value.standby_tasks_pending_revocation),
                tasks.task_sets(value.warmup_tasks_pending_revocation),
            ),
        )


# --- records --------------------------------------------------------------------------------------------------


def group_epoch_record(
    group: StreamsGroup, epoch: int, metadata_hash: int, validated_epoch: int, configs: Mapping[str, str]
) -> StreamsGroupRecord:
    """The record of the group's epoch.

    `validated_epoch` is the epoch of the topology if all its topics fit, −1 if not. `configs` are the
    settings for the next assignment. The epochs of the topology's description stay.
    """
    return StreamsGroupRecord(
        StreamsGroupMetadataKey(group_id=group.group_id),
        StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validated_epoch,
            last_assignment_configs=[
                LastAssignmentConfig(key=key, value=configs[key]) for key in sorted(configs)
            ],
            stored_description_topology_epoch=group.stored_description_epoch,
            failed_description_topology_epoch=group.failed_description_epoch,
        ),
    )


def topology_record(group_id: str, value: StreamsGroupTopologyValue | None) -> StreamsGroupRecord:
    return StreamsGroupRecord(StreamsGroupTopologyKey(group_id=group_id), value)


def streams_member_record(group_id: str, member: StreamsMember) -> StreamsGroupRecord:
    return StreamsGroupRecord(
        StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), member.metadata_value()
    )


def target_tasks_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> StreamsGroupRecord:
    return StreamsGroupRecord(
        StreamsGroupTargetAssignmentMetadataKey(group_id=group_id),
        StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def target_tasks_record(group_id: str, member_id: str, target: TargetTasks) -> StreamsGroupRecord:
    return StreamsGroupRecord(
        StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        StreamsGroupTargetAssignmentMemberValue(
            active_tasks=target_task_ids(target.active),
            standby_tasks=target_task_ids(target.standby),
            warmup_tasks=target_task_ids(target.warmup),
        ),
    )


def current_tasks_record(group_id: str, member: StreamsMember) -> StreamsGroupRecord:
    return StreamsGroupRecord(
        StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        member.assignment_value(),
    )


# --- tombstones ---------------------------------------------------------------------------------------------


_MEMBER_KEYS = (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupMemberMetadataKey,
)


def streams_member_tombstones(group_id: str, member_id: str) -> list[AnyRecord]:
    return [StreamsGroupRecord(key(group_id=group_id, member_id=member_id), None) for key in _MEMBER_KEYS]


def streams_member_replaced(
    group_id: str, old: StreamsMember, new: StreamsMember, target: TargetTasks
) -> list[AnyRecord]:
    """The records for a static member that has come back, under another id or its own."""
    return [
        *streams_member_tombstones(group_id, old.member_id),
        streams_member_record(group_id, new),
        target_tasks_record(group_id, new.member_id, target),
        current_tasks_record(group_id, new),
    ]


def streams_group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[AnyRecord]:
    """The tombstones of a group with these members."""
    ids = [*member_ids]
    current, targets, members = (
        [StreamsGroupRecord(key(group_id=group_id, member_id=each), None) for each in ids]
        for key in _MEMBER_KEYS
    )
    return [
        *current,
        *targets,
        StreamsGroupRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *members,
        StreamsGroupRecord(StreamsGroupMetadataKey(group_id=group_id), None),
        topology_record(group_id, None),
    ]


# --- the group ------------------------------------------------------------------------------------------------

STREAMS_TYPE = "streams"
"""The type of the group, and of its protocol."""
STREAMS_MEMBER_VERSION = 9  # of OffsetCommit


class StreamsGroup(AssignedGroup[StreamsMember]):
    """A streams group. `members` iterate in Kafka's order."""

    type = STREAMS_TYPE

    __slots__ = (
        "assignment_configs",
        "configured",
        "counted",
        "endpoint_epoch",
        "failed_description_epoch",
        "holders",
        "is_delayed",
        "refined",
        "refined_epoch",
        "shutdown_requested_by",
        "static_members",
        "stored_description_epoch",
        "targets",
        "task_offsets",
        "topology",
        "validated_epoch",
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topology: StreamsTopology | None = None
        self.validated_epoch = 0
        """The epoch of the topology if all its topics exist and fit; 0 in a group without a record of it, as
        in Kafka."""
        self.assignment_configs: Mapping[str, str] = {}
        self.targets: dict[str, TargetTasks] = {}
        self.static_members: dict[str, str] = {}
        """Instance id → member id."""
        self.stored_description_epoch = self.failed_description_epoch = NO_EPOCH
        """The epochs of the topologies for which a plugin of Kafka's has stored or refused a description
        (KIP-1331)."""
        self.holders = TaskHolders()
        self.task_offsets: dict[str, TaskOffsets] = {}
        self.refined: Mapping[str, TargetTasks] = {}
        """The targets of the assignment `refined_epoch`, including those of members that have left since. A
        member that comes back before the next assignment gets its target again."""
        self.refined_epoch = NO_EPOCH
        self.configured: ConfiguredTopology | None = None
        self.endpoint_epoch = 0
        self.shutdown_requested_by: str | None = None
        self.is_delayed = False
        self.counted = (-1, 0)  # (its `changes` at the last count, bytes): see `member_memory`

    def copy(self) -> StreamsGroup:
        """A copy that can change independently. It shares members, targets and the topology, which never change."""
        made = StreamsGroup(self.group_id)
        made.copy_common(self)
        made.topology, made.validated_epoch = self.topology, self.validated_epoch
        made.assignment_configs = self.assignment_configs
        made.targets = dict(self.targets)
        made.static_members = dict(self.static_members)
        made.stored_description_epoch = self.stored_description_epoch
        made.failed_description_epoch = self.failed_description_epoch
        made.holders = self.holders.copy()
        made.counted = self.counted
        made.follow(self)
        return made

    def follow(self, other: StreamsGroup) -> None:
        """Take over the other group's state that isn't durable. Between the two only replaced static members
        have left."""
        self.configured = other.configured
        self.endpoint_epoch = other.endpoint_epoch
        self.shutdown_requested_by = other.shutdown_requested_by
        self.is_delayed = other.is_delayed
        self.task_offsets = {each: told for each, told in other.task_offsets.items() if each in self.members}
        self.refined, self.refined_epoch = other.refined, other.refined_epoch
        self.refresh_deadline_ms, self.refresh_epoch = other.refresh_deadline_ms, other.refresh_epoch

    # --- what it is -----------------------------------------------------------------------------------------

    @property
    def state(self) -> StreamsGroupState:
        topology = self.topology
        is_valid = topology is not None and topology.epoch == self.validated_epoch
        reconciled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        has_members = bool(self.members)
        return STREAMS_GROUP_STATES[has_members, is_valid, self.epoch > self.assignment_epoch, reconciled]

    def static_member(self, instance_id: str) -> StreamsMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def offsets_of(self, member_id: str) -> TaskOffsets:
        return self.task_offsets.get(member_id, NO_OFFSETS)

    def has_settled(self, member: StreamsMember, now_ms: int) -> bool:
        """True if a member that reports nothing new needs no decision: it has its target, and no topic has to
        be checked."""
        is_assigned = self.assignment_epoch >= self.epoch and not self.is_delayed
        is_configured = self.configured is not None and not self.needs_refresh(now_ms)
        return is_assigned and is_configured and member.is_reconciled_to(self.assignment_epoch)

    def target_of(self, member_id: str) -> TargetTasks:
        return self.targets.get(member_id, NO_TARGET_TASKS)

    def requires_any(self, topics: Set[str]) -> bool:
        """True if its topology requires one of these topics."""
        return self.topology is not None and not topics.isdisjoint(self.topology.required_names)

    def request_shutdown(self, member_id: str) -> None:
        """Remember the first member that requests a shutdown, until all have left."""
        if self.shutdown_requested_by is None:
            self.shutdown_requested_by = member_id

    # --- for its offsets and for administrators (see `kinds.Group`) -----------------------------------------

    def is_subscribed_to(self, topic: str) -> bool:
        return not self.is_empty and self.topology is not None and topic in self.topology.sources

    def check_commit(
        self, committer: Committer, offsets: Sequence[NewOffset], request: CommitRequest
    ) -> None:
        """Check a commit. A member's epoch may be behind: an offset counts if its task was the member's at
        that epoch (KIP-1251).

        Kafka: `StreamsGroup.validateOffsetCommit`.
        """
        epoch = committer.generation
        if self.takes_commit_of_anybody(committer, request):
            return
        member = self.member(committer.member_id)
        if not request.in_transaction and request.version < STREAMS_MEMBER_VERSION:
            raise KafkaError(Error.UNSUPPORTED_VERSION)
        if epoch == member.epoch:
            return
        stale = Error.STALE_MEMBER_EPOCH if request.tells_stale_epochs else Error.ILLEGAL_GENERATION
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
        """Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        if member_id is None and epoch < 0:
            return
        if member_id is None:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR)  # Kafka: a NullPointerException
        if epoch != self.member(member_id).epoch:
            raise KafkaError(Error.STALE_MEMBER_EPOCH)

    def check_offset_deletion(self) -> None:
        """Offsets of topics that it doesn't read can always be deleted."""

    def tombstones(self) -> list[AnyRecord]:
        return streams_group_tombstones(self.group_id, self.members)

    # --- applying records -----------------------------------------------------------------------------------

    def put(self, member: StreamsMember) -> None:
        """Add or replace a member."""
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is not None:
            self._release(old)
            if old.instance_id is not None:
                self.static_members.pop(old.instance_id, None)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.holders.hold(member.assigned, member.process_id)
        self.holders.hold(member.pending, member.process_id)

    def remove(self, member_id: str) -> None:
        old = self.members.pop(member_id)
        self.task_offsets.pop(member_id, None)
        if old is not None:
            self._release(old)
            if old.instance_id is not None:
                self.static_members.pop(old.instance_id, None)
        if self.is_empty:
            self.shutdown_requested_by = None

    def _release(self, member: StreamsMember) -> None:
        self.holders.release(member.assigned, member.process_id)
        self.holders.release(member.pending, member.process_id)


# --- applying its records -------------------------------------------------------------------------------------
#
# Compaction may have removed some records of a step. Unknown entities are created as far as a record names
# them. Tombstones of unknown ones are ignored. The end of a group removes everything that is left of it.


def apply(group: StreamsGroup, record: StreamsGroupRecord) -> None:
    """Change the group by one of its records, except by the tombstone that deletes it."""
    group.changes += 1
    _APPLY[type(record.key)](group, record.key, record.value)


def _group(group: StreamsGroup, key: Any, value: Any) -> None:
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash
    group.validated_epoch = value.validated_topology_epoch
    group.assignment_configs = {each.key: each.value for each in value.last_assignment_configs or ()}
    group.stored_description_epoch = value.stored_description_topology_epoch
    group.failed_description_epoch = value.failed_description_topology_epoch


def _topology(group: StreamsGroup, key: Any, value: Any) -> None:
    group.topology = None if value is None else StreamsTopology(value)


def _member(group: StreamsGroup, key: Any, value: Any) -> None:
    if value is None:
        group.remove(key.member_id)
    else:
        group.put(_known(group, key.member_id).with_metadata(value))


def _target(group: StreamsGroup, key: Any, value: Any) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = TargetTasks(
            task_sets(value.active_tasks), task_sets(value.standby_tasks), task_sets(value.warmup_tasks)
        )


def _assignment(group: StreamsGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.put(_known(group, key.member_id).with_assignment(value))
    elif key.member_id in group.members:
        member = group.members[key.member_id]
        group.put(
            replace(
                member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NO_TASKS, pending=NO_TASKS
            )
        )


def _known(group: StreamsGroup, member_id: str) -> StreamsMember:
    return group.members.get(member_id) or StreamsMember(member_id)


_APPLY: dict[type, Callable[[StreamsGroup, Any, Any], None]] = {
    messages.StreamsGroupMetadataKey: _group,
    messages.StreamsGroupTopologyKey: _topology,
    messages.StreamsGroupMemberMetadataKey: _member,
    messages.StreamsGroupTargetAssignmentMetadataKey: apply_target_epoch,
    messages.StreamsGroupTargetAssignmentMemberKey: _target,
    messages.StreamsGroupCurrentMemberAssignmentKey: _assignment,
}
