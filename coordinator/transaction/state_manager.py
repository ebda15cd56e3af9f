"""The transactional ids of one partition of `__transaction_state`, built from its records.

Propose → append → committed → apply. A move is only pending until its record is committed. So all state that
can be read is committed, and a reader never waits. There are two exceptions: a new id has no record yet, and
a fenced epoch holds before it is logged (see `TransactionMetadata`). Everything that a shard has loaded
counts as committed, as in Kafka, whose `loadTransactionMetadata` reads to the log's end.
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

# --- The state of one transactional id, and proposals for its next state --------------------------------------
#
# Source: `TransactionMetadata`, `TxnTransitMetadata`.

EXHAUSTED_EPOCH = MAX_PRODUCER_EPOCH - 1
"""The highest epoch of a producer. The one after it is reserved for fencing."""

NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a transaction in a two-phase commit: it never times out."""

TransactionPartitions = dict[TopicPartition, None]
"""A set that keeps insertion order."""


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and epoch to use from now on; −1 and −1 if the answer gives none."""

    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class TransitMetadata:
    """The next state of a transactional id, as its record will say (Kafka: `TxnTransitMetadata`).

    It doesn't change any more once it is proposed.
    """

    state: TransactionState
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    last_producer_epoch: int  # not in the record
    timeout_ms: int
    partitions: TransactionPartitions
    start_timestamp_ms: int
    last_update_timestamp_ms: int
    client_transaction_version: int


@dataclass(slots=True)
class TransactionMetadata:
    """The state of one transactional id.

    `apply` changes what its records say. Other changes have no record, and each has a method: a partition
    gets its marker (`remove_partition`), a move is under way (`propose`, `take_back`), an unused id is being
    forgotten (`bury`), a fenced epoch holds before it is logged (`fence_producer_epoch`), and logging that
    failed (`fail_epoch_fence`). A restart forgets these changes, and new ids without a record
    (`TransactionStateManager.create`). It still comes to the same end.

    The methods `prepare_…` change nothing: each returns the proposal for one move. They have Kafka's names.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    last_update_timestamp_ms: int
    state: TransactionState = EMPTY
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before, as long as its owner may retry the request that bumped it. A restart forgets it."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last record. It differs from `producer_id` if that record brought a new id."""
    next_producer_id: int = NO_PRODUCER_ID
    """In Prepare*: the producer id to use after the completion, if the epochs of this one are used up."""
    partitions: TransactionPartitions = field(default_factory=dict)
    """In Prepare*: the partitions that still await their marker."""
    start_timestamp_ms: int = NO_TIMESTAMP
    client_transaction_version: int = 0
    pending_state: TransactionState | None = None
    """The state of a move whose record isn't committed yet, or whose markers are under way. Other requests retry.
    """
    has_failed_epoch_fence: bool = False
    """The epoch was bumped to fence the producer, but logging failed. The next try uses the same epoch."""

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= EXHAUSTED_EPOCH

    # ---- proposals

    def prepare_no_transit(self) -> TransitMetadata:
        """Return the current state as a proposal, with the current producer id as the previous one."""
        # Every other proposal starts from this one. A constructor with eleven keywords would take three times
        # as long.
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
        """Propose Empty with the next epoch, or with the same epoch for a retry.

        `expected_epoch` is the epoch that the producer believes it has, or None if it doesn't say.

        Raises KafkaError: PRODUCER_FENCED; UNKNOWN_SERVER_ERROR if the epochs are used up (Kafka's
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
        # Else it is a retry, and nobody else came in between: otherwise the last epoch would be −1.
        transit = self._prepare_empty(timeout_ms, now_ms)
        transit.producer_epoch = epoch
        transit.last_producer_epoch = last_epoch
        return transit

    def prepare_producer_id_rotation(
        self, new_producer_id: int, timeout_ms: int, now_ms: int, *, knows_epoch: bool
    ) -> TransitMetadata:
        """Propose Empty with a new producer id, as the epochs are used up.

        `knows_epoch`: the producer gave its epoch, and may retry with it.
        """
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
        """Propose Ongoing. The transaction starts now if it wasn't ongoing."""
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
        """Propose PrepareCommit or PrepareAbort.

        Up to version 1 the epoch stays. From version 2 on it is bumped, and `next_producer_id` is the
        producer's id after the completion, or −1 if it keeps its id.
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
        # 32767 can't be bumped. An abort goes through without it, so that the id stays usable.
        if not (self.producer_epoch == MAX_PRODUCER_EPOCH and state is PREPARE_ABORT):
            transit.producer_epoch += 1
        # A client that isn't sure whether its transaction has begun may abort one that hasn't.
        if self.state is not ONGOING:
            transit.start_timestamp_ms = now_ms
        return transit

    def prepare_complete(self, now_ms: int) -> TransitMetadata:
        """Propose CompleteCommit or CompleteAbort, with the next producer id if there is one."""
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
        """Mark the move as pending.

        Raises KafkaError (UNKNOWN_SERVER_ERROR) if the move is illegal. Kafka's `prepareTransitionTo` raises
        IllegalStateException.
        """
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
        """Mark the id as being forgotten. This is no move of a transaction, and is possible from each state."""
        self.pending_state = DEAD

    def take_back(self) -> None:
        """Drop the proposal, as it won't be committed."""
        self.pending_state = None

    def apply(self, transit: TransitMetadata) -> None:
        """Take over the state that the record says."""
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
        """Note that the epoch bumped by `fence_producer_epoch` wasn't logged. The next try must not bump it again."""
        self.has_failed_epoch_fence = True

    def remove_partition(self, partition: TopicPartition) -> None:
        """Remove a partition that has its marker, or needs none."""
        del self.partitions[partition]

    def fence_producer_epoch(self) -> None:
        """Fence the producer with the current epoch. The fence holds even if it can't be logged: then
        `has_failed_epoch_fence` keeps the next try from bumping the epoch again."""
        if not self.has_failed_epoch_fence and self.producer_epoch < MAX_PRODUCER_EPOCH:
            self.producer_epoch += 1
        self.last_producer_epoch = NO_PRODUCER_EPOCH


