"""The transactional ids of one partition of `__transaction_state`, and how its records make them.

Decide → append → apply: a request is answered by a proposal (`TransitMetadata`), which goes through `commit`; `apply`
alone changes durable state. A start replays the log through the same `apply`, then calls `start`.
Source: `TransactionCoordinator`, `TransactionStateManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ClassVar

from coordinator.ports import Bytes, Markers, Runtime
from coordinator.transaction import adding, admin, completing, ending, expiry, init_producer_id
from coordinator.transaction.metadata import TransactionMetadata, TransitMetadata
from coordinator.transaction.records import UnknownVersion, decode_record, encode_key, encode_value
from coordinator.transaction.settings import TransactionSettings

log = logging.getLogger("barnabas.transactions")


class TransactionShard:
    """One shard, of one thread. Who asks for a transactional id finds it here, or it is INVALID_PRODUCER_ID_MAPPING."""

    last_record_counts: ClassVar[bool] = True

    def __init__(
        self,
        runtime: Runtime,
        markers: Markers,
        next_producer_id: Callable[[], int],
        settings: TransactionSettings,
        transaction_version: Callable[[], int],
        coordinator_epoch: int,
    ) -> None:
        """`next_producer_id` raises KafkaError where none is to be had; `transaction_version` is the cluster's level
        of that feature, at each moment; `coordinator_epoch` the leader epoch of the shard's partition."""
        self.runtime = runtime
        self.markers = markers
        self.next_producer_id = next_producer_id
        self.settings = settings
        self.transaction_version = transaction_version
        self.coordinator_epoch = coordinator_epoch
        self.transactions: dict[str, TransactionMetadata] = {}
        self.completions: dict[str, completing.Completion] = {}
        """By transactional id: Prepare* is logged, and Complete* not yet."""
        self.is_ticking = False

    # ---- what it does, each verb in its own room

    init_producer_id = init_producer_id.init_producer_id
    add_partitions = adding.add_partitions
    verify_partitions = adding.verify_partitions
    end_txn = ending.end_txn
    describe = admin.describe
    list = admin.list_transactions

    # ---- records

    def create(self, transactional_id: str, timeout_ms: int) -> TransactionMetadata:
        """An id that nobody used before: Empty, with a producer id and no epoch. Raises KafkaError without an id."""
        metadata = TransactionMetadata(
            transactional_id, self.next_producer_id(), timeout_ms, self.runtime.now_ms()
        )
        self.transactions[transactional_id] = metadata
        expiry.tick(self)
        return metadata

    def commit(self, metadata: TransactionMetadata, transit: TransitMetadata) -> None:
        """Append the proposal and apply it. Raises KafkaError where it can't be written: nothing is changed then."""
        metadata.propose(transit.state, transit.producer_epoch)
        try:
            self.append(metadata, transit)
        except BaseException:
            metadata.pending_state = None
            raise

    def append(self, metadata: TransactionMetadata, transit: TransitMetadata) -> None:
        """Append what was proposed, and apply it. Raises KafkaError; it is pending still then."""
        value = encode_value(transit, self.transaction_version())
        self.runtime.append(((encode_key(metadata.transactional_id), value),))
        metadata.apply(transit)

    def apply(self, transactional_id: str, transit: TransitMetadata | None) -> None:
        """Change the durable state by one record of the log; None is a tombstone."""
        if transit is None:
            self.transactions.pop(transactional_id, None)
            return
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            metadata = TransactionMetadata(transactional_id, transit.producer_id, 0, 0)
            self.transactions[transactional_id] = metadata
        metadata.apply(transit)

    def replay(self, key: Bytes, value: Bytes | None, record_offset: int, producer_id: int) -> None:
        """One record of the log, at start; a version that Kafka doesn't know is passed over, as it does.

        Raises CodecError for one that makes no sense. Kafka logs an error then and goes on with what it had read so
        far, so that a prepared transaction further on would hang: don't serve a partition that can't be read.
        """
        try:
            transactional_id, transit = decode_record(key, value)
        except UnknownVersion as unknown:
            log.warning("the record at offset %d has %s; it stays in the log", record_offset, unknown)
            return
        self.apply(transactional_id, transit)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A marker in the shard's own partition: nobody has transactions there, and it would mean nothing."""

    # ---- start and end

    def start(self) -> None:
        """Everything is replayed: what was prepared is driven on, and time runs."""
        for metadata in [*self.transactions.values()]:
            completing.resume(self, metadata)
        expiry.tick(self)

    def unload(self) -> None:
        """The partition is led elsewhere, or gone: nothing more is written, and answers of markers are ignored."""
        self.completions.clear()
        self.transactions.clear()
        expiry.stop(self)
