"""The transactional ids of one partition of `__transaction_state`, and how its records make them.

Propose → append → committed → apply. Until its record is committed a move is only pending, so that what is known of a
transactional id is committed: who reads it waits for nobody. (An id that was just created has no record yet, and a
fenced epoch holds before it is logged; see `TransactionMetadata`.) What a shard has loaded counts as such, as in Kafka,
whose `loadTransactionMetadata` reads to the log's end.
Source: `TransactionStateManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct, pack
from typing import NamedTuple, TypeAlias

from coordinator.commit_waiters import Gate
from coordinator.ports import Barriers, CoordinatorRecord, Runtime, TransactionMove
from coordinator.transaction.states import (
    AWAITS_MARKERS,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    ENTERED_FROM,
    NEVER_LOGGED,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATE_NAMES,
    TransactionState,
)
from protocol.errors import CodecError, Error, KafkaError, cannot_apply
from protocol.messages.transactions import PartitionsSchema, TransactionLogKey, TransactionLogValue
from protocol.records.batch import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from protocol.topic_partition import TopicPartition, indexes_by_topic
from protocol.waiting import Later, begun
from protocol.wire.codec import decode, encode
from protocol.wire.primitives import SHORT_UNSIGNED_VARINTS, Bytes, encode_unsigned_varint

# --- What is known of one transactional id, and the proposals of what it is to become -------------------------
#
# Source: `TransactionMetadata`, `TxnTransitMetadata`.

EXHAUSTED_EPOCH = MAX_PRODUCER_EPOCH - 1
"""A producer never gets a higher epoch: the last one is kept for fencing it."""

NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a transaction that takes part in a two-phase commit: it has none."""

TransactionPartitions = dict[TopicPartition, None]
"""A set that keeps the order of adding."""


class ProducerIdAndEpoch(NamedTuple):
    """Who a producer is from now on; −1 and −1 where the answer doesn't say."""

    producer_id: int
    producer_epoch: int


"""Called exactly once, with the answer or with what the client is told in place of it."""


@dataclass(slots=True)
class TransitMetadata:
    """What a transactional id is to become: what goes into its record (Kafka: `TxnTransitMetadata`).

    A value: it isn't changed any more once it is proposed.
    """

    state: TransactionState
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    last_producer_epoch: int  # in no record
    timeout_ms: int
    partitions: TransactionPartitions
    start_timestamp_ms: int
    last_update_timestamp_ms: int
    client_transaction_version: int


