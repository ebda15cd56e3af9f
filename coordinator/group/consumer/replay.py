"""Records of consumer groups, applied: those that were just appended, and at a start all that the log has.

Compaction may have left out parts of a step: what isn't known is made as far as it is named, tombstones of what isn't
there are passed over, and a group's end takes along what nobody has taken away.
Source: `GroupMetadataManager.replay`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import ConsumerMember
from coordinator.group.consumer.resolved_regex import ResolvedRegex
from coordinator.group.consumer.states import LEAVE_EPOCH
from coordinator.group.modern.group import NO_EPOCH
from coordinator.group.modern.targets import target_from
from coordinator.group.records import ConsumerGroupRecord
from coordinator.java.maps import JavaMap, JavaSet
from protocol.messages import group_records as messages


def ends_group(record: ConsumerGroupRecord) -> bool:
    return record.value is None and isinstance(record.key, messages.ConsumerGroupMetadataKey)


def apply(group: ConsumerGroup, record: ConsumerGroupRecord) -> None:
    """Change a group by one of its records, but for the one that ends it."""
    group.changes += 1
    _APPLY[type(record.key)](group, record.key, record.value)


def _group(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _partition_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.has_partition_metadata = value is not None


def _member(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.remove(key.member_id)
    else:
        group.put(_known(group, key.member_id).with_metadata(value))


def _target_epoch(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.assignment_epoch, group.assignment_timestamp_ms = NO_EPOCH, 0
    else:
        group.assignment_epoch = value.assignment_epoch
        group.assignment_timestamp_ms = value.assignment_timestamp


def _target(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.set_target(key.member_id, None if value is None else target_from(value))


def _assignment(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.put(_known(group, key.member_id).with_assignment(value))
    elif key.member_id in group.members:
        member = group.members[key.member_id]
        group.put(
            replace(
                member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=JavaMap(), pending=JavaMap()
            )
        )


def _regex(group: ConsumerGroup, key: Any, value: Any) -> None:
    resolved = None
    if value is not None:
        resolved = ResolvedRegex(JavaSet.of(value.topics), value.version, value.timestamp)
    group.set_resolved(key.regular_expression, resolved)


def _known(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    return group.members.get(member_id) or ConsumerMember(member_id)


_APPLY: dict[type, Callable[[ConsumerGroup, Any, Any], None]] = {
    messages.ConsumerGroupMetadataKey: _group,
    messages.ConsumerGroupPartitionMetadataKey: _partition_metadata,
    messages.ConsumerGroupMemberMetadataKey: _member,
    messages.ConsumerGroupTargetAssignmentMetadataKey: _target_epoch,
    messages.ConsumerGroupTargetAssignmentMemberKey: _target,
    messages.ConsumerGroupCurrentMemberAssignmentKey: _assignment,
    messages.ConsumerGroupRegularExpressionKey: _regex,
}
