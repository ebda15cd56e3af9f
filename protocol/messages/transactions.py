"""Transactions: the requests of a transactional producer, of coordinators and administrators, and the data on
disk about transactions and producers."""

from __future__ import annotations

from protocol.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    uint32,
    uuid,
)

# ---- AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26) and TxnOffsetCommit (28)
#
# AddPartitionsToTxn: v2 PRODUCER_FENCED (KIP-588), v3 flexible, v4 several transactions at once, which brokers use to
# verify (KIP-890), v5 TRANSACTION_ABORTABLE. AddOffsetsToTxn: v2 PRODUCER_FENCED, v3 flexible, v4
# TRANSACTION_ABORTABLE. EndTxn: v2 and v3 alike, v4 TRANSACTION_ABORTABLE, v5 transactions V2: each end bumps the
# epoch, and answers the new one (KIP-890). TxnOffsetCommit: v2 leader epoch, v3 flexible, the member's identity
# (KIP-447), v4 TRANSACTION_ABORTABLE, v5 joins the transaction by itself (KIP-890), v6 topic ids (KIP-1319).


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
    name: str = string("0-5", ignorable=True)
    topic_id: bytes = uuid("6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition, "0+")


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-6", flexible="3+"):
    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id_or_member_epoch: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic, "0+")


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string("0-5", ignorable=True)
    topic_id: bytes = uuid("6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition, "0+")


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic, "0+")


# ---- WriteTxnMarkers (27), DescribeProducers (61), DescribeTransactions (65) and ListTransactions (66)
#
# WriteTxnMarkers: v1 flexible, v2 transaction version (KIP-1228). DescribeProducers, DescribeTransactions and
# ListTransactions: KIP-664. ListTransactions: v1 running longer than a duration (KIP-994), v2 a pattern for the
# transactional id (KIP-1152).


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    transactional_ids: list[str] = array(string, "0+")


class DescribedTransactionTopic(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class DescribedTransaction(Struct):
    error_code: int = int16("0+")
    transactional_id: str = string("0+")
    transaction_state: str = string("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_start_time_ms: int = int64("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    topics: list[DescribedTransactionTopic] = array(DescribedTransactionTopic, "0+")


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction, "0+")


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[str] = array(string, "0+")
    producer_id_filters: list[int] = array(int64, "0+")
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class ListedTransaction(Struct):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    transaction_state: str = string("0+")


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: list[str] = array(string, "0+")
    transaction_states: list[ListedTransaction] = array(ListedTransaction, "0+")


class DescribeProducersTopic(Struct):
    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+"):
    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic, "0+")


class DescribedProducer(Struct):
    producer_id: int = int64("0+")
    producer_epoch: int = int32("0+")
    last_sequence: int = int32("0+", default=-1)
    last_timestamp: int = int64("0+", default=-1)
    coordinator_epoch: int = int32("0+")
    current_txn_start_offset: int = int64("0+", default=-1)


class DescribeProducersPartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    active_producers: list[DescribedProducer] = array(DescribedProducer, "0+")


class DescribeProducersTopicResponse(Struct):
    name: str = string("0+")
    partitions: list[DescribeProducersPartitionResponse] = array(DescribeProducersPartitionResponse, "0+")


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    topics: list[DescribeProducersTopicResponse] = array(DescribeProducersTopicResponse, "0+")


class WritableTxnMarkerTopic(Struct):
    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


class WritableTxnMarker(Struct):
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    transaction_result: bool = boolean("0+")
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic, "0+")
    coordinator_epoch: int = int32("0+")
    transaction_version: int = int8("2+", ignorable=True)


class WriteTxnMarkersRequest(Message, api_key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker, "0+")


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class WritableTxnMarkerTopicResult(Struct):
    name: str = string("0+")
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult, "0+")


class WritableTxnMarkerResult(Struct):
    producer_id: int = int64("0+")
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult, "0+")


class WriteTxnMarkersResponse(Message, api_key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult, "0+")


# ---- The records of `__transaction_state`, and the markers that end a transaction in its partitions
#
# Keys and values begin with their version (int16). Value: v1 is flexible, with the ids and epochs of transactions V2 as
# tagged fields (KIP-915, KIP-890). A marker's key is {version int16, type int16}: 0 abort, 1 commit; its value is the
# version (int16) and `EndTxnMarker` (KIP-98).


class TransactionLogKey(Message, api_key=0, versions="0"):
    transactional_id: str = string("0")


class PartitionsSchema(Struct):
    topic: str = string("0+")
    partition_ids: list[int] = array(int32, "0+")


class TransactionLogValue(Message, api_key=0, versions="0-1", flexible="1+"):
    """`transaction_status` is the id of a TransactionState. Null partitions mean none."""

    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16("0+")
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, "0+", nullable="0+")
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", tag=2)


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: int = int32("0+")


class ControlRecordTypeSchema(Message, versions="0"):
    type: int = int16("0+")


# ---- A `.snapshot` file: the producers of a partition as of the offset in its name (KIP-98)
#
# The file is {version int16, crc uint32, entries}; the CRC-32C covers what follows it.


class ProducerEntry(Struct):
    """The producer's last batch: `last_sequence`, `last_offset`, and `offset_delta` back to its first
    record.
    `coordinator_epoch` is that of its last marker; `current_txn_first_offset` -1 without an open
    transaction.
    """

    producer_id: int = int64("1")
    epoch: int = int16("1")
    last_sequence: int = int32("1")
    last_offset: int = int64("1")
    offset_delta: int = int32("1")
    timestamp: int = int64("1")
    coordinator_epoch: int = int32("1")
    current_txn_first_offset: int = int64("1")


class ProducerSnapshot(Message, versions="1"):
    crc: int = uint32("1")
    producer_entries: list[ProducerEntry] = array(ProducerEntry, "1")


# ---- An entry of a `.txnindex`: a transaction that was aborted (KIP-98)
#
# Behind its version (int16, 0). Written by hand, too: `storage.indexes`.


class AbortedTxn(Message, versions="0"):
    """Offsets are inclusive; `last_offset` is the marker's."""

    producer_id: int = int64("0+")
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    last_stable_offset: int = int64("0+")
