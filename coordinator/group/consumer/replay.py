"""Records of consumer groups, applied: those that were just appended, and at start all that the log has.

Compaction may have left out parts of a step: what isn't known is made as far as it is named, tombstones of what isn't
there are passed over, and a group's end takes along what nobody has taken away.
Source: `GroupMetadataManager.replay`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coordinator.group.consumer.group import NO_EPOCH, ConsumerGroup, ResolvedRegex
from coordinator.group.consumer.member import ConsumerMember, target_from
from coordinator.group.consumer.states import LEAVE_EPOCH
from coordinator.group.records import ConsumerGroupRecord
from coordinator.java.maps import JavaMap, JavaSet
from protocol.messages import group_records_consumer as messages

if TYPE_CHECKING:
    from coordinator.group.shard import GroupShard


def apply(shard: GroupShard, record: ConsumerGroupRecord) -> None:
    """Change the shard's groups by one record."""
    key: Any = record.key
    group = shard.consumer_groups.get(key.group_id)
    if group is None:
        if record.value is None:
            return
        # A classic group that is there for its offsets alone has no record of its own: this is the group.
        shard.groups.pop(key.group_id, None)
        group = shard.consumer_groups[key.group_id] = ConsumerGroup(key.group_id)
    _APPLY[type(key)](shard, group, key, record.value)


def _group(shard: GroupShard, group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        del shard.consumer_groups[group.group_id]
    else:
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash


def _partition_metadata(shard: GroupShard, group: ConsumerGroup, key: Any, value: Any) -> None:
    group.has_partition_metadata = value is not None


def _member(shard: GroupShard, group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.remove(key.member_id)
    else:
        group.put(_known(group, key.member_id).with_metadata(value))


def _target_epoch(shard: GroupShard, group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.assignment_epoch, group.assignment_timestamp_ms = NO_EPOCH, 0
    else:
        group.assignment_epoch = value.assignment_epoch
        group.assignment_timestamp_ms = value.assignment_timestamp


def _target(shard: GroupShard, group: ConsumerGroup, key: Any, value: Any) -> None:
    group.set_target(key.member_id, None if value is None else target_from(value))


def _assignment(shard: GroupShard, group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.put(_known(group, key.member_id).with_assignment(value))
    elif key.member_id in group.members:
        member = group.members[key.member_id]
        group.put(
            replace(
                member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=JavaMap(), pending=JavaMap()
            )
        )


def _regex(shard: GroupShard, group: ConsumerGroup, key: Any, value: Any) -> None:
    resolved = None
    if value is not None:
        resolved = ResolvedRegex(JavaSet.of(value.topics), value.version, value.timestamp)
    group.set_resolved(key.regular_expression, resolved)


def _known(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    return group.members.get(member_id) or ConsumerMember(member_id)


_APPLY: dict[type, Callable[[GroupShard, ConsumerGroup, Any, Any], None]] = {
    messages.ConsumerGroupMetadataKey: _group,
    messages.ConsumerGroupPartitionMetadataKey: _partition_metadata,
    messages.ConsumerGroupMemberMetadataKey: _member,
    messages.ConsumerGroupTargetAssignmentMetadataKey: _target_epoch,
    messages.ConsumerGroupTargetAssignmentMemberKey: _target,
    messages.ConsumerGroupCurrentMemberAssignmentKey: _assignment,
    messages.ConsumerGroupRegularExpressionKey: _regex,
}
