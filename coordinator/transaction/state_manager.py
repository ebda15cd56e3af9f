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
from dataclasses import dataclass

from coordinator.commit_waiters import Gate
from coordinator.ports import CoordinatorRecord, Runtime, WhenCommitted
from coordinator.transaction.records import UnknownVersion, decode_record, encode_key, encode_value
from coordinator.transaction.states import DEAD, STATE_NAMES, TransactionState
from coordinator.transaction.transaction_metadata import TransactionMetadata, TransitMetadata
from protocol.errors import Error, KafkaError, cannot_apply
from protocol.wire.primitives import Bytes

log = logging.getLogger("barnabas.transactions")


class TransactionStateManager:
    """Knows the transactional ids, and changes them by records."""

    __slots__ = ("_gate", "_is_certain", "runtime", "transaction_version", "transactions")

    def __init__(self, runtime: Runtime, transaction_version: Callable[[], int]) -> None:
        """`transaction_version` is the cluster's level of that feature, at each moment."""
        self.runtime = runtime
        self.transaction_version = transaction_version
        self.transactions: dict[str, TransactionMetadata] = {}
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

    def loaded(self, end_offset: int, then: WhenCommitted) -> None:
        """Everything is replayed up to this offset; `then` is called once that is committed, or can't be any more."""
        if end_offset:
            self._gate.appended(end_offset)
        self._is_certain = False

        def certain(error: KafkaError | None) -> None:
            self._is_certain = error is None
            then(error)

        self._gate.when_committed(certain)

    def when_certain(self, then: WhenCommitted) -> None:
        """`then` once what was replayed is committed: what the next leader may not have isn't to be told, or a client
        goes on as if it were so. (Kafka's coordinator tells it.)"""
        if self._is_certain:
            then(None)
        else:
            self._gate.when_committed(then)

    # ---- moves

    def commit(self, metadata: TransactionMetadata, transit: TransitMetadata, then: WhenCommitted) -> None:
        """Log a proposal, and apply it once its record is committed.

        `then` is given None after that. Where the proposal makes no sense, or can't be logged, it is taken back, and
        `then` is given the error for the client.
        """
        try:
            metadata.propose(transit.state, transit.producer_epoch)
        except KafkaError as error:
            then(error.as_value())
        else:
            self.log(metadata, transit, then)

    def log(
        self,
        metadata: TransactionMetadata,
        transit: TransitMetadata,
        then: WhenCommitted,
        *,
        retried: Container[Error] = (),
    ) -> None:
        """Log what was proposed, and apply it once its record is committed. With an error it is taken back, but for
        those that are `retried`: with these it is pending still. Who retries has to go on as well where this raises.
        """
        try:
            value = encode_value(transit, self.transaction_version())
            self._gate.append(((encode_key(metadata.transactional_id), value),))
        except KafkaError as error:
            if error.error not in retried:
                metadata.take_back()
            then(error.as_value())
            return
        except BaseException:  # what nobody thought of must not leave it pending for ever
            if not retried:
                metadata.take_back()
            raise
        if self._gate.is_open:  # as on one node: nothing is made that would wait
            _apply_written(metadata, transit)
            then(None)
            return

        def committed(error: KafkaError | None) -> None:
            if error is None:
                _apply_written(metadata, transit)
            elif error.error not in retried:
                metadata.take_back()
            then(error)

        self._gate.when_committed(committed)

    def bury(self, batch: Sequence[TransactionMetadata], then: WhenCommitted) -> None:
        """Forget transactional ids, with a tombstone each in one batch, once that is committed."""
        records: list[CoordinatorRecord] = [(encode_key(each.transactional_id), None) for each in batch]
        for metadata in batch:
            metadata.bury()

        def committed(error: KafkaError | None) -> None:
            for metadata in batch:
                if error is None:
                    self.transactions.pop(metadata.transactional_id, None)
                else:
                    metadata.take_back()
            then(error)

        try:
            self._gate.append(records)
        except KafkaError as error:
            committed(error.as_value())
        except BaseException:  # what nobody thought of must not leave them pending for ever
            for metadata in batch:
                metadata.take_back()
            raise
        else:
            self._gate.when_committed(committed)

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
