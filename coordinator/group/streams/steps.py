"""The steps of a decision about a streams group: topology → target → reconciliation.

1. Compare the topology with the existing topics, and find out whether the group needs a new assignment,
   because of them or of a member's changes (`GroupMetadataManager.streamsGroupHeartbeat`).
2. Compute the target assignment of tasks (`TargetAssignmentBuilder`). A heartbeat does this if the group's epoch is
   beyond the assignment's, at least `group.streams.assignment.interval.ms` after the last one. The first one of an
   empty group waits for `group.streams.initial.rebalance.delay.ms`, and is then computed without a heartbeat.
3. Bring the member nearer to its target (`CurrentAssignmentBuilder`). It first gives up tasks, then gets new
   ones. A task is free once no process holds it. A process with an active task has no copy of it.

Each step uses the results of the steps before it, and adds its own records. The group doesn't change before
they are written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from coordinator.group.ports import MOST_TRIES
from coordinator.group.records import AnyRecord
from coordinator.group.shard_parts import Effects, Late, MemberSessions, ShardParts, StagedRecords
from coordinator.group.streams.group import (
    StreamsGroup,
    StreamsMember,
    current_tasks_record,
    group_epoch_record,
    streams_member_record,
    target_tasks_epoch_record,
    target_tasks_record,
    topology_record,
)
from coordinator.group.streams.states import (
    TASK_STEPS,
    StatusCode,
    StreamsGroupState,
    StreamsMemberState,
    TaskStep,
)
from coordinator.group.streams.sticky import TaskMemberSpec, assign_sticky
from coordinator.group.streams.tasks import (
    NO_TARGET_TASKS,
    ActiveTasks,
    MemberTasks,
    OwnedTasks,
    TargetTasks,
    TaskHolders,
    TaskOffsets,
    TaskSets,
    has_task,
    own_any,
    same_tasks,
)
from coordinator.group.streams.topology import ConfiguredTopology, StreamsTopology, configure, topology_value
from coordinator.java.maps import JavaMap, JavaSet
from coordinator.settings import STANDBYS, StreamsConfig
from protocol.errors import Error, KafkaError
from protocol.messages import groups_streams
from protocol.messages.groups_streams import Status, StreamsGroupHeartbeatRequest, TaskIds
from protocol.waiting import compute

log = logging.getLogger("barnabas.groups")


# --- a decision -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StreamsDecision(Effects):
    """A member changes from `old`, as the group knows it, to `new`.

    A group that doesn't exist yet is an empty object, and not the one that the records will create.
    """

    group: StreamsGroup
    config: StreamsConfig
    owned: OwnedTasks
    old: StreamsMember
    new: StreamsMember
    replaced: StreamsMember | None = None
    """The static member, with another id, that `old` replaces."""
    is_static: bool = False
    """True if the member has an instance id."""
    records: list[AnyRecord] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)
    """The statuses of the application in the answer, in Kafka's order."""
    is_decided: bool = field(init=False, default=False)
    configured: ConfiguredTopology = field(init=False)
    assignment_configs: Mapping[str, str] = field(init=False)
    epoch: int = field(init=False)
    """The group's new epoch."""
    is_delayed: bool = field(init=False, default=False)
    """True if the group's first assignment waits for more members."""
    target_epoch: int = field(init=False)
    is_refined: bool = field(init=False, default=False)
    """True if the group keeps its assignment, and a member that has other tasks by now gets them again."""
    target: TargetTasks = field(init=False, default=NO_TARGET_TASKS)
    """The member's part of the target assignment."""
    offsets: TaskOffsets = field(init=False)
    """The member's positions in its state."""

    def __post_init__(self) -> None:
        self.epoch = self.group.epoch
        self.target_epoch = self.group.assignment_epoch
        self.assignment_configs = self.config.assignment_configs
        self.offsets = self.group.offsets_of(self.new.member_id)

    @property
    def replaced_id(self) -> str | None:
        return None if self.replaced is None else self.replaced.member_id

    @property
    def target_so_far(self) -> TargetTasks | None:
        """None for a member without a target."""
        return self.group.targets.get(self.replaced_id or self.new.member_id)

    def take_effect(self) -> None:
        """Do the effects, once, before the records are written. If the decision was refused, there are none."""
        if self.is_decided:
            Effects.take_effect(self)

    def tell(self, code: StatusCode, detail: str) -> None:
        self.statuses.append(Status(status_code=code, status_detail=detail))