@dataclass(slots=True)
class TransactionMetadata:
    """One transactional id.

    What its records say is changed by `apply`. Some changes no record says, and each has a method: a partition gets its
    marker (`remove_partition`), a move is under way (`propose`, `take_back`), an unused id is being forgotten (`bury`),
    a fenced epoch holds before it is logged (`fence_producer_epoch`), and that couldn't be logged
    (`fail_epoch_fence`). A restart forgets these, and an id that was
    created and has no record yet (`TransactionStateManager.create`), and comes to the same end.

    The methods `prepare_…` change nothing: each gives the proposal of one move. They have Kafka's names.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    last_update_timestamp_ms: int
    state: TransactionState = EMPTY
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before, as long as its owner may ask again for what bumped it. Lost with a restart."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id as it was before the last record: another one where that record brought a new id."""
    next_producer_id: int = NO_PRODUCER_ID
    """In Prepare*: the producer id from the completion on, where the epochs of this one are used up."""
    partitions: TransactionPartitions = field(default_factory=dict)
    """In Prepare*: those that still await their marker."""
    start_timestamp_ms: int = NO_TIMESTAMP
    client_transaction_version: int = 0
    pending_state: TransactionState | None = None
    """It is moving there: a record isn't committed yet, or markers are under way. Whoever comes meanwhile has to come
    again."""
    has_failed_epoch_fence: bool = False
    """The epoch was bumped to fence the producer, and that couldn't be logged: the next try takes the same epoch."""

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= EXHAUSTED_EPOCH

    # ---- proposals

    def prepare_no_transit(self) -> TransitMetadata:
        """Itself as a proposal. The producer id before this record is the one that it has now."""
        # Each other proposal begins as this one; with eleven keywords instead it would take three times as long.
        transit = TransitMetadata.__new__(TransitMetadata)
        transit.state = self.state
        transit.producer_id = self.producer_id
        transit.previous_producer_id = self.producer_id
        transit.next_producer_id = self.next_producer_id
        transit.producer_epoch = self.producer_epoch
        transit.last_producer_epoch = self.last_producer_epoch
        transit.timeout_ms = self.timeout_ms
        transit.partitions = self.partitions
        transit.start_timestamp_ms = self.start_timestamp_ms
        transit.last_update_timestamp_ms = self.last_update_timestamp_ms
        transit.client_transaction_version = self.client_transaction_version
        return transit

    def prepare_increment_producer_epoch(
        self, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> TransitMetadata:
        """Empty, with the next epoch, or with the same one for who asks again. `expected_epoch` is what the producer
        takes for its epoch; None where it doesn't say.

        Raises KafkaError: PRODUCER_FENCED; UNKNOWN_SERVER_ERROR where the epochs are used up (Kafka's
        IllegalStateException, even for a retry that would get the current epoch).
        """
        if self.is_exhausted:
            raise KafkaError(
                Error.UNKNOWN_SERVER_ERROR, f"no epoch is left of producer id {self.producer_id}"
            )
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if expected_epoch is None:
            epoch, last_epoch = epoch + 1, NO_PRODUCER_EPOCH
        elif epoch in (NO_PRODUCER_EPOCH, expected_epoch):
            epoch, last_epoch = epoch + 1, epoch
        elif expected_epoch != last_epoch:
            raise KafkaError(Error.PRODUCER_FENCED)
        # Else it asks again: nobody else came in between, or the last epoch would be −1.
        transit = self._prepare_empty(timeout_ms, now_ms)
        transit.producer_epoch = epoch
        transit.last_producer_epoch = last_epoch
        return transit

    def prepare_producer_id_rotation(
        self, new_producer_id: int, timeout_ms: int, now_ms: int, *, knows_epoch: bool
    ) -> TransitMetadata:
        """Empty, with a new producer id, as the epochs are used up. `knows_epoch`: the producer said which one it has,
        and may ask again with it."""
        transit = self._prepare_empty(timeout_ms, now_ms)
        transit.producer_id = new_producer_id
        transit.producer_epoch = 0
        transit.last_producer_epoch = self.producer_epoch if knows_epoch else NO_PRODUCER_EPOCH
        return transit

    def _prepare_empty(self, timeout_ms: int, now_ms: int) -> TransitMetadata:
        transit = self.prepare_no_transit()
        transit.state = EMPTY
        transit.timeout_ms = timeout_ms
        transit.partitions = {}
        transit.start_timestamp_ms = NO_TIMESTAMP
        transit.last_update_timestamp_ms = now_ms
        return transit

    def prepare_add_partitions(
        self, added: Collection[TopicPartition], now_ms: int, client_transaction_version: int
    ) -> TransitMetadata:
        """Ongoing; since now where it wasn't before."""
        transit = self.prepare_no_transit()
        transit.state = ONGOING
        transit.partitions = self.partitions | dict.fromkeys(added)
        if self.state is not ONGOING:
            transit.start_timestamp_ms = now_ms
        transit.last_update_timestamp_ms = now_ms
        transit.client_transaction_version = client_transaction_version
        return transit

    def prepare_abort_or_commit(
        self, state: TransactionState, transaction_version: int, next_producer_id: int, now_ms: int
    ) -> TransitMetadata:
        """PrepareCommit or PrepareAbort.

        Up to version 1 the epoch stays; from version 2 on it is bumped, and `next_producer_id` is who the producer is
        once this is complete, or −1 where it keeps its id.
        """
        transit = self.prepare_no_transit()
        transit.state = state
        transit.next_producer_id = next_producer_id
        transit.last_update_timestamp_ms = now_ms
        if transaction_version < 2:
            transit.client_transaction_version = 0
            return transit
        transit.client_transaction_version = transaction_version
        transit.last_producer_epoch = self.producer_epoch
        # At 32767 nothing is left to bump: an abort goes through as it is, so that the id can be used on.
        if not (self.producer_epoch == MAX_PRODUCER_EPOCH and state is PREPARE_ABORT):
            transit.producer_epoch += 1
        # A client that isn't sure whether it had begun may abort what it had not.
        if self.state is not ONGOING:
            transit.start_timestamp_ms = now_ms
        return transit

    def prepare_complete(self, now_ms: int) -> TransitMetadata:
        """CompleteCommit or CompleteAbort of what is prepared, with the next producer id where there is one."""
        transit = self.prepare_no_transit()
        transit.state = COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT
        if self.client_transaction_version >= 2 and self.next_producer_id != NO_PRODUCER_ID:
            transit.producer_id = self.next_producer_id
            transit.producer_epoch = 0
        transit.next_producer_id = NO_PRODUCER_ID
        transit.partitions = {}
        transit.last_update_timestamp_ms = now_ms
        return transit

    # ---- changes

    def propose(self, state: TransactionState, producer_epoch: int) -> None:
        """The move is under way from here on. Raises KafkaError (UNKNOWN_SERVER_ERROR) where it makes no sense, as
        Kafka's `prepareTransitionTo` raises IllegalStateException."""
        if self.pending_state is not None or self.state not in ENTERED_FROM[state]:
            raise KafkaError(
                Error.UNKNOWN_SERVER_ERROR,
                f"{self.transactional_id} can't go from {self.state!r} to {state!r}, pending {self.pending_state!r}",
            )
        if not 0 <= producer_epoch <= MAX_PRODUCER_EPOCH:
            raise KafkaError(
                Error.UNKNOWN_SERVER_ERROR, f"no epoch is left of producer id {self.producer_id}"
            )
        self.pending_state = state

    def bury(self) -> None:
        """Its tombstone is under way. That is no move of a transaction, and is possible from each state."""
        self.pending_state = DEAD

    def take_back(self) -> None:
        """The proposal won't be committed: everything is as it was before it."""
        self.pending_state = None

    def apply(self, transit: TransitMetadata) -> None:
        """Become what the record says."""
        self.state = transit.state
        self.producer_id = transit.producer_id
        self.previous_producer_id = transit.previous_producer_id
        self.next_producer_id = transit.next_producer_id
        self.producer_epoch = transit.producer_epoch
        self.last_producer_epoch = transit.last_producer_epoch
        self.timeout_ms = transit.timeout_ms
        self.partitions = transit.partitions
        self.start_timestamp_ms = transit.start_timestamp_ms
        self.last_update_timestamp_ms = transit.last_update_timestamp_ms
        self.client_transaction_version = transit.client_transaction_version
        self.pending_state = None
        if transit.state in AWAITS_MARKERS:
            self.has_failed_epoch_fence = False

    def fail_epoch_fence(self) -> None:
        """What `fence_producer_epoch` bumped couldn't be logged: the next try must not bump it again."""
        self.has_failed_epoch_fence = True

    def remove_partition(self, partition: TopicPartition) -> None:
        """The partition has its marker, or needs none."""
        del self.partitions[partition]

    def fence_producer_epoch(self) -> None:
        """Fence whoever has the current epoch. That holds even if it can't be logged: then the next try finds the
        epoch bumped already (`has_failed_epoch_fence`)."""
        if not self.has_failed_epoch_fence and self.producer_epoch < MAX_PRODUCER_EPOCH:
            self.producer_epoch += 1
        self.last_producer_epoch = NO_PRODUCER_EPOCH


# --- The records of `__transaction_state` as keys and values of log records -----------------------------------
#
# The key is the transactional id; the value is v0, or v1 from level 1 of `transaction.version` on. v0 has no
# room for the producer ids before and after, nor for the client's version of transactions; nothing holds the
# last epoch. Source: `TransactionLog`, `TransactionLogValue`.

KEY_VERSION = 0
VALUE_VERSIONS = (0, 1)
HIGHEST_LEVEL = 2  # of transaction.version

_INT16 = Struct(">h")

# Of a value of version 1: what stands before and behind its partitions, a list of one, its tagged fields.
_HEAD_V1 = Struct(">hqhib")
_ONE_ID_V1 = Struct(">Bix")  # behind the list no tagged fields of the topic
_TIMES_V1 = Struct(">qqB")
_TAGGED_INT64 = Struct(">BBq")
_TAGGED_INT16 = Struct(">BBh")
_INT64_BYTES = 8
_MAX_SHORT_NAME = 0x7E  # whose length takes one byte


class UnknownVersion(Exception):  # noqa: N818  (nothing is wrong: a newer Kafka wrote it)
    """A key or a value of a version that Kafka 4.3 doesn't know."""


@lru_cache(1024)  # three records of each transaction have it
def encode_key(transactional_id: str) -> bytes:
    return _INT16.pack(KEY_VERSION) + encode(TransactionLogKey(transactional_id=transactional_id), 0)


def encode_value(transit: TransitMetadata, transaction_version: int) -> bytes:
    """`transaction_version` is the cluster's level. Raises KafkaError (UNSUPPORTED_VERSION) at level 0 for what v0 has
    no room for: who ended a transaction by EndTxn v5 needs the level of transactions V2, or V1 at least."""
    if transaction_version >= 1:
        return _encode_v1(transit)
    if transit.client_transaction_version != 0:
        raise KafkaError(Error.UNSUPPORTED_VERSION, "transaction.version is 0, and the client's is 2")
    topics = indexes_by_topic(transit.partitions).items()
    value = TransactionLogValue(
        producer_id=transit.producer_id,
        producer_epoch=transit.producer_epoch,
        transaction_timeout_ms=transit.timeout_ms,
        transaction_status=transit.state,
        transaction_partitions=None
        if transit.state is EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics],
        transaction_last_update_timestamp_ms=transit.last_update_timestamp_ms,
        transaction_start_timestamp_ms=transit.start_timestamp_ms,
    )
    return _INT16.pack(0) + encode(value, 0)


