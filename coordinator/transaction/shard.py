"""The transaction coordinator of one partition of `__transaction_state`: what clients and the broker ask of it.

InitProducerId fences the producer that had the transactional id before, and aborts what it left open. AddOffsetsToTxn
adds the group's partition of `__consumer_offsets`; a Produce of transactions V2 adds its own (KIP-890). A transaction
ends by EndTxn, or by the abort that the coordinator starts itself, in five stages, which the code below numbers:

1. What it means: a table says what the request means in the transaction's state. Up to v4 (transactions V1) the
   epoch stays. From v5 on (V2, KIP-890) each end bumps it, which fences whatever is late from the transaction before;
   when the epochs are used up, the completion brings a new producer id.
2. Prepare* is logged.
3. It is committed: that is the outcome, and the answer leaves.
4. Each partition gets its marker. What follows from its leader's answer is a table: done, sent again, or given up.
5. Complete* is logged once all partitions have theirs. Until that is committed, everybody is told
   CONCURRENT_TRANSACTIONS. A restart finds what was prepared and goes on with stage 4.

`state_manager.py` knows the transactional ids and moves them by records; `expiry.py` is what time does.
Source: `TransactionCoordinator`, `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`;
KIP-98, KIP-360, KIP-890, KIP-939.
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


# --- what is prepared, and isn't complete yet -----------------------------------------------------------------

MAX_RETRY_BACKOFF_MS = 1_000

RETRIED_APPENDS = frozenset({Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR})
"""What may pass. Kafka leaves NOT_COORDINATOR to the next coordinator; here `unload` says that there is one. Without
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