# --- 1. topology ----------------------------------------------------------------------------------------------

NOT_VALIDATED = -1


class TopologyStep:
    """Records changes of the member and of the topology, and bumps the group's epoch for them."""

    def __init__(self, parts: ShardParts) -> None:
        self._groups = parts.store.streams
        self._runtime = parts.runtime
        self._topics = parts.topics
        self._hashes = parts.hashes
        self._statistics = parts.statistics

    def take(self, decision: StreamsDecision, request: StreamsGroupHeartbeatRequest) -> None:
        """Raises KafkaError: INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY, and UNKNOWN_SERVER_ERROR for a
        topology with impossible numbers."""
        group, sent = decision.group, request.topology
        bump = False
        if decision.new != decision.old:
            decision.records.append(streams_member_record(group.group_id, decision.new))
            bump = not decision.is_static or _is_to_be_assigned_anew(decision.old, decision.new)
        topology = self._topology(decision, sent)
        metadata_hash, decision.configured, is_other = self._configured(decision, topology)
        validated_epoch = NOT_VALIDATED
        if decision.configured.is_ready:
            validated_epoch = topology.epoch
            for owned in decision.owned:
                _check_tasks(decision.configured, owned or ())
        self._hear_offsets(decision, request)
        bump = bump or is_other or validated_epoch != group.validated_epoch
        bump = bump or decision.assignment_configs != group.assignment_configs
        if not bump and _has_something_else(group, decision.new):
            decision.is_refined = True
        if bump or decision.is_refined:
            decision.epoch = group.epoch + 1
            decision.records.append(
                group_epoch_record(
                    group,
                    decision.epoch,
                    metadata_hash,
                    validated_epoch,
                    decision.assignment_configs,
                )
            )
            said = "group %s is at epoch %d, its topology at %d"
            decision.effects.append(partial(log.info, said, group.group_id, decision.epoch, validated_epoch))
            decision.effects.append(partial(self._statistics.rebalanced, "streams"))

    def _hear_offsets(self, decision: StreamsDecision, request: StreamsGroupHeartbeatRequest) -> None:
        """Take the reported offsets. For a group that doesn't exist yet they aren't kept, as in Kafka:
        another object replaces it."""
        if request.task_offsets is None and request.task_end_offsets is None:
            return
        group, member_id = decision.group, decision.new.member_id
        decision.offsets = decision.offsets.updated(request.task_offsets, request.task_end_offsets)
        if self._groups.get(group.group_id) is not group:
            return
        if (
            member_id in group.members
        ):  # a static one that comes back loses them with the records, as in Kafka
            decision.effects.append(partial(_keep_offsets, group, member_id, decision.offsets))
        else:
            decision.once_written.append(lambda: _keep_offsets(decision.group, member_id, decision.offsets))

    def _topology(self, decision: StreamsDecision, sent: groups_streams.Topology | None) -> StreamsTopology:
        """The group's topology, or the first one sent, which it keeps until it ends."""
        known = decision.group.topology
        if sent is None:
            if known is None:
                raise KafkaError(Error.UNKNOWN_SERVER_ERROR)  # Kafka: an IllegalStateException
        else:
            value = topology_value(sent)
            new = StreamsTopology(value)
            if known is None:
                decision.records.append(topology_record(decision.group.group_id, value))
                return new
            if known.epoch <= new.epoch and not known.is_same(new):
                raise KafkaError(Error.INVALID_REQUEST, "Topology updates are not supported yet.")
        if decision.new.topology_epoch < known.epoch:
            decision.tell(
                StatusCode.STALE_TOPOLOGY,
                f"The member's topology epoch {decision.new.topology_epoch} is behind the group's topology "
                f"epoch {known.epoch}.",
            )
        return known

    def _configured(
        self, decision: StreamsDecision, topology: StreamsTopology
    ) -> tuple[int, ConfiguredTopology, bool]:
        """The hash of its topics' metadata, the configured topology, and whether the hash has changed."""
        group = decision.group
        known = None if group.topology is None else group.configured
        if known is not None and not group.needs_refresh(self._runtime.now_ms()):
            return group.metadata_hash, known, False
        hashed = self._hashes.look(topology.required)
        decision.effects.append(partial(self._hashes.keep, hashed))
        is_other = hashed.value != group.metadata_hash
        if known is None or is_other:
            known = configure(topology, self._topics)
        if self._groups.get(group.group_id) is group:
            decision.once_written.append(partial(self._was_configured, decision, known))
        return hashed.value, known, is_other

    def _was_configured(self, decision: StreamsDecision, configured: ConfiguredTopology) -> None:
        """Note the configured topology. A group that doesn't exist yet looks again at its next heartbeat, as
        in Kafka."""
        decision.group.configured = configured
        decision.group.was_refreshed(self._runtime.now_ms(), decision.epoch)


