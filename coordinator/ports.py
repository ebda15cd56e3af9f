"""What a coordinator's shard is given: its partition, time and chance, and the way to the leaders of other partitions.

A shard runs on one thread and is never entered twice: callbacks of timers, commits and markers come in between
requests. What a shard decides is written as records first, and nobody learns of it before these are committed.
Transactions apply it then, groups as they write it. A restart applies the same records again.
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
"""Key and value of one record; a null value is a tombstone."""

WhenCommitted = Callable[[KafkaError | None], None]
"""What waits for a commit: called exactly once, with None or with what a client is told."""


class Runtime(Protocol):
    """The partition of a shard, time, chance. The broker has one for each partition that is coordinated.

    Kafka: `CoordinatorRuntime`, `PartitionWriter`.
    """

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        guard: object | None = None,
    ) -> int:
        """Write records to the shard's partition; the offset behind the last one. They may not be committed yet.

        They are one batch, with offsets in a row. With a producer id they are part of its transaction; `guard` is what
        the caller was given by who verified that the partition is in it (KIP-890), not to be looked at. Raises
        KafkaError with what a client is told (`append_error`); then nothing was written.
        """
        ...

    def is_committed(self, end_offset: int) -> bool:
        """Whether everything before this offset is committed, as far as is known now."""
        ...

    def when_committed(self, end_offset: int, then: WhenCommitted) -> None:
        """Call `then` once everything before this offset is committed: in this call where it is already.

        Where that can't be known any more `then` is given a KafkaError, with what a client is told: NOT_COORDINATOR
        where the leadership was lost. Those who wait are called in the order of their offsets, and for one offset in
        the order in which they came.
        """
        ...

    def now_ms(self) -> int:
        """Wall-clock time, for what records say and for what expires by them."""
        ...

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call back once the delay has passed, unless cancelled. A timer of the same key is replaced."""
        ...

    def cancel(self, key: Hashable) -> None:
        """Forget the timer of this key, if there is one."""
        ...

    def carry_out(self, group_id: str, steps: Waiting[None]) -> None:
        """Take steps that nobody waits for, in this call or later ones; others are served while one computes.

        They wait for what else is much to decide of that group, and it for them. Where the broker stops they go no
        further. Raises what the first step raises; what a later one does is logged.
        """
        ...

    def begin(self, steps: Waiting[None]) -> None:
        """As `carry_out`, of what is short to decide, and waits for others: it is in nobody's way."""
        ...

    def new_uuid(self) -> bytes:
        """A random uuid of version 4, 16 bytes."""
        ...


class TxnMarker(NamedTuple):
    """What ends a transaction in its partitions: one marker of WriteTxnMarkers (Kafka: `TxnMarkerEntry`)."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int
    """0, 1, 2: of the client that ended the transaction, or the cluster's level where the coordinator ended it. From
    2 on the marker's epoch has to be above the one that the partition knows (KIP-1228)."""


MarkerAnswers = Mapping[TopicPartition, Error | None]
"""NONE: the marker is in the partition's log. Any other Error: what the leader answered (WriteTxnMarkers' codes). None:
the partition isn't in the metadata: it was deleted, there is nothing to end."""


class Markers(Protocol):
    """The way by which a transaction's coordinator reaches the leaders of partitions."""

    def write(
        self,
        marker: TxnMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[MarkerAnswers], None],
    ) -> None:
        """Write the marker to each of the partitions, each of which is named once. Never raises KafkaError: whatever
        goes wrong is an answer.

        `done` is called once or several times, before this returns or later, each time with some of the partitions;
        in the end each of them has been answered (a broken connection: ask again, or answer REQUEST_TIMED_OUT). An
        answer too late, or one too many, does no harm. It isn't called where there are no partitions.

        A partition that is known, but led elsewhere or by nobody at present: NOT_LEADER_OR_FOLLOWER. The coordinator
        asks again, after a pause, for partitions that were answered with an error that passes.
        Kafka: `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`.
        """
        ...


class TransactionMove(NamedTuple):
    """What a record of `__transaction_state` says, as far as a test asks for it. `state` is Kafka's name of one."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]


class Barriers(Protocol):
    """Places in the work of coordinators at which a test may have it wait, or fail. Each waits for answers alone."""

    def before_move(self, move: TransactionMove) -> Waiting[KafkaError | None]:
        """A record of `__transaction_state` is about to be written; with an error it isn't."""
        ...

    def behind_move(self, move: TransactionMove) -> Waiting[None]:
        """It is committed, and nobody was told."""
        ...

    def before_generation(self, group_id: str) -> Waiting[None]:
        """The members of a classic group have joined, or were waited for long enough."""
        ...

    def before_loading(self, topic: str, partition: int) -> Waiting[None]:
        """A partition of an internal topic came to be led here, and isn't read yet."""
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
    """What a client is told where the coordinator's own append failed so.

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
    """How long things of one kind took."""

    def add(self, took_ms: float) -> None: ...


class TransactionCounts(Protocol):
    """What transactions came to, for whoever watches. All shards of a node share one object, so that nothing is lost
    when a partition is led elsewhere. Each transaction costs some additions, whether anybody looks or not."""

    ended: dict[EndedBy, int]
    """Whose Prepare* is committed."""
    retried_markers: int
    """Markers that were sent again."""
    given_up: int
    """Completions that ended at a leader's word that somebody else is in charge."""

    @property
    def durations(self) -> Times:
        """From a transaction's first partition to its Complete*."""

    @property
    def fan_outs(self) -> Times:
        """From Prepare* to Complete*: the time that the markers take."""
