"""A member of a streams group (Kafka: `StreamsGroupMember`). It is never changed: `replace` makes another one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from coordinator.group.consumer.states import JOIN_EPOCH, MemberEpochRelation
from coordinator.group.streams import tasks
from coordinator.group.streams.states import StreamsMemberState
from coordinator.group.streams.tasks import NO_TASKS, MemberTasks, OwnedTasks
from coordinator.java.maps import JavaMap
from protocol.messages.group_records import (
    Endpoint,
    KeyValue,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
)


class UserEndpoint(NamedTuple):
    """Where an application answers questions about its state."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """`process_id` is what the members of one process have in common; `pending` are tasks that it has to give up."""

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

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is StreamsMemberState.STABLE and self.epoch == assignment_epoch

    def relation_of(self, epoch: int, owned: OwnedTasks) -> MemberEpochRelation:
        """How the epoch of a heartbeat stands to its own."""
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
        """Since which epoch an active task has been the member's, even if it is about to give it up."""
        for held in (self.assigned, self.pending):
            epochs = held.active.get(subtopology_id)
            if epochs is not None and partition in epochs:
                return epochs[partition]
        return None

    def at_epoch(
        self, epoch: int, state: StreamsMemberState, assigned: MemberTasks, pending: MemberTasks = NO_TASKS
    ) -> StreamsMember:
        """Reconciled a step further, with the epoch of now as the previous one."""
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
        """As it is once such a record was replayed."""
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
        """The record's value, with tasks in their order."""
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
        """As it is once such a record was replayed; a state of a later Kafka is UNKNOWN."""
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
