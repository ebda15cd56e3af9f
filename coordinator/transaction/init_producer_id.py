"""InitProducerId with a transactional id: who was there before is fenced, and what it left open is aborted.

Source: `TransactionCoordinator.handleInitProducerId`, `TransactionMetadata`; KIP-98, KIP-360, KIP-890, KIP-939.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.transaction import ending
from coordinator.transaction.metadata import (
    EXHAUSTED_EPOCH,
    NO_TIMEOUT_MS,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransitMetadata,
)
from coordinator.transaction.states import EMPTY, INIT_PRODUCER_ID
from protocol.errors import Error, KafkaError
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP

if TYPE_CHECKING:
    from coordinator.transaction.shard import TransactionShard


def init_producer_id(
    shard: TransactionShard,
    transactional_id: str,
    *,
    timeout_ms: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    enable_2pc: bool = False,
    keep_prepared_txn: bool = False,
) -> ProducerIdAndEpoch:
    """Who the producer is from now on.

    A producer id and an epoch, both or neither: a producer that goes on after an error (KIP-360); one without the
    other is INVALID_REQUEST, which the handler answers.

    Raises KafkaError: INVALID_REQUEST (an empty id), TRANSACTIONAL_ID_AUTHORIZATION_FAILED (two-phase commit is
    switched off), UNSUPPORTED_VERSION (keep_prepared_txn; level 0), INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED,
    CONCURRENT_TRANSACTIONS (also where it aborted what was open: ask again), UNKNOWN_SERVER_ERROR (the epochs are used
    up, and the one given isn't the current one); what the append raises.
    """
    if not transactional_id:
        raise KafkaError(Error.INVALID_REQUEST)
    settings = shard.settings
    if enable_2pc and not settings.two_phase_commit_enable:
        raise KafkaError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if keep_prepared_txn:
        raise KafkaError(Error.UNSUPPORTED_VERSION)
    if enable_2pc:
        timeout_ms = NO_TIMEOUT_MS
    elif not 0 < timeout_ms <= settings.max_timeout_ms:
        raise KafkaError(Error.INVALID_TRANSACTION_TIMEOUT)
    metadata = shard.transactions.get(transactional_id)
    if metadata is None:
        # It stays, should its first record fail to be written: then it has an id, and no epoch yet.
        metadata = shard.create(transactional_id, timeout_ms)
    given = None
    if producer_id != NO_PRODUCER_ID and producer_epoch != NO_PRODUCER_EPOCH:
        given = ProducerIdAndEpoch(producer_id, producer_epoch)
    if metadata.pending_state is not None:
        raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
    if given is not None and not _knows(metadata, given):
        raise KafkaError(Error.PRODUCER_FENCED)
    answer = INIT_PRODUCER_ID[metadata.state]
    if isinstance(answer, Error):
        raise KafkaError(answer)
    if answer is not EMPTY:
        ending.fence_and_abort(shard, metadata)
        raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
    transit = _next_epoch(shard, metadata, timeout_ms, given)
    shard.commit(metadata, transit)
    return ProducerIdAndEpoch(transit.producer_id, transit.producer_epoch)


def _knows(metadata: TransactionMetadata, given: ProducerIdAndEpoch) -> bool:
    """Whether the one who asks may be the owner. The epoch is looked at later, where it is to be bumped."""
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or given.producer_id == metadata.producer_id
        # It asks again, having missed that it got a new id.
        or (given.producer_id == metadata.previous_producer_id and given.producer_epoch >= EXHAUSTED_EPOCH)
    )


def _next_epoch(
    shard: TransactionShard, metadata: TransactionMetadata, timeout_ms: int, given: ProducerIdAndEpoch | None
) -> TransitMetadata:
    current = metadata.producer_epoch
    transit = metadata.as_transit()._replace(
        state=EMPTY,
        timeout_ms=timeout_ms,
        partitions={},
        start_timestamp_ms=NO_TIMESTAMP,
        last_update_timestamp_ms=shard.runtime.now_ms(),
    )
    if metadata.is_exhausted:
        if given is not None and given.producer_epoch != current:
            # Kafka's IllegalStateException, even for a retry that would get the current epoch.
            raise KafkaError(
                Error.UNKNOWN_SERVER_ERROR, f"no epoch is left of producer id {metadata.producer_id}"
            )
        return transit._replace(
            producer_id=shard.next_producer_id(),
            producer_epoch=0,
            last_producer_epoch=NO_PRODUCER_EPOCH if given is None else current,
        )
    if given is None:
        return transit._replace(producer_epoch=current + 1, last_producer_epoch=NO_PRODUCER_EPOCH)
    if current in (NO_PRODUCER_EPOCH, given.producer_epoch):
        return transit._replace(producer_epoch=current + 1, last_producer_epoch=current)
    if given.producer_epoch == metadata.last_producer_epoch:
        return transit  # it asks again: nobody else came in between, or the last epoch would be −1
    raise KafkaError(Error.PRODUCER_FENCED)