# --- The records of `__transaction_state` as keys and values of log records -----------------------------------
#
# The key is the transactional id. The value is v0, or v1 from level 1 of `transaction.version` on. v0 has no
# room for the previous and next producer ids, nor for the client's transaction version. No version holds the
# last epoch.
# Source: `TransactionLog`, `TransactionLogValue`.

KEY_VERSION = 0
VALUE_VERSIONS = (0, 1)
HIGHEST_LEVEL = 2  # of transaction.version

_INT16 = Struct(">h")

# The parts of a value of version 1: before its partitions, in a list of one, after them, and its tagged fields.
_HEAD_V1 = Struct(">hqhib")
_ONE_ID_V1 = Struct(">Bix")  # after the list: the topic has no tagged fields
_TIMES_V1 = Struct(">qqB")
_TAGGED_INT64 = Struct(">BBq")
_TAGGED_INT16 = Struct(">BBh")
_INT64_BYTES = 8
_MAX_SHORT_NAME = 0x7E  # the longest name whose length takes one byte


class UnknownVersion(Exception):  # noqa: N818 (no mistake: a newer Kafka wrote it)
    """A key or a value of a version that Kafka 4.3 doesn't know."""


@lru_cache(1024)  # three records of each transaction have it
def encode_key(transactional_id: str) -> bytes:
    return _INT16.pack(KEY_VERSION) + encode(TransactionLogKey(transactional_id=transactional_id), 0)


