"""The records that a consumer group's changes are made of (Kafka: `GroupCoordinatorRecordHelpers`)."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.group.consumer.member import ConsumerMember
from coordinator.group.consumer.resolved_regex import ResolvedRegex
from coordinator.group.modern.targets import Target, target_value
from coordinator.group.records import AnyRecord, ConsumerGroupRecord
from protocol.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def partition_metadata_tombstone(group_id: str) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_record(group_id: str, member: ConsumerMember) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), member.metadata_value()
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def target_record(group_id: str, member_id: str, target: Target) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), target_value(target)
    )


def assignment_record(group_id: str, member: ConsumerMember) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        member.assignment_value(),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex | None) -> ConsumerGroupRecord:
    """None: nobody subscribes to it any more."""
    value = None
    if resolved is not None:
        value = ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics, key=lambda name: name.encode("utf-16-be", "surrogatepass")),
            version=resolved.version,
            timestamp=resolved.timestamp_ms,
        )
    return ConsumerGroupRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value
    )


# --- ends ---------------------------------------------------------------------------------------------------


def _assignment_tombstone(group_id: str, member_id: str) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
    )


def _target_tombstone(group_id: str, member_id: str) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
    )


def _member_tombstone(group_id: str, member_id: str) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[AnyRecord]:
    return [
        _assignment_tombstone(group_id, member_id),
        _target_tombstone(group_id, member_id),
        _member_tombstone(group_id, member_id),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str], regexes: Iterable[str]) -> list[AnyRecord]:
    """The end of a group with these members and resolved regular expressions."""
    ids = [*member_ids]
    return [
        *(_assignment_tombstone(group_id, member_id) for member_id in ids),
        *(_target_tombstone(group_id, member_id) for member_id in ids),
        ConsumerGroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(_member_tombstone(group_id, member_id) for member_id in ids),
        *(regex_record(group_id, regex, None) for regex in regexes),
        partition_metadata_tombstone(group_id),
        ConsumerGroupRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