class TransactionShard:
    """One shard, of one thread.

    What changes something is asked in the call, and goes on to its end, whoever waits for the answer: that is there at
    once where the partition's log is committed as it is written, else a `Later`. Readers are told what is committed, at
    once, with the exceptions that `TransactionMetadata` names.
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
        """`next_producer_id` raises KafkaError where none is to be had; `transaction_version` is the cluster's level
        of that feature, at each moment; `coordinator_epoch` the leader epoch of the shard's partition. `statistics` are
        those of the node."""
        self.runtime = runtime
        self.coordinator_epoch = coordinator_epoch
        self._manager = TransactionStateManager(runtime, transaction_version)
        self.markers = markers
        """The way to the partitions' leaders."""
        self._next_producer_id = next_producer_id
        self._settings = settings
        self.completions: dict[str, Completion] = {}
        """What is prepared and isn't complete yet, by transactional id."""
        self.statistics = statistics
        abort_timed_out = partial(self.fence_and_abort, ended_by=EndedBy.TIMED_OUT)
        self.expiry = TransactionExpiry(self._manager, abort_timed_out, settings)

    def interpose(self, barriers: Barriers | None) -> None:
        """From now on a test may have it wait there."""
        self._manager.barriers = barriers

    @property
    def transactions(self) -> dict[str, TransactionMetadata]:
        """The transactional ids. Not to be changed."""
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
        """Who the producer is from now on.

        A producer id and an epoch, both or neither: a producer that goes on after an error (KIP-360); one without the
        other is INVALID_REQUEST, which the handler answers.

        Errors: INVALID_REQUEST (an empty id), TRANSACTIONAL_ID_AUTHORIZATION_FAILED (two-phase commit is switched off),
        UNSUPPORTED_VERSION (keep_prepared_txn; level 0), INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS (also where it aborted what was open: ask again), UNKNOWN_SERVER_ERROR (the epochs are
        used up, and the one given isn't the current one); the log's, `append_error`.
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
            # Whoever asks has to ask again, once what was open is aborted.
            return await self.fence_and_abort(metadata) or KafkaError(Error.CONCURRENT_TRANSACTIONS)
        logged = self._manager.commit(metadata, transit)
        error = await logged if isinstance(logged, Later) else logged
        return error or ProducerIdAndEpoch(transit.producer_id, transit.producer_epoch)

    def _metadata(self, transactional_id: str, timeout_ms: int) -> TransactionMetadata:
        metadata = self._manager.transactions.get(transactional_id)
        if metadata is None:
            # It stays, should its first record fail to be written: then it has an id, and no epoch yet.
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
        """Add partitions; the first ones begin the transaction, and so do none.

        `client_transaction_version`: 0 for AddPartitionsToTxn v0 to v3 and for AddOffsetsToTxn, 2 for what came later.

        Errors: INVALID_REQUEST (an empty id), INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED,
        UNSUPPORTED_VERSION (version 2 at level 0); the log's, `append_error`.
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
        return self._manager.commit(metadata, transit)

    def verify_partitions(
        self, producer: TransactionalProducer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Error]:
        """Whether partitions are in the transaction: NONE or TRANSACTION_ABORTABLE each, or one error for all of them.

        INVALID_REQUEST (an empty id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS. What is
        pending isn't looked at (KAFKA-14904): the append to the partition is checked once more. Others are
        told of it by `verify_when_certain`.
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
        """`verify_partitions`, as others may know it."""
        certain = self.certain()
        lost = await certain if isinstance(certain, Later) else certain
        return (
            self.verify_partitions(producer, partitions)
            if lost is None
            else dict.fromkeys(partitions, lost.error)
        )

    def certain(self) -> Logged:
        """Once all that the shard was loaded with is committed; NOT_COORDINATOR where that isn't known any more."""
        return self._manager.certain()

    # ---- EndTxn, to Prepare*

    def end_txn(
        self, producer: TransactionalProducer, *, commit: bool, client_transaction_version: int
    ) -> Later[ProducerIdAndEpoch | KafkaError]:
        """Commit or abort. It is so from the moment of the answer; the markers may still be on their way.

        `client_transaction_version`: 0 for EndTxn v0 to v4, whose answer is −1 and −1; 2 from v5 on, whose answer is
        what the producer has to use next.

        Errors: INVALID_REQUEST (an empty id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
        INVALID_TXN_STATE, UNSUPPORTED_VERSION (v5 at level 0), UNKNOWN_SERVER_ERROR (a commit at epoch 32767); those of
        the log (`append_error`) and of a new producer id.
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
        # 1. What it means in the transaction's state.
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
        if transit is None:  # it has ended so before
            ended.reply(
                ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch) if is_told else UNSAID
            )
            return

        # 2. Prepare* is logged.
        logged = self._manager.commit(metadata, transit)
        error = await logged if isinstance(logged, Later) else logged
        if error is not None:
            ended.reply(error)
            return

        # 3. It is committed: so it is, whatever becomes of the markers.
        self.statistics.ended[EndedBy.COMMITTED if commit else EndedBy.ABORTED] += 1
        completion = self.begin(metadata)
        completed = completion.transit
        try:
            ended.reply(
                ProducerIdAndEpoch(completed.producer_id, completed.producer_epoch) if is_told else UNSAID
            )
        finally:
            self.send(completion)

    async def fence_and_abort(
        self, metadata: TransactionMetadata, ended_by: EndedBy = EndedBy.FENCED
    ) -> KafkaError | None:
        """Abort an ongoing transaction against its producer, who is fenced: its epoch is over.

        The cluster's level decides how the epoch is bumped, as no client asked. None once the abort is logged; else the
        error of the log, or of the lack of producer ids.
        """
        version = self._manager.transaction_version()
        if version < 2:
            metadata.fence_producer_epoch()
        try:
            transit = self._prepare(metadata, PREPARE_ABORT, version)
        except KafkaError as refused:
            return refused.as_value()
        logged = self._manager.commit(metadata, transit)
        error = await logged if isinstance(logged, Later) else logged
        if error is not None:
            if version < 2:
                metadata.fail_epoch_fence()
            return error
        self.statistics.ended[ended_by] += 1
        self.send(self.begin(metadata))
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

    def begin(self, metadata: TransactionMetadata) -> Completion:
        """A prepared transaction is about to be completed: from here on that is pending. Nothing is sent yet."""
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

    def send(self, completion: Completion) -> None:
        """Send the markers. With nothing in the way the transaction is complete when this returns."""
        # 4. Each partition gets its marker.
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
        """Every partition has its marker: log that. Where that has to wait it stays pending."""
        # 5. Complete* is logged.
        completion.is_marked = True
        metadata = completion.metadata
        transit = completion.transit
        if self._manager.transaction_version() < 1 and transit.client_transaction_version:
            # The level went down to 0 meanwhile: better a record without the client's version than none.
            transit = replace(transit, client_transaction_version=0)
        try:
            logged = self._manager.log(metadata, transit, retried=RETRIED_APPENDS)
        except Exception:  # what nobody thought of must not leave it prepared for ever
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
        """The live thing: don't keep it. `partitions` are those that still await their marker, once it is prepared.

        Raises KafkaError: INVALID_REQUEST (an empty id), TRANSACTIONAL_ID_NOT_FOUND.
        """
        if not transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        metadata = self.transactions.get(transactional_id)
        if metadata is None or metadata.state is DEAD:
            raise KafkaError(Error.TRANSACTIONAL_ID_NOT_FOUND)
        return metadata

    def is_listed(self, metadata: TransactionMetadata, wanted: TransactionFilter) -> bool:
        """Whether ListTransactions answers this one of `transactions`, by its filter."""
        return wanted.passes(metadata, self.runtime.now_ms())

    # ---- what the broker asks

    @staticmethod
    def stands_alone(value: Bytes | None) -> bool:
        """Each does, but for those of a version that is passed over: what came before them stays in force."""
        return value is None or is_of_known_version(value)

    def replay(self, key: Bytes, value: Bytes | None, record_offset: int, producer_id: int) -> None:
        """One record of the log, at a start. Raises CodecError for one that makes no sense."""
        self._manager.replay(key, value, record_offset)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A marker in the shard's own partition: nobody has transactions there, and it would mean nothing."""

    def start(self, end_offset: int = 0) -> None:
        """Everything is replayed, up to this offset: once that is committed what was prepared is driven on. Time
        runs."""
        carry_on(self._resume(end_offset))
        self.expiry.tick()

    async def _resume(self, end_offset: int) -> None:
        """Drive on what was prepared."""
        if await self._manager.loaded(end_offset) is not None:
            return
        for metadata in [*self._manager.transactions.values()]:
            if metadata.state in AWAITS_MARKERS:
                self.send(self.begin(metadata))

    def unload(self) -> None:
        """The partition is led elsewhere, or gone: nothing more is written, answers of markers are ignored, and who
        waits is told NOT_COORDINATOR."""
        self.completions.clear()
        self._manager.close()
        self.expiry.stop()


def _key(completion: Completion) -> tuple[str, str]:
    return ("markers", completion.metadata.transactional_id)


# --- what requests mean -----------------------------------------------------------------------------------------


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
