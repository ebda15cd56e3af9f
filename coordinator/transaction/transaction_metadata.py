"""What is known of one transactional id, and the proposals of what it is to become.

Source: `TransactionMetadata`, `TxnTransitMetadata`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.transaction.states import (
    AWAITS_MARKERS,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    ENTERED_FROM,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from protocol.errors import Error, KafkaError
from protocol.records.batch import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from protocol.topic_partition import TopicPartition

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


Reply = Callable[[ProducerIdAndEpoch | KafkaError], None]
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