def _keep_offsets(group: StreamsGroup, member_id: str, offsets: TaskOffsets) -> None:
    group.task_offsets[member_id] = offsets


def _is_to_be_assigned_anew(old: StreamsMember, new: StreamsMember) -> bool:
    """True if a static member has changed something that assignments depend on."""
    return (
        old.topology_epoch != new.topology_epoch
        or old.rack_id != new.rack_id
        or old.tags != new.tags
        or old.process_id != new.process_id
    )


def _has_something_else(group: StreamsGroup, member: StreamsMember) -> bool:
    """True if a member of a stable group has other tasks than its target."""
    return (
        not same_tasks(group.target_of(member.member_id), member.assigned)
        and group.state is StreamsGroupState.STABLE
    )


def _check_tasks(configured: ConfiguredTopology, owned: Sequence[TaskIds]) -> None:
    """Raises KafkaError (INVALID_REQUEST) for tasks that don't exist."""
    for each in owned:
        subtopology = configured.subtopologies.get(each.subtopology_id)
        if subtopology is None:
            raise KafkaError(
                Error.INVALID_REQUEST, f"Subtopology {each.subtopology_id} does not exist in the topology."
            )
        for partition in each.partitions:
            if not 0 <= partition < subtopology.task_count:
                raise KafkaError(
                    Error.INVALID_REQUEST,
                    f"Task {partition} for subtopology {each.subtopology_id} is invalid. "
                    f"Number of tasks for this subtopology: {subtopology.task_count}",
                )


# --- 2. target ------------------------------------------------------------------------------------------------


INITIAL_DELAY = "streams initial rebalance delay"


