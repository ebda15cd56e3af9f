"""ListOffsets (2) and OffsetForLeaderEpoch (23): where a log begins and ends, and finding offsets.

ListOffsets: v2 isolation level, v4 leader epochs (KIP-320), v6 flexible, v7 the record with the largest
timestamp (-3, KIP-734), v8 local log start (-4, KIP-405), v9 last tiered offset (-5, KIP-1005), v10 a timeout
for remote lookups (KIP-1075), v11 the earliest offset not yet uploaded (-6, KIP-1023). OffsetForLeaderEpoch:
v2 current leader epoch (KIP-320), v3 replica id, v4 flexible.
"""

from protocol.wire.schema import Message, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    """`timestamp` in ms, or -1 latest, -2 earliest, -3 largest timestamp, -4 to -6 tiered storage."""

    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64("0+")


class ListOffsetsTopic(Struct):
    name: str = string("0+")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0+")


class ListOffsetsRequest(Message, api_key=2, versions="1-11", flexible="6+"):
    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string("0+")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+")


class ListOffsetsResponse(Message, api_key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+")


class OffsetForLeaderPartition(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32("0+")


class OffsetForLeaderTopic(Struct):
    topic: str = string("0+")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+")


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="2-4", flexible="4+"):
    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")


class EpochEndOffset(Struct):
    error_code: int = int16("0+")
    partition: int = int32("0+")
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64("0+", default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string("0+")
    partitions: list[EpochEndOffset] = array(EpochEndOffset, "0+")


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, "0+")
