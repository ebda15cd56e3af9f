"""The records of `__transaction_state`, and the markers that end a transaction in its partitions.

Keys and values begin with their version (int16). Value: v1 is flexible, with the ids and epochs of
transactions V2 as tagged fields (KIP-915, KIP-890). A marker's key is {version int16, type int16}: 0
abort, 1 commit; its value is the version (int16) and `EndTxnMarker` (KIP-98).
"""

from protocol.wire.schema import Message, Struct, array, int8, int16, int32, int64, string


class TransactionLogKey(Message, api_key=0, versions="0"):
    transactional_id: str = string("0")


class PartitionsSchema(Struct):
    topic: str = string("0+")
    partition_ids: list[int] = array(int32, "0+")


class TransactionLogValue(Message, api_key=0, versions="0-1", flexible="1+"):
    """`transaction_status` is the id of a TransactionState; null partitions stand for none."""

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