class TaskTargetStep:
    """Finds the member's part of the target assignment. A new assignment goes to the records."""

    def __init__(self, parts: ShardParts) -> None:
        self._runtime = parts.runtime
        self._groups = parts.store.streams
        self._journal = parts.journal
        self._config_of = parts.streams_config_of

    def take(self, decision: StreamsDecision) -> None:
        """Only changes the decision."""
        group, config = decision.group, decision.config
        delay_ms = config.initial_rebalance_delay_ms
        decision.is_delayed = group.is_delayed
        if group.is_empty and delay_ms > 0 and not group.is_delayed:
            decision.is_delayed = True
            decision.once_written.append(partial(self._delay, group.group_id, delay_ms))
        if decision.is_delayed:
            self._remember(decision, {})
            detail = "Assignment delayed due to the configured initial rebalance delay."
            decision.tell(StatusCode.ASSIGNMENT_DELAYED, detail)
            return
        decision.target = _target_in_force(group, decision.replaced_id or decision.new.member_id)
        if group.assignment_epoch >= decision.epoch:
            self._remember(decision, group.targets)
            return
        if decision.is_refined and group.assignment_epoch >= group.epoch:
            decision.records.append(
                target_tasks_epoch_record(group.group_id, decision.epoch, group.assignment_timestamp_ms)
            )
            decision.target_epoch = decision.epoch
            self._remember(decision, group.targets)
            return
        if not group.may_be_assigned(config.assignment_interval_ms, self._runtime.now_ms()):
            self._remember(decision, group.targets)
            detail = "Assignment delayed due to the configured assignment interval."
            decision.tell(StatusCode.ASSIGNMENT_DELAYED, detail)
            return
        targets = _targets(group, decision, decision.configured, decision.assignment_configs)
        known_targets = group.targets
        if decision.replaced_id is not None and decision.target_so_far is not None:
            known_targets = known_targets | {decision.new.member_id: decision.target_so_far}
        decision.records += self._records(group.group_id, known_targets, decision.epoch, targets)
        decision.effects.append(partial(log.info, "group %s: assignment %d", group.group_id, decision.epoch))
        decision.target_epoch = decision.epoch
        decision.target = targets[decision.new.member_id]
        self._remember(decision, targets)

    def _remember(
        self, decision: StreamsDecision, targets: Mapping[str, TargetTasks] | JavaMap[str, TargetTasks]
    ) -> None:
        """Remember the refined assignment. Kafka refines assignments, and remembers the result as long as it
        is in force, whoever leaves; so far it changes nothing (`AssignmentRefiner`).

        A deliberate difference: in Kafka 4.4.0 a member that is refused a static member's instance id takes
        over that member's part of it, which then gives up all its tasks.
        """
        group, epoch = decision.group, decision.target_epoch
        if self._groups.get(group.group_id) is not group or not decision.config.num_warmup_replicas:
            return
        if group.refined_epoch != epoch:
            refined = dict(targets.items())
        elif decision.replaced is not None:
            refined = dict(group.refined)
        else:
            return
        if decision.replaced is not None and decision.target_epoch == group.assignment_epoch:
            refined.pop(decision.replaced.member_id, None)
            refined[decision.new.member_id] = decision.target
        decision.once_written.append(partial(_was_refined, decision, epoch, refined))

    def _records(
        self,
        group_id: str,
        known: Mapping[str, TargetTasks],
        epoch: int,
        targets: JavaMap[str, TargetTasks],
    ) -> list[AnyRecord]:
        records: list[AnyRecord] = [
            target_tasks_record(group_id, member_id, target)
            for member_id, target in targets.items()
            if target != known.get(member_id)
        ]
        records.append(target_tasks_epoch_record(group_id, epoch, self._runtime.now_ms()))
        return records

    # --- the first one --------------------------------------------------------------------------------------

    def _delay(self, group_id: str, delay_ms: int) -> None:
        group = self._groups[group_id]
        group.is_delayed = True
        self._runtime.schedule((INITIAL_DELAY, group_id), delay_ms, partial(self._delay_is_over, group_id))

    def _delay_is_over(self, group_id: str) -> None:
        """Compute the delayed assignment. Members hear of it at their next heartbeat."""
        group = self._groups.get(group_id)
        if group is not None and group.is_delayed:
            group.is_delayed = False
            self._runtime.carry_out(group_id, self._delayed(group_id))

    async def _delayed(self, group_id: str) -> None:
        """Write the delayed assignment.

        A later heartbeat makes it if the group's topology hasn't been checked yet (the first heartbeat after
        the one that created the group does that), or if the group keeps changing.
        """
        for _ in range(MOST_TRIES):
            group = self._groups.get(group_id)
            if group is None or group.is_empty or group.configured is None:
                return
            interval_ms = self._config_of(group_id).assignment_interval_ms
            may_compute = group.may_be_assigned(interval_ms, self._runtime.now_ms())
            if group.epoch <= group.assignment_epoch or not may_compute:
                return
            changes, found = group.changes, _Found()
            await compute(partial(found.look, group, partial(self._staged, group, group.configured)))
            if self._groups.get(group_id) is group and group.changes == changes:
                assert found.staged is not None
                self._write(group, found.staged)
                return

    def _staged(self, group: StreamsGroup, configured: ConfiguredTopology) -> StagedRecords:
        targets = _targets(group, None, configured, group.assignment_configs)
        records = self._records(group.group_id, group.targets, group.epoch, targets)
        return self._journal.staged(group, records)

    def _write(self, group: StreamsGroup, staged: StagedRecords) -> None:
        try:
            self._journal.write_staged(staged)
        except KafkaError as error:  # the next heartbeat retries
            log.warning("group %s can't be assigned now: %s", group.group_id, error)
        else:
            log.info(
                "group %s: assignment %d, with all members that came meanwhile", group.group_id, group.epoch
            )


