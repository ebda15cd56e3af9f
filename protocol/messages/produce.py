"""Produce (0): batches to append, and where they landed.

v3 is the oldest served: record batches v2 and the transactional id (KIP-98). v5 log start offset, v7 zstd
(KIP-110), v8 errors per record (KIP-467), v9 flexible, v10 the new leader in the answer (KIP-951), v11
TRANSACTION_ABORTABLE, v12 partitions join the transaction by themselves (KIP-890), v13 topic ids
(KIP-516).
"""

from protocol.wire.schema import Message, Struct, array, int16, int32, int64, records, string, struct, uuid


class PartitionProduceData(Struct):
    """`records` is one record batch v2 from a client that follows the rules."""

    index: int = int32("0+")
    records: memoryview | None = records("0+", nullable="0+")


class TopicProduceData(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
    """0-2 are advertised for the sake of librdkafka (KAFKA-18659), and refused all the same."""

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")


class BatchIndexAndErrorMessage(Struct):
    """What is wrong with one record; the index counts from 0 within its batch."""

    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Struct):
    """`base_offset` -1 on errors; `log_append_time_ms` -1 on CreateTime topics."""

    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
