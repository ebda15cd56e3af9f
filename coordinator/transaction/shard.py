"""The transaction coordinator of one partition of `__transaction_state`: its answers to clients and to the broker.

InitProducerId fences the previous producer of the transactional id, and aborts what it left open.
AddOffsetsToTxn adds the group's partition of `__consumer_offsets`. A Produce of transactions V2 adds its own
partitions (KIP-890). EndTxn ends a transaction, or the coordinator aborts it itself. Both go through five
stages, numbered in the code below:

1. Decide. A table says what the request means in the transaction's state. Up to v4 (transactions V1) the epoch
   stays. From v5 on (V2, KIP-890) each end bumps it, which fences late requests of the transaction before. When the
   epochs are used up, the completion brings a new producer id.
2. Log Prepare*.
3. Wait until it is committed. That is the outcome, and the answer leaves.
4. Write a marker to each partition: by `TxnMarkers` (`broker/coordination/transactions.py`), or if another broker
   leads it by `MarkerChannels` (`broker/peers/other_brokers.py`). A table says what each leader's answer means: done,
   send again, or give up.
5. Log Complete* once all partitions have their marker. Until that is committed, clients get CONCURRENT_TRANSACTIONS.
   After a restart the coordinator finds what was prepared and continues with stage 4.

`state_manager.py` holds the transactional ids and moves them by records. `expiry.py` has the timers.
Source: `TransactionCoordinator`, `TransactionMarkerChannelManager`,
`TransactionMarkerRequestCompletionHandler`; KIP-98, KIP-360, KIP-890, KIP-939.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from coordinator.ports import (
    Barriers,
    EndedBy,
    MarkerAnswers,
    Markers,
    Runtime,
    TransactionCounts,
    TxnMarker,
)
from coordinator.settings import TransactionSettings
from coordinator.transaction.expiry import TransactionExpiry
from coordinator.transaction.producer_ids import TransactionalProducer
from coordinator.transaction.state_manager import (
    EXHAUSTED_EPOCH,
    NO_TIMEOUT_MS,
    Logged,
    ProducerIdAndEpoch,
    TransactionFilter,
    TransactionMetadata,
    TransactionStateManager,
    TransitMetadata,
    is_of_known_version,
)
from coordinator.transaction.states import (
    ADD_PARTITIONS,
    AWAITS_MARKERS,
    CURRENT,
    DEAD,
    EMPTY,
    END_TXN_V1,
    END_TXN_V2,
    INIT_PRODUCER_ID,
    ONGOING,
    OTHER,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    RETRY,
    ErrorOrState,
    TransactionState,
)
from protocol.errors import NO_ERROR, Error, KafkaError
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.topic_partition import TopicPartition
from protocol.waiting import Later, begun, carry_on
from protocol.wire.primitives import Bytes

log = logging.getLogger("barnabas.transactions")

UNSAID = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

# --- how a leader's answer to a marker is handled -------------------------------------------------------------


class Reaction(Enum):
    """How to react to a leader's answer for one partition."""

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
"""Any other error must not happen (Kafka: IllegalStateException). It is given up too, and logged as an error."""


# --- prepared transactions that aren't complete yet -----------------------------------------------------------

MAX_RETRY_BACKOFF_MS = 1_000

RETRIED_APPENDS = frozenset({Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR})
"""Errors of the completion's append that may pass, so it is retried.

Kafka leaves NOT_COORDINATOR to the next coordinator. Here `unload` says that there is one, and the retries
end then. Otherwise a disk that is full for a moment would leave the transaction prepared forever.
"""


@dataclass(slots=True, eq=False)
class Completion:
    """A transaction whose Prepare* is committed, and whose Complete* isn't yet."""

    metadata: TransactionMetadata
    marker: TxnMarker
    transit: TransitMetadata
    """The state after completion. It is decided when the markers start, so its last update is that moment."""
    to_retry: dict[TopicPartition, None] = field(default_factory=dict)
    retries: int = 0
    is_marked: bool = False