def _encode_v1(transit: TransitMetadata) -> bytes:
    """What the compiled encoder makes of a `TransactionLogValue`, without one: each transaction has three of these
    records, and with the schema's objects they cost it 2 % more of the processor's time."""
    tagged = b""
    tags = 0
    if transit.previous_producer_id != NO_PRODUCER_ID:
        tagged = _TAGGED_INT64.pack(0, _INT64_BYTES, transit.previous_producer_id)
        tags = 1
    if transit.next_producer_id != NO_PRODUCER_ID:
        tagged += _TAGGED_INT64.pack(1, _INT64_BYTES, transit.next_producer_id)
        tags += 1
    if transit.client_transaction_version != 0:
        tagged += _TAGGED_INT16.pack(2, _INT16.size, transit.client_transaction_version)
        tags += 1
    state = transit.state
    return b"".join(
        (
            _HEAD_V1.pack(1, transit.producer_id, transit.producer_epoch, transit.timeout_ms, state),
            b"\0" if state is EMPTY else _partitions_v1(transit.partitions),
            _TIMES_V1.pack(transit.last_update_timestamp_ms, transit.start_timestamp_ms, tags),
            tagged,
        )
    )


def _partitions_v1(partitions: TransactionPartitions) -> bytes:
    if not partitions:  # as when it is complete
        return b"\1"
    if len(partitions) == 1:  # as in most transactions
        [(topic, index)] = partitions
        name = topic.encode()
        if len(name) <= _MAX_SHORT_NAME:
            return b"".join((b"\2", SHORT_UNSIGNED_VARINTS[len(name) + 1], name, _ONE_ID_V1.pack(2, index)))
    topics = indexes_by_topic(partitions)
    chunks = [encode_unsigned_varint(len(topics) + 1)]
    for topic, ids in topics.items():
        name = topic.encode()
        chunks += encode_unsigned_varint(len(name) + 1), name
        chunks += encode_unsigned_varint(len(ids) + 1), pack(f">{len(ids)}ix", *ids)
    return b"".join(chunks)


