"""Looking into transactions, and ending them: WriteTxnMarkers (27), DescribeProducers (61),
DescribeTransactions (65) and ListTransactions (66).

WriteTxnMarkers: v1 flexible, v2 transaction version (KIP-1228). DescribeProducers, DescribeTransactions
and ListTransactions: KIP-664. ListTransactions: v1 running longer than a duration (KIP-994), v2 a pattern
for the transactional id (KIP-1152).
"""

from protocol.wire.schema import Message, Struct, array, boolean, int8, int16, int32, int64, string


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
