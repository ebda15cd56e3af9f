"""The second step of a decision: the target assignment, who is to have which tasks (Kafka: `TargetAssignmentBuilder`).

It is computed by a heartbeat that finds the group's epoch beyond it, at the earliest
`group.streams.assignment.interval.ms` after the last one. The first one of a group that nobody was in waits for
`group.streams.initial.rebalance.delay.ms`, and is then computed by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from coordinator.group.deferred import MOST_TRIES
from coordinator.group.journal import StagedRecords
from coordinator.group.parts import ShardParts
from coordinator.group.records import AnyRecord
from coordinator.group.streams.config import STANDBYS
from coordinator.group.streams.configured_topology import ConfiguredTopology
from coordinator.group.streams.decision import StreamsDecision
from coordinator.group.streams.group import StreamsGroup
from coordinator.group.streams.member import StreamsMember
from coordinator.group.streams.records import target_tasks_epoch_record, target_tasks_record
from coordinator.group.streams.states import StatusCode
from coordinator.group.streams.sticky import TaskMemberSpec, assign_sticky
from coordinator.group.streams.tasks import NO_TARGET_TASKS, TargetTasks
from coordinator.java.maps import JavaMap
from protocol.errors import KafkaError
from protocol.waiting import compute

log = logging.getLogger("barnabas.groups")

INITIAL_DELAY = "streams initial rebalance delay"


class TaskTargetStep:
    """Finds the member's part of the target assignment; a new one goes to the records."""

    def __init__(self, parts: ShardParts) -> None:
        self._runtime = parts.runtime
        self._groups = parts.store.streams
        self._journal = parts.journal
        self._config_of = parts.streams_config_of

    def take(self, decision: StreamsDecision) -> None:
        """Changes nothing but the decision."""
        group, config = decision.group, decision.config
        delay_ms = config.initial_rebalance_delay_ms
        decision.is_delayed = group.is_delayed
        if group.is_empty and delay_ms > 0 and not group.is_delayed:
            decision.is_delayed = True
            decision.once_written.append(partial(self._delay, group.group_id, delay_ms))
        if decision.is_delayed:
            detail = "Assignment delayed due to the configured initial rebalance delay."
            decision.tell(StatusCode.ASSIGNMENT_DELAYED, detail)
            return
        decision.target = group.target_of(decision.new.member_id)
        if group.assignment_epoch >= decision.epoch:
            return
        if not group.may_be_assigned(config.assignment_interval_ms, self._runtime.now_ms()):
            detail = "Assignment delayed due to the configured assignment interval."
            decision.tell(StatusCode.ASSIGNMENT_DELAYED, detail)
            return
        targets = _targets(group, decision.new, decision.configured, decision.assignment_configs)
        decision.records += self._records(group, decision.epoch, targets)
        decision.effects.append(partial(log.info, "group %s: assignment %d", group.group_id, decision.epoch))
        decision.target_epoch = decision.epoch
        decision.target = targets[decision.new.member_id]

    def _records(
        self, group: StreamsGroup, epoch: int, targets: JavaMap[str, TargetTasks]
    ) -> list[AnyRecord]:
        records: list[AnyRecord] = [
            target_tasks_record(group.group_id, member_id, target)
            for member_id, target in targets.items()
            if target != group.targets.get(member_id)
        ]
        records.append(target_tasks_epoch_record(group.group_id, epoch, self._runtime.now_ms()))
        return records

    # --- the first one --------------------------------------------------------------------------------------

    def _delay(self, group_id: str, delay_ms: int) -> None:
        group = self._groups[group_id]
        group.is_delayed = True
        self._runtime.schedule((INITIAL_DELAY, group_id), delay_ms, partial(self._delay_is_over, group_id))

    def _delay_is_over(self, group_id: str) -> None:
        """Nobody is told before a next heartbeat."""
        group = self._groups.get(group_id)
        if group is not None and group.is_delayed:
            group.is_delayed = False
            self._runtime.carry_out(group_id, self._delayed(group_id))

    async def _delayed(self, group_id: str) -> None:
        """The assignment that waited. A later heartbeat makes it where the group's topology hasn't been looked at,
        which the first one behind the join that made the group does, and where it changes all the while."""
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
        return self._journal.staged(group, self._records(group, group.epoch, targets))

    def _write(self, group: StreamsGroup, staged: StagedRecords) -> None:
        try:
            self._journal.write_staged(staged)
        except KafkaError as error:  # the next heartbeat does it
            log.warning("group %s can't be assigned now: %s", group.group_id, error)
        else:
            log.info("group %s: assignment %d, with all who came meanwhile", group.group_id, group.epoch)


class _Found:
    """What is computed beside the loop. A group that changes meanwhile is seen half, and looked at once more."""

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
    new: StreamsMember | None,
    configured: ConfiguredTopology,
    assignment_configs: Mapping[str, str],
) -> JavaMap[str, TargetTasks]:
    """Of the members as they will be, with the one that joins; nothing for all while the topics don't fit."""
    specs: JavaMap[str, TaskMemberSpec] = JavaMap()
    for member_id, member in group.members.items():
        specs[member_id] = TaskMemberSpec(member.process_id, group.target_of(member_id))
    if new is not None:
        specs[new.member_id] = TaskMemberSpec(new.process_id, group.target_of(new.member_id))
    assigned: Mapping[str, TargetTasks] = {}
    if configured.is_ready:
        standbys = int(assignment_configs.get(STANDBYS, "0"))
        assigned = assign_sticky(specs, configured.subtopologies, standbys)
    targets: JavaMap[str, TargetTasks] = JavaMap()
    for member_id in specs:
        targets[member_id] = assigned.get(member_id, NO_TARGET_TASKS)
    return targets
