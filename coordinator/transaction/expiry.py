"""Timers of the transaction coordinator: they abort transactions past their timeout and forget unused
transactional ids.

Source: `TransactionCoordinator.abortTimedOutTransactions`, `TransactionStateManager.removeExpiredTransactionalIds`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from coordinator.settings import TransactionSettings
from coordinator.transaction.state_manager import (
    NO_TIMEOUT_MS,
    TransactionMetadata,
    TransactionStateManager,
    encode_key,
)
from coordinator.transaction.states import EXPIRES, TIMES_OUT
from protocol.errors import KafkaError
from protocol.waiting import Waiting, carry_on

log = logging.getLogger("barnabas.transactions")

TOMBSTONES_BYTES = 16_384
"""The most bytes of keys in one batch of tombstones. A longer single key gets a batch of its own."""

ABORTS_PER_TURN = 100
"""The most timed-out transactions to abort in one turn. Others are served before the next ones."""

_ABORT = ("abort timed out transactions",)
_ABORT_REST = ("abort the rest of them",)
_EXPIRE = ("remove expired transactional ids",)
_EXPIRE_REST = ("remove the rest of them",)


class TransactionExpiry:
    """Runs both checks at intervals, as long as there is a transactional id."""

    def __init__(
        self,
        manager: TransactionStateManager,
        fence_and_abort: Callable[[TransactionMetadata], Waiting[KafkaError | None]],
        settings: TransactionSettings,
    ) -> None:
        self._manager = manager
        self._fence_and_abort = fence_and_abort
        self._settings = settings
        self._is_ticking = False

    def tick(self) -> None:
        """Start the checks, unless they run already or there are no transactional ids."""
        if self._is_ticking or not self._manager.transactions:
            return
        self._is_ticking = True
        self._every(_ABORT, self._settings.abort_timed_out_interval_ms, self.abort_timed_out)
        self._every(_EXPIRE, self._settings.remove_expired_interval_ms, self.remove_expired)

    def stop(self) -> None:
        self._is_ticking = False
        self._manager.runtime.cancel(_ABORT)
        self._manager.runtime.cancel(_ABORT_REST)
        self._manager.runtime.cancel(_EXPIRE)
        self._manager.runtime.cancel(_EXPIRE_REST)

    def _every(self, key: tuple[str], interval_ms: int, step: Callable[[], None]) -> None:
        self._manager.runtime.schedule(key, interval_ms, partial(self._look, key, interval_ms, step))

    def _look(self, key: tuple[str], interval_ms: int, step: Callable[[], None]) -> None:
        try:
            step()
        finally:  # an unexpected failure must not end the checks
            if self._manager.transactions:
                self._every(key, interval_ms, step)
            else:
                self.stop()

    # ---- timeouts

    def abort_timed_out(self) -> None:
        """Fence and abort the transactions past their timeout. The next check retries those that fail."""
        self._abort_some(deque(self.timed_out()))

    def _abort_some(self, waiting: deque[TransactionMetadata]) -> None:
        """Abort up to ABORTS_PER_TURN of them, and schedule the rest for a later turn."""
        now_ms = self._manager.runtime.now_ms()
        try:
            for _ in range(min(ABORTS_PER_TURN, len(waiting))):
                metadata = waiting.popleft()
                if self._is_timed_out(metadata, now_ms):  # still
                    carry_on(self._abort(metadata))
        finally:
            if waiting and self._is_ticking:  # the first ones may have unloaded the shard
                self._manager.runtime.schedule(_ABORT_REST, 0, partial(self._abort_some, waiting))

    async def _abort(self, metadata: TransactionMetadata) -> None:
        await self.abort(metadata)

    async def abort(self, metadata: TransactionMetadata) -> KafkaError | None:
        """Fence and abort this transaction, whatever the clock says.

        Returns the error if it can't be aborted, or None once the abort is certain.
        """
        error = await self._fence_and_abort(metadata)
        if error is not None:
            log.warning("the timed out transaction of %s stays open: %s", metadata.transactional_id, error)
        else:
            log.info("the transaction of %s timed out and was aborted", metadata.transactional_id)
        return error

    def timed_out(self) -> list[TransactionMetadata]:
        """The transactions that have been open for longer than their timeout."""
        now_ms = self._manager.runtime.now_ms()
        return [each for each in self._manager.transactions.values() if self._is_timed_out(each, now_ms)]

    @staticmethod
    def may_time_out(metadata: TransactionMetadata) -> bool:
        """True if the transaction is open and nothing is already ending it."""
        return metadata.state in TIMES_OUT and metadata.pending_state is None

    @staticmethod
    def _is_timed_out(metadata: TransactionMetadata, now_ms: int) -> bool:
        return (
            TransactionExpiry.may_time_out(metadata)
            and metadata.timeout_ms != NO_TIMEOUT_MS
            and metadata.start_timestamp_ms + metadata.timeout_ms < now_ms
        )

    # ---- transactional ids

    def remove_expired(self) -> None:
        """Forget the transactional ids that have been idle for too long, with one tombstone each."""
        limit_ms = self._manager.runtime.now_ms() - self._settings.transactional_id_expiration_ms
        expired = [each for each in self._manager.transactions.values() if _is_expired(each, limit_ms)]
        self._bury_some(deque(expired), limit_ms)

    def _bury_some(self, waiting: deque[TransactionMetadata], limit_ms: int) -> None:
        """Write one batch of tombstones, and schedule the rest for a later turn."""
        batch: list[TransactionMetadata] = []
        size_bytes = 0
        try:
            while waiting:
                metadata = waiting[0]
                size_bytes += len(encode_key(metadata.transactional_id))
                if batch and size_bytes > TOMBSTONES_BYTES:
                    break
                waiting.popleft()
                if _is_expired(metadata, limit_ms):  # still
                    batch.append(metadata)
            if batch:
                carry_on(self._bury(batch))
        finally:
            if waiting and self._is_ticking:  # the first ones may have unloaded the shard
                self._manager.runtime.schedule(_EXPIRE_REST, 0, partial(self._bury_some, waiting, limit_ms))

    async def _bury(self, batch: list[TransactionMetadata]) -> None:
        error = await self._manager.bury(batch)
        if error is not None:
            log.warning("%d transactional ids can't be forgotten: %s", len(batch), error)


def _is_expired(metadata: TransactionMetadata, limit_ms: int) -> bool:
    return (
        metadata.state in EXPIRES
        and metadata.pending_state is None
        and metadata.last_update_timestamp_ms <= limit_ms
    )
