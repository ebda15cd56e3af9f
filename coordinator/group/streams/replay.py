"""Records of streams groups, applied: those that were just appended, and at a start all that the log has.

Compaction may have left out parts of a step: what isn't known is made as far as it is named, tombstones of what isn't
there are passed over, and a group's end takes along what nobody has taken away.
Source: `GroupMetadataManager.replay`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordinator.group.consumer.states import LEAVE_EPOCH
from coordinator.group.modern.group import NO_EPOCH
from coordinator.group.records import StreamsGroupRecord
from coordinator.group.streams.group import StreamsGroup
from coordinator.group.streams.member import StreamsMember
from coordinator.group.streams.tasks import NO_TASKS, TargetTasks, task_sets
from coordinator.group.streams.topology import StreamsTopology
from protocol.messages import group_records as messages


def ends_streams_group(record: StreamsGroupRecord) -> bool:
    return record.value is None and isinstance(record.key, messages.StreamsGroupMetadataKey)


def apply(group: StreamsGroup, record: StreamsGroupRecord) -> None:
    """Change a group by one of its records, but for the one that ends it."""
    group.changes += 1
    _APPLY[type(record.key)](group, record.key, record.value)


def _group(group: StreamsGroup, key: Any, value: Any) -> None:
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash
    group.validated_epoch = value.validated_topology_epoch
    group.assignment_configs = {each.key: each.value for each in value.last_assignment_configs or ()}


def _topology(group: StreamsGroup, key: Any, value: Any) -> None:
    group.topology = None if value is None else StreamsTopology(value)


def _member(group: StreamsGroup, key: Any, value: Any) -> None:
    if value is None:
        group.remove(key.member_id)
    else:
        group.put(_known(group, key.member_id).with_metadata(value))


def _target_epoch(group: StreamsGroup, key: Any, value: Any) -> None:
    if value is None:
        group.assignment_epoch, group.assignment_timestamp_ms = NO_EPOCH, 0
    else:
        group.assignment_epoch = value.assignment_epoch
        group.assignment_timestamp_ms = value.assignment_timestamp


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
    messages.StreamsGroupTargetAssignmentMetadataKey: _target_epoch,
    messages.StreamsGroupTargetAssignmentMemberKey: _target,
    messages.StreamsGroupCurrentMemberAssignmentKey: _assignment,
}