def decode_record(key: Bytes, value: Bytes | None) -> tuple[str, TransitMetadata | None]:
    """The transactional id, and what became of it; None for a tombstone.

    Raises UnknownVersion for what Kafka passes over, CodecError for what makes no sense.
    """
    key_version = _version(key)
    if key_version != KEY_VERSION:
        raise UnknownVersion(f"a key of version {key_version}")
    transactional_id = decode(TransactionLogKey, 0, key, _INT16.size).transactional_id
    if value is None:
        return transactional_id, None
    version = _version(value)
    if version not in VALUE_VERSIONS:
        raise UnknownVersion(f"a value of version {version}")
    return transactional_id, _to_transit(decode(TransactionLogValue, version, value, _INT16.size))


def is_of_known_version(value: Bytes) -> bool:
    """Or makes no sense, which `decode_record` finds out."""
    return len(value) < _INT16.size or _INT16.unpack_from(value)[0] in VALUE_VERSIONS


def _version(data: Bytes) -> int:
    if len(data) < _INT16.size:
        raise CodecError(f"{len(data)} bytes where a version is expected")
    version: int = _INT16.unpack_from(data)[0]
    return version


def _to_transit(value: TransactionLogValue) -> TransitMetadata:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise CodecError(f"{value.transaction_status} is the id of no state of a transaction") from None
    if state in NEVER_LOGGED:
        raise CodecError(f"state {STATE_NAMES[state]} is in no log")
    if value.producer_id < 0:
        raise CodecError(f"{value.producer_id} is the id of no producer")
    if value.producer_epoch < 0:
        # A move from there is refused ever after; a prepared transaction would hang (Kafka: `prepareTransitionTo`).
        raise CodecError(f"producer {value.producer_id} has the epoch {value.producer_epoch}")
    if not 0 <= value.client_transaction_version <= HIGHEST_LEVEL:
        raise CodecError(f"transactions have no version {value.client_transaction_version}")
    partitions: TransactionPartitions = {}
    if state is not EMPTY:
        if value.transaction_partitions is None:
            raise CodecError(f"no list of partitions in state {state!r}")
        for topic in value.transaction_partitions:
            for partition in topic.partition_ids:
                partitions[topic.topic, partition] = None
    return TransitMetadata(
        state=state,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=value.transaction_timeout_ms,
        partitions=partitions,
        start_timestamp_ms=value.transaction_start_timestamp_ms,
        last_update_timestamp_ms=value.transaction_last_update_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
    )


