"""The share partitions of one partition of `__share_group_state`, as its records make them.

Nothing else changes them: what is decided is written, and then applied here; a start replays the log through the same
`apply`. Source: `ShareCoordinatorShard.replay`, `ShareCoordinatorOffsetsManager`.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.share.records import ShareRecord
from coordinator.share.share_group_offset import ShareGroupOffset
from coordinator.share.share_partition_key import SharePartitionKey


class KnownSharePartition:
    """One of them. The epochs are the highest that were seen, which the last record need not have."""

    __slots__ = ("leader_epoch", "state", "state_epoch", "updates")

    def __init__(self, state: ShareGroupOffset, *, updates: int, state_epoch: int | None) -> None:
        self.state = state
        self.leader_epoch = state.leader_epoch
        self.state_epoch = state_epoch
        """None where no snapshot has told it."""
        self.updates = updates
        """Since there were last so many that a snapshot took their place."""


class SharePartitions:
    """By their keys."""

    def __init__(self, updates_per_snapshot: int) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self._known: dict[SharePartitionKey, KnownSharePartition] = {}
        self._of_topic: dict[bytes, dict[SharePartitionKey, None]] = {}
        self._snapshot_offsets: dict[SharePartitionKey, int] = {}
        """Where the last snapshot of each is, in the order of offsets."""
        self._redundant_before: int | None = None

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: SharePartitionKey) -> bool:
        return key in self._known

    def get(self, key: SharePartitionKey) -> KnownSharePartition | None:
        return self._known.get(key)

    def keys(self) -> list[SharePartitionKey]:
        return [*self._known]

    def of_topic(self, topic_id: bytes) -> Iterable[SharePartitionKey]:
        return [*self._of_topic.get(topic_id, ())]

    def states(self) -> Iterable[ShareGroupOffset]:
        return (known.state for known in self._known.values())

    @property
    def redundant_before(self) -> int | None:
        """Every record below this offset was overtaken by a later one; None where that isn't known, or is none."""
        return self._redundant_before or None

    def needs_snapshot(self, known: KnownSharePartition) -> bool:
        """Whether so many updates follow the last snapshot that the next write is one."""
        return known.updates >= self._updates_per_snapshot

    def apply(self, record: ShareRecord, record_offset: int) -> None:
        """Change what is known by one record of the log."""
        key, state, is_update = record
        if state is None:
            self._forget(key)
            self._snapshot_is_at(key, record_offset)
            del self._snapshot_offsets[key]
        elif is_update:
            self._update(key, state)
        else:
            self._take_snapshot(key, state)
            self._snapshot_is_at(key, record_offset)

    def clear(self) -> None:
        """They are coordinated elsewhere."""
        self._known.clear()
        self._of_topic.clear()
        self._snapshot_offsets.clear()

    def _forget(self, key: SharePartitionKey) -> None:
        if self._known.pop(key, None) is not None:
            of_topic = self._of_topic[key.topic_id]
            del of_topic[key]
            if not of_topic:
                del self._of_topic[key.topic_id]

    def _add(self, key: SharePartitionKey, known: KnownSharePartition) -> None:
        self._known[key] = known
        self._of_topic.setdefault(key.topic_id, {})[key] = None

    def _take_snapshot(self, key: SharePartitionKey, state: ShareGroupOffset) -> None:
        known = self._known.get(key)
        if known is None:
            self._add(key, KnownSharePartition(state, updates=0, state_epoch=state.state_epoch))
            return
        known.state = state
        known.leader_epoch = max(known.leader_epoch, state.leader_epoch)
        seen = known.state_epoch
        known.state_epoch = state.state_epoch if seen is None else max(seen, state.state_epoch)
        if self.needs_snapshot(known):
            known.updates = 0

    def _update(self, key: SharePartitionKey, update: ShareGroupOffset) -> None:
        known = self._known.get(key)
        if known is None:  # its snapshot is lost: Kafka goes on with what the update says
            self._add(key, KnownSharePartition(update, updates=1, state_epoch=None))
            return
        known.leader_epoch = max(known.leader_epoch, update.leader_epoch)
        known.state = known.state.updated(update)
        known.updates += 1

    def _snapshot_is_at(self, key: SharePartitionKey, record_offset: int) -> None:
        offsets = self._snapshot_offsets
        offsets.pop(key, None)
        offsets[key] = record_offset  # behind all others, as offsets grow
        self._redundant_before = next(iter(offsets.values()))