def _was_refined(decision: StreamsDecision, epoch: int, refined: Mapping[str, TargetTasks]) -> None:
    decision.group.refined, decision.group.refined_epoch = refined, epoch


def _target_in_force(group: StreamsGroup, member_id: str) -> TargetTasks:
    """The target as it was computed, since its order is visible to members, or else from its record. It also
    holds for a member that has left since, and is back."""
    refined = group.refined.get(member_id) if group.refined_epoch == group.assignment_epoch else None
    return group.target_of(member_id) if refined is None else refined


class _Found:
    """The result of a computation beside the loop. If the group changes meanwhile, it is seen half-changed,
    and computed again."""

    def __init__(self) -> None:
        self.staged: StagedRecords | None = None

    def look(self, group: StreamsGroup, compute: Callable[[], StagedRecords]) -> None:
        changes = group.changes
        try:
            self.staged = compute()
        except Exception:
            if group.changes == changes:
                raise


def _targets(
    group: StreamsGroup,
    decision: StreamsDecision | None,
    configured: ConfiguredTopology,
    assignment_configs: Mapping[str, str],
) -> JavaMap[str, TargetTasks]:
    """The targets of the members after the decision, including one that joins. All are empty while the topics
    don't fit.

    Kafka allows other assignors, and gives them racks. No assignor uses tags.
    """
    specs: JavaMap[str, TaskMemberSpec] = JavaMap()
    for member_id, member in group.members.items():
        if decision is None or member_id != decision.replaced_id:
            specs[member_id] = _spec(member, group.offsets_of(member_id))
    if decision is not None:
        specs[decision.new.member_id] = _spec(decision.new, decision.offsets)
    assigned: Mapping[str, TargetTasks] = {}
    if configured.is_ready:
        standbys = int(assignment_configs.get(STANDBYS, "0"))
        assigned = assign_sticky(specs, configured.subtopologies, standbys)
    targets: JavaMap[str, TargetTasks] = JavaMap()
    for member_id in specs:
        targets[member_id] = assigned.get(member_id, NO_TARGET_TASKS)
    return targets


def _spec(member: StreamsMember, offsets: TaskOffsets) -> TaskMemberSpec:
    return TaskMemberSpec(member.process_id, member.assigned.active, member.assigned.standby, offsets.offsets)


# --- time limits of members -----------------------------------------------------------------------------------
#
# By key: ("streams session", group, member), and ("streams rebalance", group, member) while it has tasks to give
# up. Source: `GroupMetadataManager` (scheduleStreamsGroupSessionTimeout, scheduleStreamsGroupRebalanceTimeout).

STREAMS_SESSION = "streams session"
STREAMS_REBALANCE = "streams rebalance"


