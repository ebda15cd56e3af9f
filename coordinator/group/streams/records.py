"""The records that a streams group's changes are made of (Kafka: `StreamsCoordinatorRecordHelpers`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator.group.records import AnyRecord, StreamsGroupRecord
from coordinator.group.streams.member import StreamsMember
from coordinator.group.streams.tasks import TargetTasks, target_task_ids
from protocol.messages.group_records import (
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)


def group_epoch_record(
    group_id: str, epoch: int, metadata_hash: int, validated_epoch: int, configs: Mapping[str, str]
) -> StreamsGroupRecord:
    """`validated_epoch`: of the topology whose topics all fit, −1 without one; `configs`: what the next assignment goes
    by."""
    return StreamsGroupRecord(
        StreamsGroupMetadataKey(group_id=group_id),
        StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validated_epoch,
            last_assignment_configs=[
                LastAssignmentConfig(key=key, value=configs[key]) for key in sorted(configs)
            ],
        ),
    )


def topology_record(group_id: str, value: StreamsGroupTopologyValue | None) -> StreamsGroupRecord:
    return StreamsGroupRecord(StreamsGroupTopologyKey(group_id=group_id), value)


def streams_member_record(group_id: str, member: StreamsMember) -> StreamsGroupRecord:
    return StreamsGroupRecord(
        StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), member.metadata_value()
    )


def target_tasks_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> StreamsGroupRecord:
    return StreamsGroupRecord(
        StreamsGroupTargetAssignmentMetadataKey(group_id=group_id),
        StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def target_tasks_record(group_id: str, member_id: str, target: TargetTasks) -> StreamsGroupRecord:
    return StreamsGroupRecord(
        StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        StreamsGroupTargetAssignmentMemberValue(
            active_tasks=target_task_ids(target.active),
            standby_tasks=target_task_ids(target.standby),
            warmup_tasks=target_task_ids(target.warmup),
        ),
    )


def current_tasks_record(group_id: str, member: StreamsMember) -> StreamsGroupRecord:
    return StreamsGroupRecord(
        StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        member.assignment_value(),
    )


# --- ends ---------------------------------------------------------------------------------------------------


def _current_tombstone(group_id: str, member_id: str) -> StreamsGroupRecord:
    return StreamsGroupRecord(
        StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
    )


def _target_tombstone(group_id: str, member_id: str) -> StreamsGroupRecord:
    return StreamsGroupRecord(
        StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
    )


def _member_tombstone(group_id: str, member_id: str) -> StreamsGroupRecord:
    return StreamsGroupRecord(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def streams_member_tombstones(group_id: str, member_id: str) -> list[AnyRecord]:
    return [
        _current_tombstone(group_id, member_id),
        _target_tombstone(group_id, member_id),
        _member_tombstone(group_id, member_id),
    ]


def streams_group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[AnyRecord]:
    """The end of a group with these members."""
    ids = [*member_ids]
    return [
        *(_current_tombstone(group_id, member_id) for member_id in ids),
        *(_target_tombstone(group_id, member_id) for member_id in ids),
        StreamsGroupRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(_member_tombstone(group_id, member_id) for member_id in ids),
        StreamsGroupRecord(StreamsGroupMetadataKey(group_id=group_id), None),
        topology_record(group_id, None),
    ]
