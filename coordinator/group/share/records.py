"""The records that a share group's changes are made of (Kafka: `GroupCoordinatorRecordHelpers`)."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.group.modern.targets import Target
from coordinator.group.records import AnyRecord, ShareGroupRecord
from coordinator.group.share.member import ShareMember, written_target
from coordinator.group.share.state_partitions import NameOf, StatePartitions
from protocol.messages.group_records_share import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)


def share_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupMetadataKey(group_id=group_id),
        ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def share_member_record(group_id: str, member: ShareMember) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), member.metadata_value()
    )


def share_target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def share_target_record(group_id: str, member_id: str, target: Target) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(topic_partitions=written_target(target)),
    )


def share_assignment_record(group_id: str, member: ShareMember) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        member.assignment_value(),
    )


def state_partitions_record(group_id: str, state: StatePartitions, name_of: NameOf) -> ShareGroupRecord:
    return ShareGroupRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), state.written(name_of))


# --- ends ---------------------------------------------------------------------------------------------------


def _assignment_tombstone(group_id: str, member_id: str) -> ShareGroupRecord:
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return ShareGroupRecord(key, None)


def _target_tombstone(group_id: str, member_id: str) -> ShareGroupRecord:
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return ShareGroupRecord(key, None)


def _member_tombstone(group_id: str, member_id: str) -> ShareGroupRecord:
    return ShareGroupRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def share_member_tombstones(group_id: str, member_id: str) -> list[AnyRecord]:
    return [
        _assignment_tombstone(group_id, member_id),
        _target_tombstone(group_id, member_id),
        _member_tombstone(group_id, member_id),
    ]


def share_group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[AnyRecord]:
    """The end of a group with these members."""
    ids = [*member_ids]
    return [
        *(_assignment_tombstone(group_id, member_id) for member_id in ids),
        *(_target_tombstone(group_id, member_id) for member_id in ids),
        ShareGroupRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(_member_tombstone(group_id, member_id) for member_id in ids),
        ShareGroupRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        ShareGroupRecord(ShareGroupMetadataKey(group_id=group_id), None),
    ]
