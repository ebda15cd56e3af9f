"""Who asks a transaction coordinator for something.

Apart from the transactions themselves: who appends to a partition names a producer, transactional or not.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


@dataclass(slots=True)
class TransactionalProducer:
    """Who asks."""

    transactional_id: str
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
