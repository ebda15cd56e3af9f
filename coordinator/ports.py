"""The ports of a coordinator's shard: its partition, time and chance, and the way to the leaders of other
partitions.

A shard runs on one thread and is never entered twice. Callbacks of timers, commits and markers run between
requests. A shard first writes its decisions as records, and nobody hears of them before these are committed.
Transactions apply a record once it is committed, groups as they write it. A restart applies the same records
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from protocol.errors import Error, KafkaError
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.topic_partition import TopicPartition
from protocol.waiting import Waiting

CoordinatorRecord = tuple[bytes, bytes | None]
"""Key and value of one record. A null value is a tombstone."""

WhenCommitted = Callable[[KafkaError | None], None]
"""A callback that waits for a commit. It is called exactly once, with None or with the error for the client."""


class Runtime(Protocol):
    """The partition of a shard, time, and chance. The broker has one for each partition that it coordinates.

    That is `PartitionRuntime` in `broker/coordination/hosted_shards.py`. Kafka: `CoordinatorRuntime`,
    `PartitionWriter`.
    """

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        guard: object | None = None,
    ) -> int:
        """Write records to the shard's partition. Returns the offset after the last one. They may not be
        committed yet.

        They are one batch, with consecutive offsets. With a producer id they are part of its transaction.
        `guard` is an opaque value from the verification that the partition is in the transaction (KIP-890).
        Raises KafkaError with the error for the client (`append_error`); then nothing was written.
        """
        ...

    def is_committed(self, end_offset: int) -> bool:
        """True if everything before this offset is committed, as far as is known now."""
        ...

    def when_committed(self, end_offset: int, then: WhenCommitted) -> None:
        """Call `then` once everything before this offset is committed; in this call if it is already.

        `then` gets a KafkaError for the client if that can't be known any more: NOT_COORDINATOR if leadership
        was lost. Callbacks run in the order of their offsets, and for one offset in the order in which they
        came.
        """
        ...

    def now_ms(self) -> int:
        """Wall-clock time, for timestamps in records and for what expires by them."""
        ...

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call back once the delay has passed, unless cancelled. This replaces a timer with the same key."""
        ...

    def cancel(self, key: Hashable) -> None:
        """Forget the timer of this key, if there is one."""
        ...

    def carry_out(self, group_id: str, steps: Waiting[None]) -> None:
        """Take steps that nobody waits for, in this call or later ones. Others are served while one computes.

        Steps of the same group, and long decisions about it, run one after the other. They end if the broker
        stops. Raises what the first step raises. What a later one raises is logged.
        """
        ...

    def begin(self, steps: Waiting[None]) -> None:
        """Take steps as `carry_out` does, without waiting for others of the group. Use it for short decisions
        that wait for answers."""
        ...

    def new_uuid(self) -> bytes:
        """A random uuid of version 4, 16 bytes."""
        ...


class TxnMarker(NamedTuple):
    """One marker of WriteTxnMarkers, which ends a transaction in its partitions (Kafka: `TxnMarkerEntry`)."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int
    """0, 1 or 2: the transaction version of the client that ended the transaction, or the cluster's level if
    the coordinator ended it. From 2 on the marker's epoch has to be above the one that the partition knows
    (KIP-1228)."""


MarkerAnswers = Mapping[TopicPartition, Error | None]
"""NONE: the marker is in the partition's log. Another Error: the leader's answer (a code of WriteTxnMarkers).
None: the partition isn't in the metadata. It was deleted, so there is nothing to end."""


class Markers(Protocol):
    """Sends a transaction coordinator's markers to the leaders of partitions. In the broker these are `TxnMarkers`
    (`coordination/transactions.py`), and `MarkerChannels` (`peers/other_brokers.py`) for leaders elsewhere."""

    def write(
        self,
        marker: TxnMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[MarkerAnswers], None],
    ) -> None:
        """Write the marker to each of the partitions, none of them given twice. Never raises KafkaError: each
        failure is an answer.

        `done` is called once or more, before this returns or later, each time with some of the partitions. In
        the end each of them has been answered (after a broken connection: ask again, or answer
        REQUEST_TIMED_OUT). A late answer or a second one does no harm. Without partitions `done` isn't
        called.

        The answer for a known partition with another leader, or with none at present, is
        NOT_LEADER_OR_FOLLOWER. The coordinator asks again, after a pause, for partitions with an error that
        may pass.
        Kafka: `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`.
        """
        ...


class TransactionMove(NamedTuple):
    """A record of `__transaction_state`, as far as a test asks for it. `state` is Kafka's name of the state."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]


class Barriers(Protocol):
    """Points in the work of coordinators at which a test may make it wait or fail. A barrier only waits for
    answers."""

    def before_move(self, move: TransactionMove) -> Waiting[KafkaError | None]:
        """A record of `__transaction_state` is about to be written. An error prevents that."""
        ...

    def behind_move(self, move: TransactionMove) -> Waiting[None]:
        """The record is committed, and nobody has heard of it."""
        ...

    def before_generation(self, group_id: str) -> Waiting[None]:
        """The members of a classic group have joined, or the time to wait for them is over."""
        ...

    def before_loading(self, topic: str, partition: int) -> Waiting[None]:
        """This node has become the leader of a partition of an internal topic, and hasn't read it yet."""
        ...


_APPEND_ERRORS: dict[Error, Error] = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Error.COORDINATOR_NOT_AVAILABLE,
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
    Error.MESSAGE_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
    Error.RECORD_LIST_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
    Error.INVALID_FETCH_SIZE: Error.UNKNOWN_SERVER_ERROR,
    Error.NETWORK_EXCEPTION: Error.COORDINATOR_LOAD_IN_PROGRESS,
}


def append_error(error: Error) -> Error:
    """Translate an error of the coordinator's own append into the error for the client.

    Kafka: `GroupMetadataManager.appendGroupMetadataErrorToResponseError`, `CoordinatorOperationExceptionHelper`.
    """
    return _APPEND_ERRORS.get(error, error)


class EndedBy(Enum):
    """Why a transaction was committed or aborted."""

    COMMITTED = "asked to commit"
    ABORTED = "asked to abort"
    FENCED = "aborted for a new producer with the same transactional id"
    TIMED_OUT = "aborted past its timeout"


class Times(Protocol):
    """The durations of one kind of event."""

    def add(self, took_ms: float) -> None: ...


class TransactionCounts(Protocol):
    """Counts of transactions, for metrics.

    All shards of a node share one object, so nothing is lost when a partition gets another leader. Each
    transaction costs a few additions, whether or not anybody reads them.
    """

    ended: dict[EndedBy, int]
    """Transactions whose Prepare* is committed."""
    retried_markers: int
    """Markers that were sent again."""
    given_up: int
    """Completions that ended because a leader answered that somebody else is in charge."""

    @property
    def durations(self) -> Times:
        """From a transaction's first partition to its Complete*."""

    @property
    def fan_outs(self) -> Times:
        """From Prepare* to Complete*: the time for writing the markers."""