class TransactionShard:
    """One shard, used by one thread.

    A method that changes something starts in the call, and runs to its end even if the client stops waiting.
    It answers at once if the partition's log commits as it writes, else through a `Later`. Readers get
    committed state at once, with the exceptions that `TransactionMetadata` names.
    """

    def __init__(
        self,
        runtime: Runtime,
        markers: Markers,
        next_producer_id: Callable[[], int],
        settings: TransactionSettings,
        *,
        transaction_version: Callable[[], int],
        coordinator_epoch: int,
        statistics: TransactionCounts,
    ) -> None:
        """`next_producer_id` raises KafkaError if it has none. `transaction_version` returns the cluster's
        current level of that feature. `coordinator_epoch` is the leader epoch of the shard's partition.
        `statistics` are the node's."""
        self.runtime = runtime
        self.coordinator_epoch = coordinator_epoch
        self._manager = TransactionStateManager(runtime, transaction_version)
        self.markers = markers
        """Sends markers to the partitions' leaders."""
        self._next_producer_id = next_producer_id
        self._settings = settings
        self.completions: dict[str, Completion] = {}
        """Prepared transactions that aren't complete yet, by transactional id."""
        self.statistics = statistics
        abort_timed_out = partial(self.fence_and_abort, ended_by=EndedBy.TIMED_OUT)
        self.expiry = TransactionExpiry(self._manager, abort_timed_out, settings)

    def interpose(self, barriers: Barriers | None) -> None:
        """Let a test hold the shard at these barriers from now on, or no longer (None)."""
        self._manager.barriers = barriers

    @property
    def transactions(self) -> dict[str, TransactionMetadata]:
        """The transactional ids. Don't change this dict."""
        return self._manager.transactions

    # ---- InitProducerId

    def init_producer_id(
        self,
        producer: TransactionalProducer,
        *,
        timeout_ms: int,
        enable_2pc: bool = False,
        keep_prepared_txn: bool = False,
    ) -> Later[ProducerIdAndEpoch | KafkaError]:
        """Return the producer id and epoch to use from now on.

        A producer that goes on after an error gives both its producer id and its epoch (KIP-360), others give
        neither. The handler refuses one without the other with INVALID_REQUEST.

        Errors: INVALID_REQUEST (an empty id), TRANSACTIONAL_ID_AUTHORIZATION_FAILED (two-phase commit is
        switched off), UNSUPPORTED_VERSION (keep_prepared_txn; level 0), INVALID_TRANSACTION_TIMEOUT,
        PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (also after aborting an open transaction: the client
        retries), UNKNOWN_SERVER_ERROR (the epochs are used up, and the given one isn't current); those of the
        log, `append_error`.
        """
        refused: Later[ProducerIdAndEpoch | KafkaError] = Later()
        try:
            timeout_ms = self._checked_timeout_ms(
                producer.transactional_id,
                timeout_ms,
                enable_2pc=enable_2pc,
                keep_prepared_txn=keep_prepared_txn,
            )
        except KafkaError as error:
            refused.reply(error.as_value())
            return refused
        answer = begun(self._initialize(producer, timeout_ms))
        self.expiry.tick()
        return answer

    def _checked_timeout_ms(
        self, transactional_id: str, timeout_ms: int, *, enable_2pc: bool, keep_prepared_txn: bool
    ) -> int:
        """Return the timeout to use, in milliseconds. Raises KafkaError for a request that is wrong for any
        transactional id."""
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

    async def _initialize(
        self, producer: TransactionalProducer, timeout_ms: int
    ) -> ProducerIdAndEpoch | KafkaError:
        try:
            metadata = self._metadata(producer.transactional_id, timeout_ms)
            is_open = _has_transaction(metadata, producer)
            transit = None if is_open else self._next_epoch(metadata, timeout_ms, producer)
        except KafkaError as refused:
            return refused.as_value()
        if transit is None:
            # The client has to retry once the open transaction is aborted.
            return await self.fence_and_abort(metadata) or KafkaError(Error.CONCURRENT_TRANSACTIONS)
        logged = self._manager.move(metadata, transit)
        error = await logged if isinstance(logged, Later) else logged
        return error or ProducerIdAndEpoch(transit.producer_id, transit.producer_epoch)

    def _metadata(self, transactional_id: str, timeout_ms: int) -> TransactionMetadata:
        metadata = self._manager.transactions.get(transactional_id)
        if metadata is None:
            # It stays even if writing its first record fails. Then it has a producer id and no epoch yet.
            metadata = self._manager.create(transactional_id, self._next_producer_id(), timeout_ms)
        return metadata

    def _next_epoch(
        self, metadata: TransactionMetadata, timeout_ms: int, producer: TransactionalProducer
    ) -> TransitMetadata:
        now_ms = self.runtime.now_ms()
        expected_epoch = producer.producer_epoch if _says_who(producer) else None
        if metadata.is_exhausted and expected_epoch in (None, metadata.producer_epoch):
            return metadata.prepare_producer_id_rotation(
                self._next_producer_id(), timeout_ms, now_ms, knows_epoch=expected_epoch is not None
            )
        return metadata.prepare_increment_producer_epoch(timeout_ms, expected_epoch, now_ms)

    # ---- AddPartitionsToTxn

    def add_partitions(
        self,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
        *,
        client_transaction_version: int,
    ) -> Logged:
        """Add partitions to the transaction. The first request begins it, even one without partitions.

        `client_transaction_version`: 0 for AddPartitionsToTxn v0 to v3 and AddOffsetsToTxn, 2 for later versions.

        Errors: INVALID_REQUEST (an empty id), INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS,
        PRODUCER_FENCED, UNSUPPORTED_VERSION (version 2 at level 0); those of the log, `append_error`.
        """
        try:
            metadata = self._manager.get(producer.transactional_id)
            is_there = _check(metadata, producer, partitions)
        except KafkaError as refused:
            return refused.as_value()
        if is_there:
            return self._manager.certain()
        now_ms = self.runtime.now_ms()
        transit = metadata.prepare_add_partitions(partitions, now_ms, client_transaction_version)
        return self._manager.move(metadata, transit)

    def verify_partitions(
        self, producer: TransactionalProducer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Error]:
        """Check which partitions are in the transaction: NONE or TRANSACTION_ABORTABLE each, or one error for all.

        That error is INVALID_REQUEST (an empty id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED or
        CONCURRENT_TRANSACTIONS. A pending move is ignored (KAFKA-14904), since the append to the partition is
        checked once more. Other nodes get the answer through `verify_when_certain`.
        """
        try:
            metadata = self._manager.get(producer.transactional_id)
            _check_producer(metadata, producer)
            if metadata.state in AWAITS_MARKERS:
                raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
        except KafkaError as refused:
            return dict.fromkeys(partitions, refused.error)
        known = metadata.partitions
        return {each: NO_ERROR if each in known else Error.TRANSACTION_ABORTABLE for each in partitions}

    async def verify_when_certain(
        self, producer: TransactionalProducer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Error]:
        """Wait until the loaded state is committed, then answer as `verify_partitions`."""
        certain = self.certain()
        lost = await certain if isinstance(certain, Later) else certain
        return (
            self.verify_partitions(producer, partitions)
            if lost is None
            else dict.fromkeys(partitions, lost.error)
        )

    def certain(self) -> Logged:
        """Wait until everything that the shard has loaded is committed. NOT_COORDINATOR if that can't be
        known any more."""
        return self._manager.certain()

    # ---- EndTxn, to Prepare*

    def end_txn(
        self, producer: TransactionalProducer, *, commit: bool, client_transaction_version: int
    ) -> Later[ProducerIdAndEpoch | KafkaError]:
        """Commit or abort the transaction. The outcome is certain when this answers; markers may still be on
        their way.

        `client_transaction_version`: 0 for EndTxn v0 to v4, whose answer is −1 and −1; 2 from v5 on, whose
        answer is the producer id and epoch to use next.

        Errors: INVALID_REQUEST (an empty id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE, UNSUPPORTED_VERSION (v5 at level 0), UNKNOWN_SERVER_ERROR
        (a commit at epoch 32767); those of the log (`append_error`) and of a new producer id.
        """
        ended: Later[ProducerIdAndEpoch | KafkaError] = Later()
        carry_on(self._end_txn(producer, commit, client_transaction_version, ended))
        return ended

    async def _end_txn(
        self,
        producer: TransactionalProducer,
        commit: bool,
        version: int,
        ended: Later[ProducerIdAndEpoch | KafkaError],
    ) -> None:
        # 1. Decide what the request means in the transaction's state.
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
            ended.reply(refused.as_value())
            return
        is_told = version >= 2
        if transit is None:  # a retry: it has already ended this way
            ended.reply(
                ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch) if is_told else UNSAID
            )
            return

        # 2. Log Prepare*.
        logged = self._manager.move(metadata, transit)
        error = await logged if isinstance(logged, Later) else logged
        if error is not None:
            ended.reply(error)
            return

        # 3. It is committed. The outcome stands, whatever happens to the markers.
        self.statistics.ended[EndedBy.COMMITTED if commit else EndedBy.ABORTED] += 1
        completion = self.begin_completion(metadata)
        completed = completion.transit
        try:
            ended.reply(
                ProducerIdAndEpoch(completed.producer_id, completed.producer_epoch) if is_told else UNSAID
            )
        finally:
            self.send_markers(completion)

    async def fence_and_abort(
        self, metadata: TransactionMetadata, ended_by: EndedBy = EndedBy.FENCED
    ) -> KafkaError | None:
        """Abort an ongoing transaction and fence its producer.

        No client asked for this, so the cluster's level decides how the epoch is bumped. Returns None once
        the abort is committed, else the error of the log or of a new producer id.
        """
        version = self._manager.transaction_version()
        if version < 2:
            metadata.fence_producer_epoch()
        try:
            transit = self._prepare(metadata, PREPARE_ABORT, version)
        except KafkaError as refused:
            return refused.as_value()
        logged = self._manager.move(metadata, transit)
        error = await logged if isinstance(logged, Later) else logged
        if error is not None:
            if version < 2:
                metadata.fail_epoch_fence()
            return error
        self.statistics.ended[ended_by] += 1
        self.send_markers(self.begin_completion(metadata))
        return None

    def _prepare(
        self, metadata: TransactionMetadata, state: TransactionState, version: int
    ) -> TransitMetadata:
        next_producer_id = NO_PRODUCER_ID
        if version >= 2 and metadata.is_exhausted:
            next_producer_id = self._next_producer_id()
        now_ms = self.runtime.now_ms()
        return metadata.prepare_abort_or_commit(state, version, next_producer_id, now_ms)

    # ---- from Prepare* to Complete*

    def begin_completion(self, metadata: TransactionMetadata) -> Completion:
        """Begin to complete a prepared transaction. The completion is pending from here on; nothing is sent yet."""
        transit = metadata.prepare_complete(self.runtime.now_ms())
        metadata.propose(transit.state, transit.producer_epoch)
        marker = TxnMarker(
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            commit=metadata.state is PREPARE_COMMIT,
            transaction_version=metadata.client_transaction_version,
        )
        completion = Completion(metadata, marker, transit)
        self.completions[metadata.transactional_id] = completion
        return completion

    def send_markers(self, completion: Completion) -> None:
        """Send the markers. If nothing has to wait, the transaction is complete when this returns."""
        # 4. Write a marker to each partition.
        partitions = [*completion.metadata.partitions]
        if partitions:
            self.markers.write(completion.marker, partitions, partial(self._on_answers, completion))
        else:
            self._finish(completion)

    # ---- markers

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
                self.statistics.given_up += 1
                self._give_up(completion, partition, error)
        if self.completions.get(metadata.transactional_id) is not completion:
            return
        if completion.to_retry and not waits_already:
            self._later(completion, self._send_again)
        if not metadata.partitions and not completion.is_marked:
            self._finish(completion)

    def _give_up(self, completion: Completion, partition: TopicPartition, error: Error | None) -> None:
        """Leave the transaction prepared and pending until the shard is loaded again, as Kafka does."""
        transactional_id = completion.metadata.transactional_id
        log.log(
            logging.INFO if error in MARKER_REACTIONS else logging.ERROR,
            "no more markers are sent for %s: %s from %s-%d",
            transactional_id,
            error and error.name,
            *partition,
        )
        self.completions.pop(transactional_id, None)
        self.runtime.cancel(_key(completion))

    def _send_again(self, completion: Completion) -> None:
        awaited = completion.metadata.partitions
        partitions = [each for each in completion.to_retry if each in awaited]
        completion.to_retry = {}
        if partitions:
            self.statistics.retried_markers += len(partitions)
            self.markers.write(completion.marker, partitions, partial(self._on_answers, completion))

    # ---- the end

    def _finish(self, completion: Completion) -> None:
        carry_on(self._complete(completion))

    async def _complete(self, completion: Completion) -> None:
        """Log the completion, as every partition has its marker. It stays pending if that has to be retried."""
        # 5. Log Complete*.
        completion.is_marked = True
        metadata = completion.metadata
        transit = completion.transit
        if self._manager.transaction_version() < 1 and transit.client_transaction_version:
            # The level has gone down to 0 meanwhile. A record without the client's version is better than none.
            transit = replace(transit, client_transaction_version=0)
        try:
            logged = self._manager.log(metadata, transit, retried=RETRIED_APPENDS)
        except Exception:  # an unexpected failure must not leave it prepared forever
            if self._is_current(completion):
                self._later(completion, self._finish)
            raise
        error = await logged if isinstance(logged, Later) else logged
        if not self._is_current(completion):
            return
        if error is not None:
            if error.error in RETRIED_APPENDS:
                log.info("the completion of %s waits: %s", metadata.transactional_id, error)
                self._later(completion, self._finish)
                return
            log.error("the completion of %s can't be logged: %s", metadata.transactional_id, error)
        else:
            now_ms = self.runtime.now_ms()
            self.statistics.fan_outs.add(now_ms - completion.transit.last_update_timestamp_ms)
            self.statistics.durations.add(now_ms - completion.transit.start_timestamp_ms)
        del self.completions[metadata.transactional_id]
        if completion.retries:
            self.runtime.cancel(_key(completion))

    def _later(self, completion: Completion, step: Callable[[Completion], None]) -> None:
        def go_on() -> None:
            if self._is_current(completion):
                step(completion)

        backoff_ms = self._settings.retry_backoff_ms << min(completion.retries, 10)
        completion.retries += 1
        self.runtime.schedule(_key(completion), min(backoff_ms, MAX_RETRY_BACKOFF_MS), go_on)

    # ---- looking inside

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Return the live metadata: don't keep it.

        Once the transaction is prepared, `partitions` are those that still await their marker.

        Raises KafkaError: INVALID_REQUEST (an empty id), TRANSACTIONAL_ID_NOT_FOUND.
        """
        if not transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        metadata = self.transactions.get(transactional_id)
        if metadata is None or metadata.state is DEAD:
            raise KafkaError(Error.TRANSACTIONAL_ID_NOT_FOUND)
        return metadata

    def is_listed(self, metadata: TransactionMetadata, wanted: TransactionFilter) -> bool:
        """True if ListTransactions with this filter lists this transaction."""
        return wanted.passes(metadata, self.runtime.now_ms())

    # ---- what the broker asks

    @staticmethod
    def stands_alone(value: Bytes | None) -> bool:
        """True unless the record has an unknown version. Such a record is skipped, and what came before it
        stays in force."""
        return value is None or is_of_known_version(value)

    def replay(self, key: Bytes, value: Bytes | None, record_offset: int, producer_id: int) -> None:
        """Apply one record of the log while loading. Raises CodecError if it makes no sense."""
        self._manager.replay(key, value, record_offset)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Ignore a marker in the shard's own partition. Nobody has transactions there, so it means nothing."""

    def start(self, end_offset: int = 0) -> None:
        """Start the shard after everything up to this offset is replayed.

        The timers start now. Prepared transactions continue once the replayed records are committed.
        """
        carry_on(self._resume(end_offset))
        self.expiry.tick()

    async def _resume(self, end_offset: int) -> None:
        """Continue the prepared transactions."""
        if await self._manager.loaded(end_offset) is not None:
            return
        for metadata in [*self._manager.transactions.values()]:
            if metadata.state in AWAITS_MARKERS:
                self.send_markers(self.begin_completion(metadata))

    def unload(self) -> None:
        """Stop the shard, as its partition is gone or has another leader.

        It writes nothing more and ignores answers to markers. Requests that wait get NOT_COORDINATOR.
        """
        self.completions.clear()
        self._manager.close()
        self.expiry.stop()