class StreamsSessions(MemberSessions[StreamsMember]):
    """The timers of a streams group's members."""

    def __init__(self, parts: ShardParts, late: Late) -> None:
        super().__init__(
            parts.runtime,
            late,
            parts.store.streams,
            is_undecided=parts.undecided.is_of,
            session=STREAMS_SESSION,
            rebalance=STREAMS_REBALANCE,
            timeouts_of=parts.streams_config_of,
            gives_up=lambda member: member.state is StreamsMemberState.UNREVOKED_TASKS,
        )


# --- 3. reconciliation ----------------------------------------------------------------------------------------

IsHeld = Callable[[str, int], bool]
"""True if somebody has to give up this task (subtopology, partition) first."""


class TaskReconciliationStep:
    """Brings the member one step nearer to its target."""

    def __init__(self, sessions: MemberSessions[StreamsMember]) -> None:
        self._sessions = sessions

    def take(self, decision: StreamsDecision) -> None:
        """Raises KafkaError (FENCED_MEMBER_EPOCH); see `reconcile_tasks`."""
        member, group = decision.new, decision.group
        if member.is_reconciled_to(decision.target_epoch):
            return
        situation = TaskSituation(decision.target_epoch, decision.target, decision.owned, group.holders)
        reconciled = reconcile_tasks(member, situation)
        if reconciled == member:
            return
        decision.new = reconciled
        decision.records.append(current_tasks_record(group.group_id, reconciled))
        if reconciled.state is StreamsMemberState.UNREVOKED_TASKS:
            effect = partial(self._sessions.limit_rebalance, group.group_id, reconciled)
        else:
            effect = partial(self._sessions.end_rebalance, group.group_id, reconciled.member_id)
        decision.once_written.append(effect)


class TaskSituation(NamedTuple):
    """The inputs of a member's next step, besides the member."""

    target_epoch: int
    target: TargetTasks
    owned: OwnedTasks
    holders: TaskHolders


def reconcile_tasks(member: StreamsMember, situation: TaskSituation) -> StreamsMember:
    """Return the member after its next step.

    Raises KafkaError: FENCED_MEMBER_EPOCH if its state is unknown and it still owns something,
    UNKNOWN_SERVER_ERROR if it reports a subtopology twice.
    """
    step = TASK_STEPS[member.state, _is_settled(member, situation)]
    if step is TaskStep.STAY:
        return member
    if step is TaskStep.REFUSE:
        raise KafkaError(
            Error.FENCED_MEMBER_EPOCH,
            "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
        )
    epoch = member.epoch
    if step is TaskStep.NEXT_EPOCH:
        epoch += 1
    elif step is TaskStep.ADOPT:
        epoch = situation.target_epoch
    return _next(member, epoch, situation)


def _is_settled(member: StreamsMember, situation: TaskSituation) -> bool:
    """The second part of a key of `TASK_STEPS`."""
    owned = situation.owned.kinds
    if member.state is StreamsMemberState.STABLE:
        return member.epoch == situation.target_epoch
    if member.state is StreamsMemberState.UNREVOKED_TASKS:
        return owned is not None and not own_any(owned, member.pending)
    if member.state is StreamsMemberState.UNKNOWN:
        return owned is not None and not any(owned)
    return True


class _ActiveDifference(NamedTuple):
    """The difference between the active tasks that a member has and those of its target."""

    kept: ActiveTasks
    revoked: ActiveTasks
    added: ActiveTasks
    some_are_held: bool


class _CopyDifference(NamedTuple):
    """The same for standby or warm-up tasks, including those that it has."""

    has: TaskSets
    kept: TaskSets
    revoked: TaskSets
    added: TaskSets
    some_are_held: bool


