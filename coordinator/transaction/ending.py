"""EndTxn, and the abort that the coordinator itself starts: Prepare* is logged, then the markers go out.

Up to v4 (transactions V1) the epoch stays as it is. From v5 on (V2, KIP-890) each end bumps it, so that whatever is
late from the transaction before is fenced; where the epochs are used up, the completion brings a new producer id.
Source: `TransactionCoordinator.endTransaction`, `endTransactionWithTV1`.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.ports import WhenCommitted
from coordinator.transaction.completing import Completing
from coordinator.transaction.state_manager import TransactionStateManager
from coordinator.transaction.states import (
    AWAITS_MARKERS,
    CURRENT,
    END_TXN_V1,
    END_TXN_V2,
    OTHER,
    PREPARE_ABORT,
    RETRY,
    ErrorOrState,
    TransactionState,
)
from coordinator.transaction.transaction_metadata import (
    EXHAUSTED_EPOCH,
    ProducerIdAndEpoch,
    Reply,
    TransactionMetadata,
    TransitMetadata,
)
from coordinator.transaction.transactional_producer import TransactionalProducer
from protocol.errors import Error, KafkaError
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

UNSAID = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Ending:
    """Ends transactions, for their producers and against them."""

    def __init__(
        self, manager: TransactionStateManager, completing: Completing, next_producer_id: Callable[[], int]
    ) -> None:
        """`next_producer_id` raises KafkaError where none is to be had."""
        self._manager = manager
        self._completing = completing
        self._next_producer_id = next_producer_id

    def end_txn(
        self, producer: TransactionalProducer, commit: bool, client_transaction_version: int, reply: Reply
    ) -> None:
        """See `TransactionShard.end_txn`."""
        version = client_transaction_version
        try:
            metadata = self._manager.get(producer.transactional_id)
            answer = (_answer_v1 if version < 2 else _answer_v2)(metadata, producer, commit)
            if isinstance(answer, TransactionState):
                transit = self._prepare(metadata, answer, version)
            elif answer is not Error.NONE:
                raise KafkaError(answer)
            else:
                transit = None
        except KafkaError as refused:
            reply(refused.as_value())
            return
        if transit is None:  # it has ended so before
            is_told = version >= 2
            reply(ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch) if is_told else UNSAID)
        else:
            self._end(metadata, transit, reply, version)

    def fence_and_abort(self, metadata: TransactionMetadata, then: WhenCommitted) -> None:
        """Abort an ongoing transaction against its producer, who is fenced: its epoch is over.

        The cluster's level decides how the epoch is bumped, as no client asked. `then` is given None once the abort is
        logged; else the error of the log, or of the lack of producer ids.
        """
        version = self._manager.transaction_version()
        if version < 2:
            metadata.fence_producer_epoch()
        try:
            transit = self._prepare(metadata, PREPARE_ABORT, version)
        except KafkaError as error:
            then(error.as_value())
            return

        def reply(answer: ProducerIdAndEpoch | KafkaError) -> None:
            if isinstance(answer, KafkaError):
                if version < 2:
                    metadata.fail_epoch_fence()
                then(answer)
            else:
                then(None)

        self._end(metadata, transit, reply, version)

    def _prepare(
        self, metadata: TransactionMetadata, state: TransactionState, version: int
    ) -> TransitMetadata:
        next_producer_id = NO_PRODUCER_ID
        if version >= 2 and metadata.is_exhausted:
            next_producer_id = self._next_producer_id()
        now_ms = self._manager.runtime.now_ms()
        return metadata.prepare_abort_or_commit(state, version, next_producer_id, now_ms)

    def _end(
        self, metadata: TransactionMetadata, transit: TransitMetadata, reply: Reply, version: int
    ) -> None:
        """Log Prepare*. Once it is committed the answer leaves, and then the markers do."""

        def prepared(error: KafkaError | None) -> None:
            if error is not None:
                reply(error)
                return
            completion = self._completing.begin(metadata)
            completed = completion.transit
            is_told = version >= 2
            told = ProducerIdAndEpoch(completed.producer_id, completed.producer_epoch) if is_told else UNSAID
            try:
                reply(told)
            finally:
                self._completing.send(completion)

        self._manager.commit(metadata, transit, prepared)


def _answer_v1(metadata: TransactionMetadata, producer: TransactionalProducer, commit: bool) -> ErrorOrState:
    if metadata.producer_id != producer.producer_id:
        return Error.INVALID_PRODUCER_ID_MAPPING
    if metadata.producer_epoch != producer.producer_epoch:
        return Error.PRODUCER_FENCED
    if metadata.pending_state is not None:
        return Error.CONCURRENT_TRANSACTIONS
    return END_TXN_V1[metadata.state][commit]


def _answer_v2(metadata: TransactionMetadata, producer: TransactionalProducer, commit: bool) -> ErrorOrState:
    # What is pending goes before all else: the producer may use the id or the epoch that are only on their way.
    if metadata.pending_state is not None:
        return Error.CONCURRENT_TRANSACTIONS
    producer_id, producer_epoch = producer.producer_id, producer.producer_epoch
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
