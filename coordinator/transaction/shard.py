"""The transaction coordinator of one partition of `__transaction_state`: what clients and the broker ask of it.

`state_manager.py` knows the transactional ids and moves them by records. Above it are `init_producer_id.py`, for what
comes before a transaction's records, `end_transaction.py`, for what comes behind them, and `expiry.py`.
Source: `TransactionCoordinator`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from coordinator.ports import Markers, Runtime, WhenCommitted
from coordinator.settings import TransactionSettings
from coordinator.transaction.end_transaction import Completing, Ending
from coordinator.transaction.expiry import TransactionExpiry
from coordinator.transaction.init_producer_id import Initializing, add_partitions, verify_partitions
from coordinator.transaction.producer_ids import TransactionalProducer
from coordinator.transaction.records import is_of_known_version
from coordinator.transaction.state_manager import TransactionFilter, TransactionStateManager
from coordinator.transaction.states import DEAD
from coordinator.transaction.transaction_metadata import Reply, TransactionMetadata, TransitMetadata
from protocol.errors import Error, KafkaError
from protocol.topic_partition import TopicPartition
from protocol.wire.primitives import Bytes


class TransactionShard:
    """One shard, of one thread.

    What changes something answers by a callback, which is called exactly once: in the same call where the partition's
    log is committed as it is written, else later. Readers are told what is committed, at once, with the exceptions that
    `TransactionMetadata` names.
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
    ) -> None:
        """`next_producer_id` raises KafkaError where none is to be had; `transaction_version` is the cluster's level
        of that feature, at each moment; `coordinator_epoch` the leader epoch of the shard's partition."""
        self.runtime = runtime
        self.coordinator_epoch = coordinator_epoch
        self._manager = TransactionStateManager(runtime, transaction_version)
        self.completing = Completing(self._manager, markers, settings, coordinator_epoch)
        ending = Ending(self._manager, self.completing, next_producer_id)
        self._ending = ending
        self._initializing = Initializing(self._manager, ending, settings, next_producer_id)
        self.expiry = TransactionExpiry(self._manager, ending, settings)

    @property
    def transactions(self) -> dict[str, TransactionMetadata]:
        """The transactional ids. Not to be changed."""
        return self._manager.transactions

    # ---- what clients ask

    def init_producer_id(
        self,
        producer: TransactionalProducer,
        *,
        timeout_ms: int,
        reply: Reply,
        enable_2pc: bool = False,
        keep_prepared_txn: bool = False,
    ) -> None:
        """Answer who the producer is from now on.

        A producer id and an epoch, both or neither: a producer that goes on after an error (KIP-360); one without the
        other is INVALID_REQUEST, which the handler answers.

        Errors: INVALID_REQUEST (an empty id), TRANSACTIONAL_ID_AUTHORIZATION_FAILED (two-phase commit is switched off),
        UNSUPPORTED_VERSION (keep_prepared_txn; level 0), INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS (also where it aborted what was open: ask again), UNKNOWN_SERVER_ERROR (the epochs are
        used up, and the one given isn't the current one); the log's, `append_error`.
        """
        try:
            timeout_ms = self._initializing.check(
                producer.transactional_id,
                timeout_ms,
                enable_2pc=enable_2pc,
                keep_prepared_txn=keep_prepared_txn,
            )
        except KafkaError as refused:
            reply(refused.as_value())
            return
        self._initializing.init_producer_id(producer, timeout_ms, reply)
        self.expiry.tick()

    def add_partitions(
        self,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
        *,
        client_transaction_version: int,
        then: WhenCommitted,
    ) -> None:
        """Add partitions; the first ones begin the transaction, and so do none.

        `client_transaction_version`: 0 for AddPartitionsToTxn v0 to v3 and for AddOffsetsToTxn, 2 for what came later.

        Errors: INVALID_REQUEST (an empty id), INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED,
        UNSUPPORTED_VERSION (version 2 at level 0); the log's, `append_error`.
        """
        add_partitions(self._manager, producer, partitions, client_transaction_version, then=then)

    def verify_partitions(
        self, producer: TransactionalProducer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Error]:
        """Whether partitions are in the transaction: NONE or TRANSACTION_ABORTABLE each, or one error for all of them.

        INVALID_REQUEST (an empty id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS. What is
        pending isn't looked at (KAFKA-14904): the append to the partition is checked once more. Others are
        told of it by `verify_when_certain`.
        """
        return verify_partitions(self._manager, producer, partitions)

    def verify_when_certain(
        self,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
        then: Callable[[dict[TopicPartition, Error]], None],
    ) -> None:
        """`verify_partitions`, as others may know it: `then` is told at once, or as `when_certain` says."""

        def certain(lost: KafkaError | None) -> None:
            if lost is None:
                then(self.verify_partitions(producer, partitions))
            else:
                then(dict.fromkeys(partitions, lost.error))

        self.when_certain(certain)

    def when_certain(self, then: WhenCommitted) -> None:
        """`then` once all that the shard was loaded with is committed: in this call where it is. It is given
        NOT_COORDINATOR where that isn't known any more."""
        self._manager.when_certain(then)

    def end_txn(
        self, producer: TransactionalProducer, *, commit: bool, client_transaction_version: int, reply: Reply
    ) -> None:
        """Commit or abort. It is so from the moment of the answer; the markers may still be on their way.

        `client_transaction_version`: 0 for EndTxn v0 to v4, whose answer is −1 and −1; 2 from v5 on, whose answer is
        what the producer has to use next.

        Errors: INVALID_REQUEST (an empty id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
        INVALID_TXN_STATE, UNSUPPORTED_VERSION (v5 at level 0), UNKNOWN_SERVER_ERROR (a commit at epoch 32767); those of
        the log (`append_error`) and of a new producer id.
        """
        self._ending.end_txn(producer, commit, client_transaction_version, reply)

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
        return wanted.passes(metadata, self._manager.runtime.now_ms())

    # ---- what the broker asks

    def apply(self, transactional_id: str, transit: TransitMetadata | None) -> None:
        """Change what is known by one record of the log; None is a tombstone."""
        self._manager.apply(transactional_id, transit)

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
        self._manager.loaded(end_offset, self._resume)
        self.expiry.tick()

    def _resume(self, error: KafkaError | None) -> None:
        if error is None:
            self.completing.resume()

    def unload(self) -> None:
        """The partition is led elsewhere, or gone: nothing more is written, answers of markers are ignored, and who
        waits is told NOT_COORDINATOR."""
        self.completing.stop()
        self._manager.close()
        self.expiry.stop()