def _key(completion: Completion) -> tuple[str, str]:
    return ("markers", completion.metadata.transactional_id)


# --- what requests mean -----------------------------------------------------------------------------------------


def _says_who(producer: TransactionalProducer) -> bool:
    return producer.producer_id != NO_PRODUCER_ID and producer.producer_epoch != NO_PRODUCER_EPOCH


def _has_transaction(metadata: TransactionMetadata, producer: TransactionalProducer) -> bool:
    """True if a transaction is open and has to be aborted first.

    Raises KafkaError if the producer has to wait, or isn't the owner.
    """
    if metadata.pending_state is not None:
        raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
    if _says_who(producer) and not _knows(metadata, producer):
        raise KafkaError(Error.PRODUCER_FENCED)
    answer = INIT_PRODUCER_ID[metadata.state]
    if isinstance(answer, Error):
        raise KafkaError(answer)
    return answer is not EMPTY


def _knows(metadata: TransactionMetadata, given: TransactionalProducer) -> bool:
    """True if the producer may be the owner. The epoch is checked later, when it is bumped."""
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or given.producer_id == metadata.producer_id
        # It retries because it missed the answer with its new id.
        or (given.producer_id == metadata.previous_producer_id and given.producer_epoch >= EXHAUSTED_EPOCH)
    )


