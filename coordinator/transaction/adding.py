"""AddPartitionsToTxn: partitions join a transaction, or somebody asks whether they have.

AddOffsetsToTxn adds the group's partition of `__consumer_offsets`; a Produce of transactions V2 adds its own (KIP-890).
Source: `TransactionCoordinator.handleAddPartitionsToTransaction`, `handleVerifyPartitionsInTransaction`.
"""

from __future__ import annotations

from collections.abc import Collection

from coordinator.ports import WhenCommitted
from coordinator.transaction.state_manager import TransactionStateManager
from coordinator.transaction.states import ADD_PARTITIONS, AWAITS_MARKERS, ONGOING
from coordinator.transaction.transaction_metadata import TransactionMetadata
from coordinator.transaction.transactional_producer import TransactionalProducer
from protocol.errors import NO_ERROR, Error, KafkaError
from protocol.topic_partition import TopicPartition


def add_partitions(
    manager: TransactionStateManager,
    producer: TransactionalProducer,
    partitions: Collection[TopicPartition],
    client_transaction_version: int,
    then: WhenCommitted,
) -> None:
    """See `TransactionShard.add_partitions`."""
    try:
        metadata = manager.get(producer.transactional_id)
        is_there = _check(metadata, producer, partitions)
    except KafkaError as refused:
        then(refused.as_value())
        return
    if is_there:
        manager.when_certain(then)
        return
    now_ms = manager.runtime.now_ms()
    transit = metadata.prepare_add_partitions(partitions, now_ms, client_transaction_version)
    manager.commit(metadata, transit, then)


def _check(
    metadata: TransactionMetadata, producer: TransactionalProducer, partitions: Collection[TopicPartition]
) -> bool:
    """Whether all of them are in the transaction. Raises KafkaError where none can be added."""
    # First of all: the producer id may be the one that is only on its way.
    if metadata.pending_state is not None:
        raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
    _check_producer(metadata, producer)
    answer = ADD_PARTITIONS[metadata.state]
    if isinstance(answer, Error):
        raise KafkaError(answer)
    if metadata.state is not ONGOING:
        return False
    known = metadata.partitions
    for partition in partitions:  # noqa: SIM110  (`all` of them costs each transaction a generator)
        if partition not in known:
            return False
    return True


def verify_partitions(
    manager: TransactionStateManager, producer: TransactionalProducer, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Error]:
    """See `TransactionShard.verify_partitions`."""
    try:
        metadata = manager.get(producer.transactional_id)
        _check_producer(metadata, producer)
        if metadata.state in AWAITS_MARKERS:
            raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
    except KafkaError as refused:
        return dict.fromkeys(partitions, refused.error)
    known = metadata.partitions
    return {each: NO_ERROR if each in known else Error.TRANSACTION_ABORTABLE for each in partitions}


def _check_producer(metadata: TransactionMetadata, producer: TransactionalProducer) -> None:
    if metadata.producer_id != producer.producer_id:
        raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != producer.producer_epoch:
        raise KafkaError(Error.PRODUCER_FENCED)
