"""What a transactional producer sends: AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26) and
TxnOffsetCommit (28).

AddPartitionsToTxn: v2 PRODUCER_FENCED (KIP-588), v3 flexible, v4 several transactions at once, which
brokers use to verify (KIP-890), v5 TRANSACTION_ABORTABLE. AddOffsetsToTxn: v2 PRODUCER_FENCED, v3
flexible, v4 TRANSACTION_ABORTABLE.
EndTxn: v2 and v3 alike, v4 TRANSACTION_ABORTABLE, v5 transactions V2: each end bumps the epoch, and
answers the new one (KIP-890). TxnOffsetCommit: v2 leader epoch, v3 flexible, the member's identity
(KIP-447), v4 TRANSACTION_ABORTABLE, v5 joins the transaction by itself (KIP-890).
"""

from protocol.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class AddPartitionsToTxnTopic(Struct):
    name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+")
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32("0+")
    partition_error_code: int = int16("0+")


class AddPartitionsToTxnTopicResult(Struct):
    name: str = string("0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult, "0+"
    )


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = string("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "4+")


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3"
    )


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition, "0+")


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-5", flexible="3+"):
    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic, "0+")


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string("0+")
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition, "0+")


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic, "0+")