def _check(
    metadata: TransactionMetadata, producer: TransactionalProducer, partitions: Collection[TopicPartition]
) -> bool:
    """True if all partitions are in the transaction already. Raises KafkaError if none can be added."""
    # Check this first: the given producer id may be one that is still pending.
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


def _check_producer(metadata: TransactionMetadata, producer: TransactionalProducer) -> None:
    if metadata.producer_id != producer.producer_id:
        raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != producer.producer_epoch:
        raise KafkaError(Error.PRODUCER_FENCED)


def _answer_v1(metadata: TransactionMetadata, producer: TransactionalProducer, commit: bool) -> ErrorOrState:
    if metadata.producer_id != producer.producer_id:
        return Error.INVALID_PRODUCER_ID_MAPPING
    if metadata.producer_epoch != producer.producer_epoch:
        return Error.PRODUCER_FENCED
    if metadata.pending_state is not None:
        return Error.CONCURRENT_TRANSACTIONS
    return END_TXN_V1[metadata.state][commit]


def _answer_v2(metadata: TransactionMetadata, producer: TransactionalProducer, commit: bool) -> ErrorOrState:
    # Check pending moves first: the producer may use an id or an epoch that is still pending.
    if metadata.pending_state is not None:
        return Error.CONCURRENT_TRANSACTIONS
    producer_id, producer_epoch = producer.producer_id, producer.producer_epoch
    stored = metadata.producer_epoch
    is_retry_of_rotation = (
        producer_id == metadata.previous_producer_id and producer_epoch == EXHAUSTED_EPOCH and stored == 0
    )
    if metadata.producer_id != producer_id and not is_retry_of_rotation:
        return Error.INVALID_PRODUCER_ID_MAPPING
    is_complete = metadata.state not in AWAITS_MARKERS  # only then does it have the new id
    if producer_epoch == stored:
        relation = CURRENT
    elif producer_epoch + 1 == stored or (is_retry_of_rotation and is_complete):
        relation = RETRY
    else:
        relation = OTHER
    return END_TXN_V2[metadata.state][commit][relation]