# --------------------------------------------------------------------------------------------------------------

log = logging.getLogger("barnabas.transactions")


Logged: TypeAlias = KafkaError | Later[KafkaError | None] | None
"""What came of it where that is known at once, as on one node, or is still to come."""


class TransactionStateManager:
    """Knows the transactional ids, and changes them by records."""

    __slots__ = ("_gate", "_is_certain", "barriers", "runtime", "transaction_version", "transactions")

    def __init__(self, runtime: Runtime, transaction_version: Callable[[], int]) -> None:
        """`transaction_version` is the cluster's level of that feature, at each moment."""
        self.runtime = runtime
        self.transaction_version = transaction_version
        self.transactions: dict[str, TransactionMetadata] = {}
        self.barriers: Barriers | None = None
        self._gate = Gate(runtime)
        self._is_certain = True

    def get(self, transactional_id: str) -> TransactionMetadata:
        """Raises KafkaError: INVALID_REQUEST (an empty id), INVALID_PRODUCER_ID_MAPPING."""
        if not transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
        return metadata

    def create(self, transactional_id: str, producer_id: int, timeout_ms: int) -> TransactionMetadata:
        """An id that nobody used before: Empty, with a producer id and no epoch. No record says so."""
        metadata = TransactionMetadata(transactional_id, producer_id, timeout_ms, self.runtime.now_ms())
        self.transactions[transactional_id] = metadata
        return metadata

    async def loaded(self, end_offset: int) -> KafkaError | None:
        """Everything is replayed up to this offset: once that is committed, or why it can't be any more."""
        if end_offset:
            self._gate.appended(end_offset)
        self._is_certain = False
        error = await self._gate.committed()
        self._is_certain = error is None
        return error

    def certain(self) -> Logged:
        """Once what was replayed is committed: what the next leader may not have isn't to be told, or a client goes on
        as if it were so. (Kafka's coordinator tells it.)"""
        return None if self._is_certain else begun(self._gate.committed())

    # ---- moves
    #
    # Each goes on to its end, whoever waits for it, within the call of who commits: else it would be pending for ever,
    # or be overtaken.

    def commit(self, metadata: TransactionMetadata, transit: TransitMetadata) -> Logged:
        """Log a proposal, and apply it once its record is committed. Where it makes no sense, or can't be logged, it is
        taken back: the error is for the client."""
        try:
            metadata.propose(transit.state, transit.producer_epoch)
        except KafkaError as error:
            return error.as_value()
        return self.log(metadata, transit)

    def log(
        self, metadata: TransactionMetadata, transit: TransitMetadata, *, retried: Container[Error] = ()
    ) -> Logged:
        """Log what was proposed, and apply it once its record is committed. With an error it is taken back, but for
        those that are `retried`: with these it is pending still. Who retries has to go on as well where this raises.
        """
        if self.barriers is None:
            return self._log(metadata, transit, retried)
        return begun(self._log_between(self.barriers, metadata, transit, retried))

    async def _log_between(
        self,
        barriers: Barriers,
        metadata: TransactionMetadata,
        transit: TransitMetadata,
        retried: Container[Error],
    ) -> KafkaError | None:
        """With what a test has put before it and behind it."""
        move = TransactionMove(
            metadata.transactional_id,
            STATE_NAMES[transit.state],
            transit.producer_id,
            transit.producer_epoch,
            transit.partitions or metadata.partitions,
        )
        refused = await barriers.before_move(move)
        if refused is not None:
            if refused.error not in retried:
                metadata.take_back()
            return refused
        logged = self._log(metadata, transit, retried)
        error = await logged if isinstance(logged, Later) else logged
        if error is None:
            await barriers.behind_move(move)
        return error

    def _log(
        self, metadata: TransactionMetadata, transit: TransitMetadata, retried: Container[Error]
    ) -> Logged:
        try:
            value = encode_value(transit, self.transaction_version())
            self._gate.append(((encode_key(metadata.transactional_id), value),))
        except KafkaError as error:
            if error.error not in retried:
                metadata.take_back()
            return error.as_value()
        except BaseException:  # what nobody thought of must not leave it pending for ever
            if not retried:
                metadata.take_back()
            raise
        if self._gate.is_open:  # as on one node: nothing is made that would wait
            _apply_written(metadata, transit)
            return None
        return begun(self._applied(metadata, transit, retried))

    async def _applied(
        self, metadata: TransactionMetadata, transit: TransitMetadata, retried: Container[Error]
    ) -> KafkaError | None:
        lost = await self._gate.committed()
        if lost is None:
            _apply_written(metadata, transit)
        elif lost.error not in retried:
            metadata.take_back()
        return lost

    async def bury(self, batch: Sequence[TransactionMetadata]) -> KafkaError | None:
        """Forget transactional ids, with a tombstone each in one batch, once that is committed."""
        records: list[CoordinatorRecord] = [(encode_key(each.transactional_id), None) for each in batch]
        for metadata in batch:
            metadata.bury()
        lost: KafkaError | None
        try:
            self._gate.append(records)
        except KafkaError as error:
            lost = error.as_value()
        except BaseException:  # what nobody thought of must not leave them pending for ever
            for metadata in batch:
                metadata.take_back()
            raise
        else:
            lost = await self._gate.committed()
        for metadata in batch:
            if lost is None:
                self.transactions.pop(metadata.transactional_id, None)
            else:
                metadata.take_back()
        return lost

    # ---- records

    def apply(self, transactional_id: str, transit: TransitMetadata | None) -> None:
        """Change what is known by one record of the log; None is a tombstone."""
        if transit is None:
            self.transactions.pop(transactional_id, None)
            return
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            metadata = TransactionMetadata(transactional_id, transit.producer_id, 0, 0)
            self.transactions[transactional_id] = metadata
        metadata.apply(transit)

    def replay(self, key: Bytes, value: Bytes | None, record_offset: int) -> None:
        """One record of the log, at a start; a version that Kafka doesn't know is passed over, as it does.

        Raises CodecError for one that makes no sense. Kafka logs an error then and goes on with what it had read so
        far, so that a prepared transaction further on would hang: don't serve a partition that can't be read.
        """
        try:
            transactional_id, transit = decode_record(key, value)
        except UnknownVersion as unknown:
            log.warning("the record at offset %d has %s; it stays in the log", record_offset, unknown)
            return
        self.apply(transactional_id, transit)

    def close(self) -> None:
        """The partition is led elsewhere, or gone: what isn't committed yet is told NOT_COORDINATOR."""
        self._gate.close()
        self.transactions.clear()


