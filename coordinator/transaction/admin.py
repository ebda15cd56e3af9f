"""Looking inside: DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152).

Source: `TransactionCoordinator.handleDescribeTransactions`, `TransactionStateManager.listTransactionStates`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from coordinator.transaction.state_manager import TransactionStateManager
from coordinator.transaction.states import DEAD, STATE_NAMES, TransactionState
from coordinator.transaction.transaction_metadata import TransactionMetadata
from protocol.errors import Error, KafkaError

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


def describe(manager: TransactionStateManager, transactional_id: str) -> TransactionMetadata:
    """See `TransactionShard.describe`."""
    if not transactional_id:
        raise KafkaError(Error.INVALID_REQUEST)
    metadata = manager.transactions.get(transactional_id)
    if metadata is None or metadata.state is DEAD:
        raise KafkaError(Error.TRANSACTIONAL_ID_NOT_FOUND)
    return metadata