class _Held(NamedTuple):
    """Tasks that the member can't get yet. Its own tasks of other kinds don't count, but those of other
    members of its process do, and so does another process's active task."""

    member: StreamsMember
    holders: TaskHolders

    def active(self, subtopology_id: str, partition: int) -> bool:
        return (
            self.holders.active_process(subtopology_id, partition) is not None
            or self._as_standby(subtopology_id, partition)
            or self._as_warmup(subtopology_id, partition)
        )

    def standby(self, subtopology_id: str, partition: int) -> bool:
        process_id = self.member.process_id
        is_active = self.holders.active_process(subtopology_id, partition) == process_id
        return (
            (is_active and not has_task(self.member.assigned.active, subtopology_id, partition))
            or self.holders.has_standby(process_id, subtopology_id, partition)
            or self._as_warmup(subtopology_id, partition)
        )

    def warmup(self, subtopology_id: str, partition: int) -> bool:
        process_id = self.member.process_id
        return (
            self.holders.active_process(subtopology_id, partition) == process_id
            or self._as_standby(subtopology_id, partition)
            or self.holders.has_warmup(process_id, subtopology_id, partition)
        )

    def _as_standby(self, subtopology_id: str, partition: int) -> bool:
        is_here = self.holders.has_standby(self.member.process_id, subtopology_id, partition)
        return is_here and not has_task(self.member.assigned.standby, subtopology_id, partition)

    def _as_warmup(self, subtopology_id: str, partition: int) -> bool:
        is_here = self.holders.has_warmup(self.member.process_id, subtopology_id, partition)
        return is_here and not has_task(self.member.assigned.warmup, subtopology_id, partition)


def _next(member: StreamsMember, epoch: int, situation: TaskSituation) -> StreamsMember:
    target_epoch, target, reported, holders = situation
    held = _Held(member, holders)
    active = _active_difference(member.assigned.active, target.active, target_epoch, held.active)
    standby = _copy_difference(member.assigned.standby, target.standby, held.standby)
    warmup = _copy_difference(member.assigned.warmup, target.warmup, held.warmup)
    _becomes(member.assigned.active, None, standby)
    _becomes(member.assigned.standby, standby, warmup)
    _becomes(member.assigned.warmup, warmup, standby)
    for copies in (standby, warmup):
        for subtopology_id, partition in _each_of(copies.has):
            if has_task(target.active, subtopology_id, partition):
                _take(copies.revoked, subtopology_id, partition)
    kept = MemberTasks(active.kept, standby.kept, warmup.kept)
    revoked = MemberTasks(active.revoked, standby.revoked, warmup.revoked)
    owned = reported.kinds
    has_to_give_up = not revoked.is_empty and (owned is None or own_any(owned, revoked))
    for copies in (standby, warmup):  # a copy is given up in the step that makes the task active
        for subtopology_id, partition in _each_of(copies.has):
            is_granted = not has_to_give_up and has_task(active.added, subtopology_id, partition)
            if has_task(target.active, subtopology_id, partition) and not is_granted:
                copies.kept.compute_if_absent(subtopology_id, JavaSet()).add(partition)
    if has_to_give_up:
        return member.at_epoch(epoch, StreamsMemberState.UNREVOKED_TASKS, kept, revoked)
    assigned = kept
    if any(len(difference.added) for difference in (active, standby, warmup)):
        assigned = MemberTasks(_merged(active), _merged_copies(standby), _merged_copies(warmup))
    some_are_held = active.some_are_held or standby.some_are_held or warmup.some_are_held
    state = StreamsMemberState.UNRELEASED_TASKS if some_are_held else StreamsMemberState.STABLE
    return member.at_epoch(target_epoch, state, assigned)


def _either(target: TaskSets, has: ActiveTasks | TaskSets) -> JavaSet[str]:
    """All subtopologies, in the order in which Kafka iterates over them."""
    subtopology_ids = JavaSet.of(target.keys())
    subtopology_ids.update(has)
    return subtopology_ids


