"""What a transactional producer says before it writes: InitProducerId, then AddPartitionsToTxn for each partition.

With InitProducerId who was there before is fenced, and what it left open is aborted. AddOffsetsToTxn adds the group's
partition of `__consumer_offsets`; a Produce of transactions V2 adds its own (KIP-890). Others ask whether partitions
have joined.

Source: `TransactionCoordinator` (handleInitProducerId, handleAddPartitionsToTransaction,
handleVerifyPartitionsInTransaction), `TransactionMetadata`; KIP-98, KIP-360, KIP-890, KIP-939.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from coordinator.ports import WhenCommitted
from coordinator.settings import TransactionSettings
from coordinator.transaction.end_transaction import Ending
from coordinator.transaction.producer_ids import TransactionalProducer
from coordinator.transaction.state_manager import TransactionStateManager
from coordinator.transaction.states import ADD_PARTITIONS, AWAITS_MARKERS, EMPTY, INIT_PRODUCER_ID, ONGOING
from coordinator.transaction.transaction_metadata import (
    EXHAUSTED_EPOCH,
    NO_TIMEOUT_MS,
    ProducerIdAndEpoch,
    Reply,
    TransactionMetadata,
    TransitMetadata,
)
from protocol.errors import NO_ERROR, Error, KafkaError
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.topic_partition import TopicPartition

# --- InitProducerId -------------------------------------------------------------------------------------------


class Initializing:
    """Gives a transactional id the next epoch, or a new producer id."""

    def __init__(
        self,
        manager: TransactionStateManager,
        ending: Ending,
        settings: TransactionSettings,
        next_producer_id: Callable[[], int],
    ) -> None:
        self._manager = manager
        self._ending = ending
        self._settings = settings
        self._next_producer_id = next_producer_id

    def check(
        self, transactional_id: str, timeout_ms: int, *, enable_2pc: bool, keep_prepared_txn: bool
    ) -> int:
        """The timeout that counts, in milliseconds. Raises KafkaError for what no transactional id may ask."""
        if not transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        if enable_2pc and not self._settings.two_phase_commit_enable:
            raise KafkaError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if keep_prepared_txn:
            raise KafkaError(Error.UNSUPPORTED_VERSION)
        if enable_2pc:
            return NO_TIMEOUT_MS
        if not 0 < timeout_ms <= self._settings.max_timeout_ms:
            raise KafkaError(Error.INVALID_TRANSACTION_TIMEOUT)
        return timeout_ms

    def init_producer_id(self, producer: TransactionalProducer, timeout_ms: int, reply: Reply) -> None:
        """See `TransactionShard.init_producer_id`; what is asked for has been checked."""
        try:
            metadata = self._metadata(producer.transactional_id, timeout_ms)
            is_open = _has_transaction(metadata, producer)
            transit = None if is_open else self._next_epoch(metadata, timeout_ms, producer)
        except KafkaError as refused:
            reply(refused.as_value())
            return
        if transit is None:
            # Whoever asks has to ask again, once what was open is aborted.
            self._ending.fence_and_abort(
                metadata, lambda error: reply(error or KafkaError(Error.CONCURRENT_TRANSACTIONS))
            )
            return
        answer = ProducerIdAndEpoch(transit.producer_id, transit.producer_epoch)
        self._manager.commit(metadata, transit, lambda error: reply(error or answer))

    def _metadata(self, transactional_id: str, timeout_ms: int) -> TransactionMetadata:
        metadata = self._manager.transactions.get(transactional_id)
        if metadata is None:
            # It stays, should its first record fail to be written: then it has an id, and no epoch yet.
            metadata = self._manager.create(transactional_id, self._next_producer_id(), timeout_ms)
        return metadata

    def _next_epoch(
        self, metadata: TransactionMetadata, timeout_ms: int, producer: TransactionalProducer
    ) -> TransitMetadata:
        now_ms = self._manager.runtime.now_ms()
        expected_epoch = producer.producer_epoch if _says_who(producer) else None
        if metadata.is_exhausted and expected_epoch in (None, metadata.producer_epoch):
            return metadata.prepare_producer_id_rotation(
                self._next_producer_id(), timeout_ms, now_ms, knows_epoch=expected_epoch is not None
            )
        return metadata.prepare_increment_producer_epoch(timeout_ms, expected_epoch, now_ms)


def _says_who(producer: TransactionalProducer) -> bool:
    return producer.producer_id != NO_PRODUCER_ID and producer.producer_epoch != NO_PRODUCER_EPOCH


def _has_transaction(metadata: TransactionMetadata, producer: TransactionalProducer) -> bool:
    """Whether something is open, to be aborted first. Raises KafkaError for who has to wait, or isn't the owner."""
    if metadata.pending_state is not None:
        raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
    if _says_who(producer) and not _knows(metadata, producer):
        raise KafkaError(Error.PRODUCER_FENCED)
    answer = INIT_PRODUCER_ID[metadata.state]
    if isinstance(answer, Error):
        raise KafkaError(answer)
    return answer is not EMPTY


def _knows(metadata: TransactionMetadata, given: TransactionalProducer) -> bool:
    """Whether the one who asks may be the owner. The epoch is looked at later, where it is to be bumped."""
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or given.producer_id == metadata.producer_id
        # It asks again, having missed that it got a new id.
        or (given.producer_id == metadata.previous_producer_id and given.producer_epoch >= EXHAUSTED_EPOCH)
    )


# --- AddPartitionsToTxn ---------------------------------------------------------------------------------------


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
