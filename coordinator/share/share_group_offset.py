"""What is durable of one share partition, as a snapshot with the updates since (Kafka: `ShareGroupOffset`)."""

from __future__ import annotations

from typing import NamedTuple

from coordinator.persister import NO_COMPLETE_COUNT, NO_START_OFFSET, StateBatch
from coordinator.share.state_batches import combined


class ShareGroupOffset(NamedTuple):
    """Timestamps in ms since the epoch. `create_timestamp` is when somebody last changed the state by a snapshot; the
    two differ where it was only written down again."""

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_COMPLETE_COUNT
    state_batches: tuple[StateBatch, ...] = ()
    create_timestamp: int = 0
    write_timestamp: int = 0

    def updated(self, update: ShareGroupOffset) -> ShareGroupOffset:
        """With an update over it, whose epochs and start are -1 where they stay."""
        start_offset = update.start_offset
        if start_offset == NO_START_OFFSET:
            start_offset = self.start_offset
        return self._replace(
            leader_epoch=self.leader_epoch if update.leader_epoch == -1 else update.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=combined(self.state_batches, update.state_batches, start_offset),
        )
