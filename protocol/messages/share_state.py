"""The state of share partitions (KIP-932): requests to a share coordinator, and its records.

InitializeShareGroupState (83), ReadShareGroupState (84), WriteShareGroupState (85), DeleteShareGroupState
(86), ReadShareGroupStateSummary (87); 85 and 87: v1 the count of deliveries that are complete (KIP-1226). A
start offset of -1 means none yet, an epoch of -1 means "don't check".
"""

from __future__ import annotations

from protocol.wire.schema import Message, Struct, array, int8, int16, int32, int64, string, uuid


class StateBatch(Struct):
    """`delivery_state` of `first_offset` to `last_offset`, both inclusive: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class InitializePartition(Struct):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")


class InitializeStateData(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[InitializePartition] = array(InitializePartition, "0+")


class InitializeShareGroupStateRequest(Message, api_key=83, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[InitializeStateData] = array(InitializeStateData, "0+")


class PartitionResult(Struct):
    """The result of initializing, writing or deleting one partition."""

    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class InitializeShareGroupStateResponse(Message, api_key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = array(InitializeStateResult, "0+")


class ReadPartition(Struct):
    partition: int = int32("0+")
    leader_epoch: int = int32("0+")


class ReadStateData(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[ReadPartition] = array(ReadPartition, "0+")


class ReadShareGroupStateRequest(Message, api_key=84, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[ReadStateData] = array(ReadStateData, "0+")


class ReadPartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class ReadStateResult(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[ReadPartitionResult] = array(ReadPartitionResult, "0+")


class ReadShareGroupStateResponse(Message, api_key=84, versions="0", flexible="0+"):
    results: list[ReadStateResult] = array(ReadStateResult, "0+")


class WritePartition(Struct):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class WriteStateData(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[WritePartition] = array(WritePartition, "0+")


class WriteShareGroupStateRequest(Message, api_key=85, versions="0-1", flexible="0+"):
    group_id: str = string("0+")
    topics: list[WriteStateData] = array(WriteStateData, "0+")


class WriteStateResult(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class WriteShareGroupStateResponse(Message, api_key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = array(WriteStateResult, "0+")


class DeletePartition(Struct):
    partition: int = int32("0+")


class DeleteStateData(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[DeletePartition] = array(DeletePartition, "0+")


class DeleteShareGroupStateRequest(Message, api_key=86, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[DeleteStateData] = array(DeleteStateData, "0+")


class DeleteStateResult(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class DeleteShareGroupStateResponse(Message, api_key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = array(DeleteStateResult, "0+")


class SummaryPartition(Struct):
    partition: int = int32("0+")
    leader_epoch: int = int32("0+")


class ReadStateSummaryData(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[SummaryPartition] = array(SummaryPartition, "0+")


class ReadShareGroupStateSummaryRequest(Message, api_key=87, versions="0-1", flexible="0+"):
    group_id: str = string("0+")
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData, "0+")


class SummaryPartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[SummaryPartitionResult] = array(SummaryPartitionResult, "0+")


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult, "0+")


# ---- The records of `__share_group_state`: snapshots of share partitions, and updates since the last one
#
# Keys begin with their type (int16), which is `API_KEY`; values with their version (int16). A snapshot's key with no
# value deletes the share partition, its updates included.


class ShareSnapshotKey(Message, api_key=0, versions="0"):
    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


class ShareSnapshotValue(Message, api_key=0, versions="0", flexible="0+"):
    """Timestamps in ms since the epoch."""

    snapshot_epoch: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
    create_timestamp: int = int64("0+")
    write_timestamp: int = int64("0+")
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class ShareUpdateKey(Message, api_key=1, versions="0"):
    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


class ShareUpdateValue(Message, api_key=1, versions="0", flexible="0+"):
    """A start offset of -1 means that the snapshot's still holds."""

    snapshot_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch, "0+")