def _active_difference(has: ActiveTasks, target: TaskSets, epoch: int, is_held: IsHeld) -> _ActiveDifference:
    kept: ActiveTasks = JavaMap()
    revoked: ActiveTasks = JavaMap()
    added: ActiveTasks = JavaMap()
    some_are_held = False
    for subtopology_id in _either(target, has):
        wanted = target.get(subtopology_id) or JavaSet()
        keeps: JavaMap[int, int] = JavaMap()
        revokes: JavaMap[int, int] = JavaMap()
        adds: JavaMap[int, int] = JavaMap()
        for partition, since in (has.get(subtopology_id) or JavaMap()).items():
            (keeps if partition in wanted else revokes)[partition] = since
        for partition in wanted:
            if partition in keeps:
                continue
            if is_held(subtopology_id, partition):
                some_are_held = True
            else:
                adds[partition] = epoch
        for found, partitions in ((kept, keeps), (revoked, revokes), (added, adds)):
            if len(partitions):
                found[subtopology_id] = partitions
    return _ActiveDifference(kept, revoked, added, some_are_held)


def _copy_difference(has: TaskSets, target: TaskSets, is_held: IsHeld) -> _CopyDifference:
    kept: TaskSets = JavaMap()
    revoked: TaskSets = JavaMap()
    added: TaskSets = JavaMap()
    some_are_held = False
    for subtopology_id in _either(target, has):
        current = has.get(subtopology_id) or JavaSet()
        wanted = target.get(subtopology_id) or JavaSet()
        keeps, revokes, adds = JavaSet.of(current), JavaSet.of(current), JavaSet.of(wanted)
        for partition in current:
            (revokes if partition in wanted else keeps).discard(partition)
        for partition in wanted:
            if partition in keeps:
                adds.discard(partition)
            elif is_held(subtopology_id, partition):
                adds.discard(partition)
                some_are_held = True
        for found, partitions in ((kept, keeps), (revoked, revokes), (added, adds)):
            if len(partitions):
                found[subtopology_id] = partitions
    return _CopyDifference(has, kept, revoked, added, some_are_held)


def _becomes(has: ActiveTasks | TaskSets, left: _CopyDifference | None, to: _CopyDifference) -> None:
    """Give the member at once those copies that it already has as another kind.

    If that kind is a copy, too (`left`), it need not give it up for that.
    """
    for subtopology_id, partition in _each_of(has):
        if has_task(to.added, subtopology_id, partition):
            _take(to.added, subtopology_id, partition)
            to.kept.compute_if_absent(subtopology_id, JavaSet()).add(partition)
            if left is not None:
                _take(left.revoked, subtopology_id, partition)


def _each_of(tasks: ActiveTasks | TaskSets) -> list[tuple[str, int]]:
    return [
        (subtopology_id, partition)
        for subtopology_id, partitions in tasks.items()
        for partition in partitions
    ]


def _take(tasks: TaskSets, subtopology_id: str, partition: int) -> None:
    partitions = tasks.get(subtopology_id)
    if partitions is not None:
        partitions.discard(partition)
        if not len(partitions):
            del tasks[subtopology_id]


def _merged(active: _ActiveDifference) -> ActiveTasks:
    """The kept and the added tasks, in Kafka's order (`TasksTupleWithEpochs.merge`)."""
    merged: ActiveTasks = JavaMap()
    for subtopology_id, partitions in active.kept.items():
        merged[subtopology_id] = JavaMap.copy_of(partitions)
    for subtopology_id, partitions in active.added.items():
        if subtopology_id in merged:
            merged[subtopology_id].put_all(partitions)
        else:
            merged.compute_if_absent(subtopology_id, JavaMap.copy_of(partitions))
    return merged


def _merged_copies(copies: _CopyDifference) -> TaskSets:
    merged: TaskSets = JavaMap()
    for subtopology_id, partitions in copies.kept.items():
        merged[subtopology_id] = JavaSet.of(partitions)
    for subtopology_id, partitions in copies.added.items():
        merged.compute_if_absent(subtopology_id, JavaSet()).update(partitions)
    return merged
