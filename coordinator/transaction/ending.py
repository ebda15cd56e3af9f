"""EndTxn, and the abort that the coordinator itself starts: Prepare* is logged, then the markers go out.

Up to v4 (transactions V1) the epoch stays as it is. From v5 on (V2, KIP-890) each end bumps it, so that whatever is
late from the transaction before is fenced; where the epochs are used up, the completion brings a new producer id.
Source: `TransactionCoordinator.endTransaction`, `endTransactionWithTV1`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.transaction import completing
from coordinator.transaction.metadata import (
    EXHAUSTED_EPOCH,
    MAX_EPOCH,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransitMetadata,
)
from coordinator.transaction.states import (
    AWAITS_MARKERS,
    CURRENT,
    END_TXN_V1,
    END_TXN_V2,
    ONGOING,
    OTHER,
    PREPARE_ABORT,
    RETRY,
    Answer,
    TransactionState,
)
from protocol.errors import Error, KafkaError
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from coordinator.transaction.shard import TransactionShard

UNSAID = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def end_txn(
    shard: TransactionShard,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    client_transaction_version: int,
) -> ProducerIdAndEpoch:
    """Commit or abort. It is so from the moment that this returns; the markers may still be on their way.

    `client_transaction_version`: 0 for EndTxn v0 to v4, whose answer is −1 and −1; 2 from v5 on, whose answer is what
    the producer has to use next.

    Raises KafkaError: INVALID_REQUEST (an empty id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
    CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE, UNSUPPORTED_VERSION (v5 at level 0), UNKNOWN_SERVER_ERROR (a commit at
    epoch 32767); what the append or a new producer id raises.
    """
    if not transactional_id:
        raise KafkaError(Error.INVALID_REQUEST)
    metadata = shard.transactions.get(transactional_id)
    if metadata is None:
        raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
    if client_transaction_version < 2:
        answer = _answer_v1(metadata, producer_id, producer_epoch, commit)
    else:
        answer = _answer_v2(metadata, producer_id, producer_epoch, commit)
    if isinstance(answer, TransactionState):
        completed = _prepare(shard, metadata, answer, client_transaction_version)
        if client_transaction_version < 2:
            return UNSAID
        return ProducerIdAndEpoch(completed.producer_id, completed.producer_epoch)
    if answer is not Error.NONE:
        raise KafkaError(answer)
    if client_transaction_version < 2:
        return UNSAID
    return ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch)


def _answer_v1(metadata: TransactionMetadata, producer_id: int, producer_epoch: int, commit: bool) -> Answer:
    if metadata.producer_id != producer_id:
        return Error.INVALID_PRODUCER_ID_MAPPING
    if metadata.producer_epoch != producer_epoch:
        return Error.PRODUCER_FENCED
    if metadata.pending_state is not None:
        return Error.CONCURRENT_TRANSACTIONS
    return END_TXN_V1[metadata.state][commit]


def _answer_v2(metadata: TransactionMetadata, producer_id: int, producer_epoch: int, commit: bool) -> Answer:
    # What is pending goes before all else: the producer may use the id or the epoch that are only on their way.
    if metadata.pending_state is not None:
        return Error.CONCURRENT_TRANSACTIONS
    stored = metadata.producer_epoch
    is_retry_of_rotation = (
        producer_id == metadata.previous_producer_id and producer_epoch == EXHAUSTED_EPOCH and stored == 0
    )
    if metadata.producer_id != producer_id and not is_retry_of_rotation:
        return Error.INVALID_PRODUCER_ID_MAPPING
    is_complete = metadata.state not in AWAITS_MARKERS  # only then it has the new id
    if producer_epoch == stored:
        relation = CURRENT
    elif producer_epoch + 1 == stored or (is_retry_of_rotation and is_complete):
        relation = RETRY
    else:
        relation = OTHER
    return END_TXN_V2[metadata.state][commit][relation]


def fence_and_abort(shard: TransactionShard, metadata: TransactionMetadata) -> None:
    """Abort an ongoing transaction against its producer, who is fenced: its epoch is over.

    The cluster's level decides how the epoch is bumped, as no client asked. Raises KafkaError: what the append or a new
    producer id raises.
    """
    version = shard.transaction_version()
    if version >= 2:
        _prepare(shard, metadata, PREPARE_ABORT, version)
        return
    epoch = metadata.producer_epoch
    if not metadata.has_failed_epoch_fence and epoch < MAX_EPOCH:
        epoch += 1
    transit = _end_v1(shard, metadata, PREPARE_ABORT)
    transit = transit._replace(producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
    try:
        shard.commit(metadata, transit)
    except KafkaError:
        # The producer is fenced all the same, and the next try must not bump the epoch again.
        metadata.producer_epoch = epoch
        metadata.last_producer_epoch = NO_PRODUCER_EPOCH
        metadata.has_failed_epoch_fence = True
        raise
    completing.begin(shard, metadata)


def _prepare(
    shard: TransactionShard, metadata: TransactionMetadata, state: TransactionState, version: int
) -> TransitMetadata:
    """Log Prepare* and begin the completion; what the id will be once that is done."""
    transit = _end_v1(shard, metadata, state) if version < 2 else _end_v2(shard, metadata, state, version)
    shard.commit(metadata, transit)
    return completing.begin(shard, metadata)


def _end_v1(
    shard: TransactionShard, metadata: TransactionMetadata, state: TransactionState
) -> TransitMetadata:
    return TransitMetadata(
        state,
        metadata.producer_id,
        metadata.producer_id,
        NO_PRODUCER_ID,
        metadata.producer_epoch,
        metadata.last_producer_epoch,
        metadata.timeout_ms,
        metadata.partitions,
        metadata.start_timestamp_ms,
        shard.runtime.now_ms(),
        0,
    )


def _end_v2(
    shard: TransactionShard, metadata: TransactionMetadata, state: TransactionState, version: int
) -> TransitMetadata:
    now_ms = shard.runtime.now_ms()
    epoch = metadata.producer_epoch
    next_producer_id = shard.next_producer_id() if metadata.is_exhausted else NO_PRODUCER_ID
    # At 32767 nothing is left to bump: an abort goes through as it is, so that the id can be used on.
    is_at_end = epoch == MAX_EPOCH and state is PREPARE_ABORT
    return TransitMetadata(
        state,
        metadata.producer_id,
        metadata.producer_id,
        next_producer_id,
        epoch if is_at_end else epoch + 1,
        epoch,
        metadata.timeout_ms,
        metadata.partitions,
        # A client that isn't sure whether it had begun may abort what it had not.
        metadata.start_timestamp_ms if metadata.state is ONGOING else now_ms,
        now_ms,
        version,
    )
