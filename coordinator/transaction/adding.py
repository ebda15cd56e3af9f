"""AddPartitionsToTxn: partitions join a transaction, or somebody asks whether they have.

AddOffsetsToTxn adds the group's partition of `__consumer_offsets`; a Produce of transactions V2 adds its own (KIP-890).
Source: `TransactionCoordinator.handleAddPartitionsToTransaction`, `handleVerifyPartitionsInTransaction`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from coordinator.ports import TopicPartition
from coordinator.transaction.metadata import TransactionMetadata, TransitMetadata
from coordinator.transaction.states import ADD_PARTITIONS, AWAITS_MARKERS, ONGOING
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from coordinator.transaction.shard import TransactionShard


def add_partitions(
    shard: TransactionShard,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[TopicPartition],
    *,
    client_transaction_version: int,
) -> None:
    """Add partitions; the first ones begin the transaction, and so do none.

    `client_transaction_version`: 0 for AddPartitionsToTxn v0 to v3 and for AddOffsetsToTxn, 2 for what came later.

    Raises KafkaError: INVALID_REQUEST (an empty id), INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS,
    PRODUCER_FENCED, UNSUPPORTED_VERSION (version 2 at level 0); what the append raises.
    """
    if not transactional_id:
        raise KafkaError(Error.INVALID_REQUEST)
    metadata = shard.transactions.get(transactional_id)
    if metadata is None:
        raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
    # First of all: the producer id may be the one that is only on its way.
    if metadata.pending_state is not None:
        raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
    _check_producer(metadata, producer_id, producer_epoch)
    answer = ADD_PARTITIONS[metadata.state]
    if isinstance(answer, Error):
        raise KafkaError(answer)
    known = metadata.partitions
    was_ongoing = metadata.state is ONGOING
    if was_ongoing and all(partition in known for partition in partitions):
        return
    now_ms = shard.runtime.now_ms()
    shard.commit(
        metadata,
        TransitMetadata(
            ONGOING,
            metadata.producer_id,
            metadata.producer_id,
            metadata.next_producer_id,
            metadata.producer_epoch,
            metadata.last_producer_epoch,
            metadata.timeout_ms,
            known | dict.fromkeys(partitions),
            metadata.start_timestamp_ms if was_ongoing else now_ms,
            now_ms,
            client_transaction_version,
        ),
    )


def verify_partitions(
    shard: TransactionShard,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[TopicPartition],
) -> dict[TopicPartition, Error]:
    """Whether partitions are in the transaction: NONE or TRANSACTION_ABORTABLE each, or one error for all of them.

    INVALID_REQUEST (an empty id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS. What is
    pending isn't looked at (KAFKA-14904): the append to the partition is checked once more.
    """
    try:
        if not transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        metadata = shard.transactions.get(transactional_id)
        if metadata is None:
            raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
        _check_producer(metadata, producer_id, producer_epoch)
        if metadata.state in AWAITS_MARKERS:
            raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
    except KafkaError as refused:
        return dict.fromkeys(partitions, refused.error)
    known = metadata.partitions
    return {each: Error.NONE if each in known else Error.TRANSACTION_ABORTABLE for each in partitions}


def _check_producer(metadata: TransactionMetadata, producer_id: int, producer_epoch: int) -> None:
    if metadata.producer_id != producer_id:
        raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != producer_epoch:
        raise KafkaError(Error.PRODUCER_FENCED)
