"""What time does: transactions time out, and transactional ids that nobody uses are forgotten.

Source: `TransactionCoordinator.abortTimedOutTransactions`, `TransactionStateManager.removeExpiredTransactionalIds`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from coordinator.transaction import ending
from coordinator.transaction.metadata import NO_TIMEOUT_MS, TransactionMetadata
from coordinator.transaction.records import encode_key
from coordinator.transaction.states import DEAD, EXPIRES, TIMES_OUT
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.ports import Record
    from coordinator.transaction.shard import TransactionShard

log = logging.getLogger("barnabas.transactions")

TOMBSTONES_BYTES = 16_384
"""So many bytes of keys in one batch at most, or one key."""

_ABORT = ("abort timed out transactions",)
_EXPIRE = ("remove expired transactional ids",)


def tick(shard: TransactionShard) -> None:
    """Look at the time again and again, from the moment that there is a transactional id on."""
    if shard.is_ticking or not shard.transactions:
        return
    shard.is_ticking = True
    settings = shard.settings
    _every(shard, _ABORT, settings.abort_timed_out_interval_ms, abort_timed_out)
    _every(shard, _EXPIRE, settings.remove_expired_interval_ms, remove_expired)


def stop(shard: TransactionShard) -> None:
    shard.is_ticking = False
    shard.runtime.cancel(_ABORT)
    shard.runtime.cancel(_EXPIRE)


def _every(
    shard: TransactionShard, key: tuple[str], interval_ms: int, step: Callable[[TransactionShard], None]
) -> None:
    def go_on() -> None:
        try:
            step(shard)
        finally:  # a failure that nobody thought of must not be the last look
            if shard.transactions:
                shard.runtime.schedule(key, interval_ms, go_on)
            else:
                stop(shard)

    shard.runtime.schedule(key, interval_ms, go_on)


# ---- timeouts


def abort_timed_out(shard: TransactionShard) -> None:
    """Fence and abort what has been open for longer than its timeout; what fails is tried at the next look."""
    now_ms = shard.runtime.now_ms()
    for metadata in [each for each in shard.transactions.values() if _is_timed_out(each, now_ms)]:
        try:
            ending.fence_and_abort(shard, metadata)
        except KafkaError as error:
            log.warning("the timed out transaction of %s stays open: %s", metadata.transactional_id, error)
        else:
            log.info("the transaction of %s timed out and was aborted", metadata.transactional_id)


def _is_timed_out(metadata: TransactionMetadata, now_ms: int) -> bool:
    return (
        metadata.state in TIMES_OUT
        and metadata.pending_state is None
        and metadata.timeout_ms != NO_TIMEOUT_MS
        and metadata.start_timestamp_ms + metadata.timeout_ms < now_ms
    )


# ---- transactional ids


def remove_expired(shard: TransactionShard) -> None:
    """Forget the ids that nothing has happened to for long, with a tombstone each."""
    limit_ms = shard.runtime.now_ms() - shard.settings.transactional_id_expiration_ms
    batch: list[TransactionMetadata] = []
    records: list[Record] = []
    size_bytes = 0
    for metadata in [each for each in shard.transactions.values() if _is_expired(each, limit_ms)]:
        key = encode_key(metadata.transactional_id)
        if batch and size_bytes + len(key) > TOMBSTONES_BYTES:
            _bury(shard, batch, records)
            batch, records, size_bytes = [], [], 0
        batch.append(metadata)
        records.append((key, None))
        size_bytes += len(key)
    if batch:
        _bury(shard, batch, records)


def _is_expired(metadata: TransactionMetadata, limit_ms: int) -> bool:
    return (
        metadata.state in EXPIRES
        and metadata.pending_state is None
        and metadata.last_update_timestamp_ms <= limit_ms
    )


def _bury(shard: TransactionShard, batch: list[TransactionMetadata], records: list[Record]) -> None:
    for metadata in batch:
        metadata.pending_state = DEAD
    try:
        shard.runtime.append(records)
    except KafkaError as error:
        log.warning("%d transactional ids can't be forgotten: %s", len(batch), error)
        for metadata in batch:
            metadata.pending_state = None
        return
    for metadata in batch:
        shard.apply(metadata.transactional_id, None)