def _apply_written(metadata: TransactionMetadata, transit: TransitMetadata) -> None:
    try:
        metadata.apply(transit)
    except Exception as error:
        raise cannot_apply(error) from error


# --- looking inside: DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152) -------------------
#
# Source: `TransactionCoordinator.handleDescribeTransactions`,
# `TransactionStateManager.listTransactionStates`.

_BY_NAME: dict[str, TransactionState] = {name: state for state, name in STATE_NAMES.items()}


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Which transactions ListTransactions answers; all of them unless something is said."""

    producer_ids: frozenset[int] = frozenset()
    states: frozenset[TransactionState] | None = None  # None: any
    longer_than_ms: int = -1  # negative: any

    def passes(self, metadata: TransactionMetadata, now_ms: int) -> bool:
        """Whether it lets the transaction through. An Empty one began long ago, as its start is −1."""
        return (
            metadata.state is not DEAD
            and (not self.producer_ids or metadata.producer_id in self.producer_ids)
            and (self.states is None or metadata.state in self.states)
            and (self.longer_than_ms < 0 or now_ms - metadata.start_timestamp_ms > self.longer_than_ms)
        )


def states_named(names: Collection[str]) -> tuple[frozenset[TransactionState] | None, list[str]]:
    """The states for a filter, and the names that are none's, which the answer repeats. Names are case-sensitive; where
    all are unknown the filter lets nothing through."""
    if not names:
        return None, []
    unknown = [name for name in names if name not in _BY_NAME]
    return frozenset(_BY_NAME[name] for name in names if name in _BY_NAME), unknown