def encode_value(transit: TransitMetadata, transaction_version: int) -> bytes:
    """Encode the state for a cluster at this level of `transaction.version`.

    Raises KafkaError (UNSUPPORTED_VERSION) at level 0 if v0 has no room for it: a transaction that EndTxn v5
    ended needs level 1 or higher.
    """
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
    """Return the same bytes as the compiled encoder of `TransactionLogValue`, without the schema's objects.

    Each transaction has three of these records. The objects would cost it 2 % more processor time.
    """
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
    if not partitions:  # for instance, when it is complete
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
    """Return the transactional id and its new state, or None for a tombstone.

    Raises UnknownVersion for a record that Kafka skips, CodecError for one that makes no sense.
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
    """True if the value has a known version, or is too short to have one. `decode_record` raises for the latter."""
    return len(value) < _INT16.size or _INT16.unpack_from(value)[0] in VALUE_VERSIONS


def _version(data: Bytes) -> int:
    if len(data) < _INT16.size:
        raise CodecError(f"{len(data)} bytes can't hold a version")
    version: int = _INT16.unpack_from(data)[0]
    return version


def _to_transit(value: TransactionLogValue) -> TransitMetadata:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise CodecError(f"{value.transaction_status} is no state of a transaction") from None
    if state in NEVER_LOGGED:
        raise CodecError(f"state {STATE_NAMES[state]} is never logged")
    if value.producer_id < 0:
        raise CodecError(f"{value.producer_id} is no producer id")
    if value.producer_epoch < 0:
        # Later moves from there would be refused, and a prepared transaction would hang (Kafka:
        # `prepareTransitionTo`).
        raise CodecError(f"producer {value.producer_id} has the epoch {value.producer_epoch}")
    if not 0 <= value.client_transaction_version <= HIGHEST_LEVEL:
        raise CodecError(f"there are no transactions of version {value.client_transaction_version}")
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
"""The result of logging a move: None or an error if it is known at once, as on a single node, else a `Later`."""


class TransactionStateManager:
    """Holds the transactional ids, and changes them by records."""

    __slots__ = ("_gate", "_is_certain", "barriers", "runtime", "transaction_version", "transactions")

    def __init__(self, runtime: Runtime, transaction_version: Callable[[], int]) -> None:
        """`transaction_version` returns the cluster's current level of that feature."""
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
        """Create an id that nobody used before: Empty, with a producer id and no epoch. No record says so yet."""
        metadata = TransactionMetadata(transactional_id, producer_id, timeout_ms, self.runtime.now_ms())
        self.transactions[transactional_id] = metadata
        return metadata

    async def loaded(self, end_offset: int) -> KafkaError | None:
        """Wait until the replayed records, up to this offset, are committed. Returns an error if that can't
        happen any more."""
        if end_offset:
            self._gate.appended(end_offset)
        self._is_certain = False
        error = await self._gate.committed()
        self._is_certain = error is None
        return error

    def certain(self) -> Logged:
        """Wait until the replayed records are committed.

        The next leader may lack them. A client that had heard of them would act as if they were certain.
        (Kafka's coordinator doesn't wait.)
        """
        return None if self._is_certain else begun(self._gate.committed())

    # ---- moves
    #
    # Each move runs to its end within the call that commits it, even if nobody waits for it. Otherwise it
    # could stay pending forever, or another one could overtake it.

    def move(self, metadata: TransactionMetadata, transit: TransitMetadata) -> Logged:
        """Propose a move, log it, and apply it once its record is committed.

        If it is illegal or can't be logged, it is taken back, and the error is for the client.
        """
        try:
            metadata.propose(transit.state, transit.producer_epoch)
        except KafkaError as error:
            return error.as_value()
        return self.log(metadata, transit)

    def log(
        self, metadata: TransactionMetadata, transit: TransitMetadata, *, retried: Container[Error] = ()
    ) -> Logged:
        """Log a proposed move, and apply it once its record is committed.

        An error takes the move back, unless it is one of `retried`: then the move stays pending, and the
        caller has to retry. The caller has to retry after an exception, too.
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
        """Log the move between the barriers that a test has set."""
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
        except BaseException:  # an unexpected failure must not leave it pending forever
            if not retried:
                metadata.take_back()
            raise
        if self._gate.is_open:  # as on one node: no coroutine is needed
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
        """Forget transactional ids once their tombstones, all in one batch, are committed."""
        records: list[CoordinatorRecord] = [(encode_key(each.transactional_id), None) for each in batch]
        for metadata in batch:
            metadata.bury()
        lost: KafkaError | None
        try:
            self._gate.append(records)
        except KafkaError as error:
            lost = error.as_value()
        except BaseException:  # an unexpected failure must not leave them pending forever
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
        """Apply one record of the log. None is a tombstone."""
        if transit is None:
            self.transactions.pop(transactional_id, None)
            return
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            metadata = TransactionMetadata(transactional_id, transit.producer_id, 0, 0)
            self.transactions[transactional_id] = metadata
        metadata.apply(transit)

    def replay(self, key: Bytes, value: Bytes | None, record_offset: int) -> None:
        """Apply one record while loading. A version that Kafka doesn't know is skipped, as Kafka does.

        Raises CodecError if the record makes no sense. Kafka logs an error then, and serves what it has read
        so far. A prepared transaction further on would hang. So don't serve a partition that can't be read.
        """
        try:
            transactional_id, transit = decode_record(key, value)
        except UnknownVersion as unknown:
            log.warning("the record at offset %d has %s; it stays in the log", record_offset, unknown)
            return
        self.apply(transactional_id, transit)

    def close(self) -> None:
        """Forget everything, as the partition is gone or has another leader. Uncommitted moves get NOT_COORDINATOR."""
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
    """A filter of ListTransactions. By default it lets all transactions through."""

    producer_ids: frozenset[int] = frozenset()
    states: frozenset[TransactionState] | None = None  # None: any
    longer_than_ms: int = -1  # negative: any

    def passes(self, metadata: TransactionMetadata, now_ms: int) -> bool:
        """True if the filter lets the transaction through. The start of an Empty one is −1, so it counts as
        long ago."""
        return (
            metadata.state is not DEAD
            and (not self.producer_ids or metadata.producer_id in self.producer_ids)
            and (self.states is None or metadata.state in self.states)
            and (self.longer_than_ms < 0 or now_ms - metadata.start_timestamp_ms > self.longer_than_ms)
        )


def states_named(names: Collection[str]) -> tuple[frozenset[TransactionState] | None, list[str]]:
    """Return the states for a filter, and the unknown names, which the answer repeats.

    Names are case-sensitive. If all are unknown, the filter lets nothing through.
    """
    if not names:
        return None, []
    unknown = [name for name in names if name not in _BY_NAME]
    return frozenset(_BY_NAME[name] for name in names if name in _BY_NAME), unknown
