"""The requests of a producer: Produce (0), and before it InitProducerId (22) for an id. Brokers get blocks of
ids by AllocateProducerIds (67).

Produce: v3 is the oldest served: record batches v2 and the transactional id (KIP-98). v5 log start offset, v7
zstd (KIP-110), v8 errors per record (KIP-467), v9 flexible, v10 the new leader in the answer (KIP-951), v11
TRANSACTION_ABORTABLE, v12 partitions join the transaction by themselves (KIP-890), v13 topic ids (KIP-516).
"""

from __future__ import annotations

from protocol.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class PartitionProduceData(Struct):
    """`records` is one record batch v2, if the client follows the rules."""

    index: int = int32("0+")
    records: memoryview | None = records("0+", nullable="0+")


class TopicProduceData(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
    """0-2 are advertised for librdkafka (KAFKA-18659), but refused."""

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")


class BatchIndexAndErrorMessage(Struct):
    """A mistake in one record. The index counts from 0 within its batch."""

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


# ---- InitProducerId (22) for producers, AllocateProducerIds (67) between brokers and the controller
#
# InitProducerId: v2 flexible, v3 a producer shows its id and epoch to go on after an error (KIP-360), v4
# PRODUCER_FENCED (KIP-588), v5 TRANSACTION_ABORTABLE (KIP-890), v6 two-phase commit (KIP-939; unstable, not
# advertised). AllocateProducerIds: KIP-730.


class InitProducerIdRequest(Message, api_key=22, versions="0-6", flexible="2+"):
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Message, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)


class AllocateProducerIdsRequest(Message, api_key=67, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)


class AllocateProducerIdsResponse(Message, api_key=67, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")
