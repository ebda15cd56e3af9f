"""What is known of one transactional id, and a proposal of what it is to become.

Source: `TransactionMetadata`, `TxnTransitMetadata`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.ports import TopicPartition
from coordinator.transaction.states import EMPTY, ENTERED_FROM, TransactionState
from protocol.errors import Error, KafkaError
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP

MAX_EPOCH = 32_767
EXHAUSTED_EPOCH = MAX_EPOCH - 1
"""A producer never gets a higher epoch: the last one is kept for fencing it."""

NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a transaction that takes part in a two-phase commit: it has none."""

Partitions = dict[TopicPartition, None]
"""A set that keeps the order of adding."""


class ProducerIdAndEpoch(NamedTuple):
    """Who a producer is from now on; −1 and −1 where the answer doesn't say."""

    producer_id: int
    producer_epoch: int


class TransitMetadata(NamedTuple):
    """What a transactional id is to become: what goes into its record (Kafka: `TxnTransitMetadata`)."""

    state: TransactionState
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    last_producer_epoch: int  # in no record
    timeout_ms: int
    partitions: Partitions
    start_timestamp_ms: int
    last_update_timestamp_ms: int
    client_transaction_version: int


@dataclass(slots=True)
class TransactionMetadata:
    """One transactional id. All but the last two fields are changed by `apply` alone."""

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
    partitions: Partitions = field(default_factory=dict)
    """In Prepare*: those that still await their marker."""
    start_timestamp_ms: int = NO_TIMESTAMP
    client_transaction_version: int = 0
    pending_state: TransactionState | None = None
    """It is moving there: an append is under way, or markers are. Whoever comes meanwhile has to come again."""
    has_failed_epoch_fence: bool = False
    """The epoch was bumped to fence the producer, and that couldn't be logged: the next try takes the same epoch."""

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= EXHAUSTED_EPOCH

    def as_transit(self) -> TransitMetadata:
        """Itself as a proposal, for `_replace`. The producer id before this record is the one that it has now."""
        return TransitMetadata(
            self.state,
            self.producer_id,
            self.producer_id,
            self.next_producer_id,
            self.producer_epoch,
            self.last_producer_epoch,
            self.timeout_ms,
            self.partitions,
            self.start_timestamp_ms,
            self.last_update_timestamp_ms,
            self.client_transaction_version,
        )

    def propose(self, state: TransactionState, producer_epoch: int) -> None:
        """The move is under way from here on. Raises KafkaError (UNKNOWN_SERVER_ERROR) where it makes no sense, as
        Kafka's `prepareTransitionTo` raises IllegalStateException."""
        if self.pending_state is not None or self.state not in ENTERED_FROM[state]:
            raise KafkaError(
                Error.UNKNOWN_SERVER_ERROR,
                f"{self.transactional_id} can't go from {self.state!r} to {state!r}, pending {self.pending_state!r}",
            )
        if not 0 <= producer_epoch <= MAX_EPOCH:
            raise KafkaError(
                Error.UNKNOWN_SERVER_ERROR, f"no epoch is left of producer id {self.producer_id}"
            )
        self.pending_state = state

    def apply(self, transit: TransitMetadata) -> None:
        """Become what the record says."""
        (
            self.state,
            self.producer_id,
            self.previous_producer_id,
            self.next_producer_id,
            self.producer_epoch,
            self.last_producer_epoch,
            self.timeout_ms,
            self.partitions,
            self.start_timestamp_ms,
            self.last_update_timestamp_ms,
            self.client_transaction_version,
        ) = transit
        self.pending_state = None
