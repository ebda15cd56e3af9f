"""The end of a transaction: EndTxn, or the abort that the coordinator itself starts; markers; Complete*.

    Prepare* is logged → each partition gets its marker → Complete* is logged

1. `Ending` looks up what the request means in the transaction's state, and logs Prepare*. Up to v4
(transactions V1) the epoch stays as it is. From v5 on (V2, KIP-890) each end bumps it, so that whatever is late from
the transaction before is fenced; where the epochs are used up, the completion brings a new producer id.

2. Once that is committed `Completing` has the leaders write markers. What follows from an answer is a table: done,
sent again, or given up.

3. Once all have theirs Complete* is logged. Until it is committed it is pending, and everybody is told
CONCURRENT_TRANSACTIONS. A restart finds what was prepared and comes through here as well.

Source: `TransactionCoordinator.endTransaction`, `endTransactionWithTV1`, `TransactionMarkerChannelManager`,
`TransactionMarkerRequestCompletionHandler`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from coordinator.ports import MarkerAnswers, Markers, TxnMarker, WhenCommitted
from coordinator.settings import TransactionSettings
from coordinator.transaction.producer_ids import TransactionalProducer
from coordinator.transaction.state_manager import TransactionStateManager
from coordinator.transaction.states import (
    AWAITS_MARKERS,
    CURRENT,
    END_TXN_V1,
    END_TXN_V2,
    OTHER,
    PREPARE_ABORT,
    PREPARE_COMMIT,
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
from protocol.errors import Error, KafkaError
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.topic_partition import TopicPartition

log = logging.getLogger("barnabas.transactions")

# --- to Prepare* ----------------------------------------------------------------------------------------------

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


# --- what follows from a leader's answer to a marker ----------------------------------------------------------


class Reaction(Enum):
    """What the answer of a partition's leader means."""

    DONE = "the partition awaits no marker any more"
    SEND_AGAIN = "ask again"
    GIVE_UP = "somebody else has taken over producer or coordinator: no more is sent for this transaction"


DONE, SEND_AGAIN, GIVE_UP = Reaction

MARKER_REACTIONS: dict[Error | None, Reaction] = {
    Error.NONE: DONE,
    None: DONE,  # the partition was deleted
    Error.UNSUPPORTED_FOR_MESSAGE_FORMAT: DONE,  # no transaction can have written there
    Error.UNSUPPORTED_VERSION: DONE,
    Error.UNKNOWN_TOPIC_OR_PARTITION: SEND_AGAIN,
    Error.NOT_LEADER_OR_FOLLOWER: SEND_AGAIN,
    Error.NOT_ENOUGH_REPLICAS: SEND_AGAIN,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: SEND_AGAIN,
    Error.REQUEST_TIMED_OUT: SEND_AGAIN,
    Error.KAFKA_STORAGE_ERROR: SEND_AGAIN,
    Error.INVALID_PRODUCER_EPOCH: GIVE_UP,
    Error.TRANSACTION_COORDINATOR_FENCED: GIVE_UP,
}
"""Any other error must not happen (Kafka: IllegalStateException) and is given up too, with a louder word in the log."""


# --- from Prepare* to Complete* -------------------------------------------------------------------------------

MAX_RETRY_BACKOFF_MS = 1_000

RETRIED_APPENDS = frozenset({Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR})
"""What may pass. Kafka leaves NOT_COORDINATOR to the next coordinator; here `stop` says that there is one, and without
it a disk that was full for a moment would leave the transaction prepared for ever."""


@dataclass(slots=True, eq=False)
class Completion:
    """A transaction whose Prepare* is committed, and Complete* not yet."""

    metadata: TransactionMetadata
    marker: TxnMarker
    transit: TransitMetadata
    """What it becomes; decided when the markers start, so that its last update is that moment."""
    to_retry: dict[TopicPartition, None] = field(default_factory=dict)
    retries: int = 0
    is_marked: bool = False


