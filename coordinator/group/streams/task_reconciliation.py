"""The third step of a decision: a member on its way to its target (Kafka: `CurrentAssignmentBuilder`).

First it gives up, then it gets. A task is free once no process holds it; one that is active in a process has no copy
there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from coordinator.group.modern.sessions import MemberSessions
from coordinator.group.streams.decision import StreamsDecision
from coordinator.group.streams.member import StreamsMember
from coordinator.group.streams.records import current_tasks_record
from coordinator.group.streams.states import TASK_STEPS, StreamsMemberState, TaskStep
from coordinator.group.streams.tasks import (
    ActiveTasks,
    MemberTasks,
    OwnedTasks,
    TargetTasks,
    TaskHolders,
    TaskSets,
    own_any,
)
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import Error, KafkaError

IsHeld = Callable[[str, int], bool]
"""Whether a task, by subtopology and partition, has to be given up by somebody first."""


class TaskReconciliationStep:
    """Brings the member a step nearer to its target."""

    def __init__(self, sessions: MemberSessions[StreamsMember]) -> None:
        self._sessions = sessions

    def take(self, decision: StreamsDecision) -> None:
        """Raises KafkaError (FENCED_MEMBER_EPOCH), see `reconcile_tasks`."""
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
    """What a member's next step depends on, besides itself."""

    target_epoch: int
    target: TargetTasks
    owned: OwnedTasks
    holders: TaskHolders


def reconcile_tasks(member: StreamsMember, situation: TaskSituation) -> StreamsMember:
    """The member after the next step.

    Raises KafkaError: FENCED_MEMBER_EPOCH where it is in a state that isn't known and still owns something,
    UNKNOWN_SERVER_ERROR where it reports a subtopology twice.
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
    """Between the active tasks that a member has and those that it is to have."""

    kept: ActiveTasks
    revoked: ActiveTasks
    added: ActiveTasks
    some_are_held: bool


class _CopyDifference(NamedTuple):
    """The same of standby or warm-up tasks."""

    kept: TaskSets
    revoked: TaskSets
    added: TaskSets
    some_are_held: bool


def _next(member: StreamsMember, epoch: int, situation: TaskSituation) -> StreamsMember:
    target_epoch, target, reported, holders = situation
    process_id = member.process_id

    def active_is_held(subtopology_id: str, partition: int) -> bool:
        is_active = holders.active_process(subtopology_id, partition) is not None
        return is_active or holders.has_copy(process_id, subtopology_id, partition)

    def copy_is_held(subtopology_id: str, partition: int) -> bool:
        is_active = holders.active_process(subtopology_id, partition) == process_id
        return is_active or holders.has_copy(process_id, subtopology_id, partition)

    active = _active_difference(member.assigned.active, target.active, target_epoch, active_is_held)
    standby = _copy_difference(member.assigned.standby, target.standby, copy_is_held)
    warmup = _copy_difference(member.assigned.warmup, target.warmup, copy_is_held)
    kept = MemberTasks(active.kept, standby.kept, warmup.kept)
    revoked = MemberTasks(active.revoked, standby.revoked, warmup.revoked)
    owned = reported.kinds
    if not revoked.is_empty and (owned is None or own_any(owned, revoked)):
        return member.at_epoch(epoch, StreamsMemberState.UNREVOKED_TASKS, kept, revoked)
    assigned = kept
    if any(len(difference.added) for difference in (active, standby, warmup)):
        assigned = MemberTasks(_merged(active), _merged_copies(standby), _merged_copies(warmup))
    some_are_held = active.some_are_held or standby.some_are_held or warmup.some_are_held
    state = StreamsMemberState.UNRELEASED_TASKS if some_are_held else StreamsMemberState.STABLE
    return member.at_epoch(target_epoch, state, assigned)


def _either(target: TaskSets, has: ActiveTasks | TaskSets) -> JavaSet[str]:
    """All subtopologies, in the order in which Kafka goes over them."""
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
    return _CopyDifference(kept, revoked, added, some_are_held)


def _merged(active: _ActiveDifference) -> ActiveTasks:
    """What is kept and what is added, walked as in Kafka (`TasksTupleWithEpochs.merge`)."""
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
