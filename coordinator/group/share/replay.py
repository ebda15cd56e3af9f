"""Records of share groups, applied: those that were just appended, and at a start all that the log has.

Compaction may have left out parts of a step: what isn't known is made as far as it is named, tombstones of what isn't
there are passed over, and a group's end takes along what nobody has taken away.
Source: `GroupMetadataManager.replay`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.group.modern.group import NO_EPOCH
from coordinator.group.records import ShareGroupRecord
from coordinator.group.share.group import ShareGroup
from coordinator.group.share.member import ShareMember, read_target
from coordinator.group.share.state_partitions import StatePartitions
from protocol.messages import group_records_share as messages


def ends_share_group(record: ShareGroupRecord) -> bool:
    return record.value is None and isinstance(record.key, messages.ShareGroupMetadataKey)


def apply(group: ShareGroup, record: ShareGroupRecord, now_ms: int) -> None:
    """Change a group by one of its records, but for the one that ends it."""
    group.changes += 1
    _APPLY[type(record.key)](group, record.key, record.value, now_ms)


def _group(group: ShareGroup, key: Any, value: Any, now_ms: int) -> None:
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _member(group: ShareGroup, key: Any, value: Any, now_ms: int) -> None:
    if value is not None:
        group.put(_known(group, key.member_id).with_metadata(value))
    elif key.member_id in group.members:
        group.remove(key.member_id)


def _target_epoch(group: ShareGroup, key: Any, value: Any, now_ms: int) -> None:
    if value is None:
        group.assignment_epoch, group.assignment_timestamp_ms = NO_EPOCH, 0
    else:
        group.assignment_epoch = value.assignment_epoch
        group.assignment_timestamp_ms = value.assignment_timestamp


def _target(group: ShareGroup, key: Any, value: Any, now_ms: int) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = read_target(value.topic_partitions)


def _assignment(group: ShareGroup, key: Any, value: Any, now_ms: int) -> None:
    if value is not None:
        group.put(_known(group, key.member_id).with_assignment(value))
    elif key.member_id in group.members:
        group.put(group.members[key.member_id].without_assignment())


def _state_partitions(group: ShareGroup, key: Any, value: Any, now_ms: int) -> None:
    group.state_partitions = None if value is None else StatePartitions.read(value, now_ms)


def _known(group: ShareGroup, member_id: str) -> ShareMember:
    return group.members.get(member_id) or ShareMember(member_id)


_APPLY: dict[type, Callable[[ShareGroup, Any, Any, int], None]] = {
    messages.ShareGroupMetadataKey: _group,
    messages.ShareGroupMemberMetadataKey: _member,
    messages.ShareGroupTargetAssignmentMetadataKey: _target_epoch,
    messages.ShareGroupTargetAssignmentMemberKey: _target,
    messages.ShareGroupCurrentMemberAssignmentKey: _assignment,
    messages.ShareGroupStatePartitionMetadataKey: _state_partitions,
}