class Completing:
    """Sends markers, and logs that a transaction is complete."""

    def __init__(
        self,
        manager: TransactionStateManager,
        markers: Markers,
        settings: TransactionSettings,
        coordinator_epoch: int,
    ) -> None:
        self._manager = manager
        self._markers = markers
        self._settings = settings
        self._coordinator_epoch = coordinator_epoch
        self.completions: dict[str, Completion] = {}
        """By transactional id."""

    def begin(self, metadata: TransactionMetadata) -> Completion:
        """A prepared transaction is about to be completed: from here on that is pending. Nothing is sent yet."""
        transit = metadata.prepare_complete(self._manager.runtime.now_ms())
        metadata.propose(transit.state, transit.producer_epoch)
        marker = TxnMarker(
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            coordinator_epoch=self._coordinator_epoch,
            commit=metadata.state is PREPARE_COMMIT,
            transaction_version=metadata.client_transaction_version,
        )
        completion = Completion(metadata, marker, transit)
        self.completions[metadata.transactional_id] = completion
        return completion

    def send(self, completion: Completion) -> None:
        """Send the markers. With nothing in the way the transaction is complete when this returns."""
        partitions = completion.metadata.partitions
        if partitions:
            self._send(completion, [*partitions])
        else:
            self._finish(completion)

    def resume(self) -> None:
        """After a start: drive on what was prepared."""
        for metadata in [*self._manager.transactions.values()]:
            if metadata.state in AWAITS_MARKERS:
                self.send(self.begin(metadata))

    def stop(self) -> None:
        """The shard is given up: what markers are answered with counts no more."""
        self.completions.clear()

    # ---- markers

    def _send(self, completion: Completion, partitions: list[TopicPartition]) -> None:
        self._markers.write(
            completion.marker, partitions, lambda answers: self._on_answers(completion, answers)
        )

    def _is_current(self, completion: Completion) -> bool:
        return self.completions.get(completion.metadata.transactional_id) is completion

    def _on_answers(self, completion: Completion, answers: MarkerAnswers) -> None:
        metadata = completion.metadata
        if self.completions.get(metadata.transactional_id) is not completion:
            return
        waits_already = bool(completion.to_retry)
        for partition, error in answers.items():
            if partition not in metadata.partitions:
                continue  # answered before
            reaction = MARKER_REACTIONS.get(error)
            if reaction is DONE:
                metadata.remove_partition(partition)
            elif reaction is SEND_AGAIN:
                completion.to_retry[partition] = None
            else:
                self._give_up(completion, partition, error)
        if self.completions.get(metadata.transactional_id) is not completion:
            return
        if completion.to_retry and not waits_already:
            self._later(completion, self._send_again)
        if not metadata.partitions and not completion.is_marked:
            self._finish(completion)

    def _give_up(self, completion: Completion, partition: TopicPartition, error: Error | None) -> None:
        """It stays prepared, and pending, until the shard is loaded anew: as in Kafka."""
        transactional_id = completion.metadata.transactional_id
        log.log(
            logging.INFO if error in MARKER_REACTIONS else logging.ERROR,
            "the markers of %s end here: %s of %s-%d",
            transactional_id,
            error and error.name,
            *partition,
        )
        self.completions.pop(transactional_id, None)
        self._manager.runtime.cancel(_key(completion))

    def _send_again(self, completion: Completion) -> None:
        awaited = completion.metadata.partitions
        partitions = [each for each in completion.to_retry if each in awaited]
        completion.to_retry = {}
        if partitions:
            self._send(completion, partitions)

    # ---- the end

    def _finish(self, completion: Completion) -> None:
        """Every partition has its marker: log that. Where that has to wait it stays pending."""
        completion.is_marked = True
        transit = completion.transit
        if self._manager.transaction_version() < 1 and transit.client_transaction_version:
            # The level went down to 0 meanwhile: better a record without the client's version than none.
            transit = replace(transit, client_transaction_version=0)
        try:
            self._manager.log(
                completion.metadata,
                transit,
                lambda error: self._finished(completion, error),
                retried=RETRIED_APPENDS,
            )
        except BaseException:  # what nobody thought of must not leave it prepared for ever
            if self._is_current(completion):
                self._later(completion, self._finish)
            raise

    def _finished(self, completion: Completion, error: KafkaError | None) -> None:
        if not self._is_current(completion):
            return
        metadata = completion.metadata
        if error is not None:
            if error.error in RETRIED_APPENDS:
                log.info("the completion of %s waits: %s", metadata.transactional_id, error)
                self._later(completion, self._finish)
                return
            log.error("the completion of %s can't be logged: %s", metadata.transactional_id, error)
        del self.completions[metadata.transactional_id]
        if completion.retries:
            self._manager.runtime.cancel(_key(completion))

    def _later(self, completion: Completion, step: Callable[[Completion], None]) -> None:
        def go_on() -> None:
            if self._is_current(completion):
                step(completion)

        backoff_ms = self._settings.retry_backoff_ms << min(completion.retries, 10)
        completion.retries += 1
        self._manager.runtime.schedule(_key(completion), min(backoff_ms, MAX_RETRY_BACKOFF_MS), go_on)


def _key(completion: Completion) -> tuple[str, str]:
    return ("markers", completion.metadata.transactional_id)
