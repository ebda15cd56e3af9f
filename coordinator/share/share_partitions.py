"""The share partitions of one partition of `__share_group_state`: as its records make them, and what is decided of
each.

Nothing but records changes them: what is decided is written, and then applied here; a start replays the log through
the same `apply`. A request about one of them is checked in Kafka's order and made a record where it changes something.
Errors, in this order, as KafkaError: INVALID_REQUEST (a partition or an epoch below 0; what has to be initialized first
and isn't; batches that make no sense), FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.

Source: `ShareCoordinatorShard`, `ShareCoordinatorOffsetsManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from coordinator.persister import NO_START_OFFSET, ShareState, ShareStateSummary, StateBatch
from coordinator.share.records import ShareRecord
from coordinator.share.share_group_offset import ShareGroupOffset, begin_and_end_in_order, combined
from coordinator.share.share_partition_key import SharePartitionKey
from protocol.errors import Error, KafkaError


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


# --- what is decided; nothing is changed here -----------------------------------------------------------------

PartitionCountOf = Callable[[bytes], int]
"""How many partitions a topic has, by its id; 0 where it isn't in the metadata."""

MOST_BATCHES = 50_000
"""Of one write, and of a share partition. A record of so many has more bytes than a batch may have by default, so that
no snapshot could be written; Kafka puts together any number of them first."""


class Write(NamedTuple):
    """What is written of a share partition."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


class Decisions:
    """Over the share partitions of one shard."""

    def __init__(
        self, known: SharePartitions, partition_count_of: PartitionCountOf, now_ms: Callable[[], int]
    ) -> None:
        self._known = known
        self._partition_count_of = partition_count_of
        self._now_ms = now_ms

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> ShareRecord:
        """Begin anew, whatever there is."""
        _check_not_negative(key, state_epoch=state_epoch)
        known = self._known.get(key)
        if known is not None:
            _check_state_epoch(known, state_epoch)
        self._check_topic(key)
        now_ms = self._now_ms()
        return ShareRecord(
            key,
            ShareGroupOffset(
                snapshot_epoch=0 if known is None else known.state.snapshot_epoch + 1,
                state_epoch=state_epoch,
                start_offset=start_offset,
                delivery_complete_count=-1 if start_offset == NO_START_OFFSET else 0,
                create_timestamp=now_ms,
                write_timestamp=now_ms,
            ),
        )

    def read(self, key: SharePartitionKey, leader_epoch: int) -> tuple[ShareState, ShareRecord | None]:
        """What is there, and the record of a leader that asks for the first time."""
        _check_not_negative(key, leader_epoch)
        known = self._initialized(key)
        _check_leader_epoch(known, leader_epoch)
        self._check_topic(key)
        state = known.state
        found = ShareState(state.state_epoch, state.start_offset, state.state_batches)
        if leader_epoch == known.leader_epoch:
            return found, None
        write = Write(state.state_epoch, leader_epoch, state.start_offset, state.delivery_complete_count, ())
        return found, self._written(key, known, write, leader_epoch)

    def write(self, key: SharePartitionKey, write: Write) -> ShareRecord:
        """Raises KafkaError: INVALID_REQUEST, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION."""
        _check_not_negative(key, write.leader_epoch, write.state_epoch)
        known = self._initialized(key)
        _check_leader_epoch(known, write.leader_epoch)
        _check_state_epoch(known, write.state_epoch)
        self._check_topic(key)
        if len(write.batches) > MOST_BATCHES or not begin_and_end_in_order(write.batches):
            raise KafkaError(Error.INVALID_REQUEST, "The state batches make no sense, or are too many.")
        so_far = known.state.state_batches
        if len(so_far) + len(write.batches) > MOST_BATCHES:
            start_offset = max(write.start_offset, known.state.start_offset)
            together = combined(so_far, write.batches, start_offset)
            if len(together) > MOST_BATCHES:
                raise KafkaError(
                    Error.INVALID_REQUEST, f"The share partition has {len(so_far)} state batches already."
                )
        return self._written(key, known, write, known.state.leader_epoch)

    def delete(self, key: SharePartitionKey) -> ShareRecord | None:
        """None where there is nothing to delete."""
        _check_not_negative(key)
        self._check_topic(key)
        return ShareRecord(key, None) if key in self._known else None

    def summarize(self, key: SharePartitionKey) -> ShareStateSummary:
        """The default values where it isn't initialized."""
        _check_not_negative(key)
        self._check_topic(key)
        known = self._known.get(key)
        if known is None:
            return ShareStateSummary()
        state = known.state
        return ShareStateSummary(
            state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count
        )

    def _written(
        self, key: SharePartitionKey, known: KnownSharePartition, write: Write, leader_epoch: int
    ) -> ShareRecord:
        """An update, or a snapshot where there are many updates by now. The start never moves back, and the count goes
        with it."""
        state = known.state
        start_offset = max(write.start_offset, state.start_offset)
        complete = write.delivery_complete_count
        if write.start_offset < state.start_offset:
            complete = state.delivery_complete_count
        elif write.start_offset == state.start_offset:
            complete = max(complete, state.delivery_complete_count)
        if not self._known.needs_snapshot(known):
            update = ShareGroupOffset(
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=complete,
                state_batches=combined((), write.batches, start_offset),
            )
            return ShareRecord(key, update, is_update=True)
        now_ms = self._now_ms()
        return ShareRecord(
            key,
            ShareGroupOffset(
                snapshot_epoch=state.snapshot_epoch + 1,
                state_epoch=state.state_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=complete,
                state_batches=combined(state.state_batches, write.batches, start_offset),
                create_timestamp=now_ms,
                write_timestamp=now_ms,
            ),
        )

    def _initialized(self, key: SharePartitionKey) -> KnownSharePartition:
        known = self._known.get(key)
        if known is None:
            raise KafkaError(Error.INVALID_REQUEST, "The share partition hasn't been initialized.")
        return known

    def _check_topic(self, key: SharePartitionKey) -> None:
        if key.partition >= self._partition_count_of(key.topic_id):
            raise KafkaError(
                Error.UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic, or no such partition of it."
            )


def _check_not_negative(key: SharePartitionKey, leader_epoch: int = 0, state_epoch: int = 0) -> None:
    if key.partition < 0:
        raise KafkaError(Error.INVALID_REQUEST, "The index of a partition can't be negative.")
    if leader_epoch < 0:  # KAFKA-20743
        raise KafkaError(Error.INVALID_REQUEST, "The leader epoch cannot be a negative number.")
    if state_epoch < 0:
        raise KafkaError(Error.INVALID_REQUEST, "The state epoch cannot be a negative number.")


def _check_leader_epoch(known: KnownSharePartition, leader_epoch: int) -> None:
    if known.leader_epoch > leader_epoch:
        raise KafkaError(Error.FENCED_LEADER_EPOCH, f"Leader epoch {known.leader_epoch} was seen already.")


def _check_state_epoch(known: KnownSharePartition, state_epoch: int) -> None:
    seen = known.state_epoch
    if seen is not None and seen > state_epoch:
        raise KafkaError(Error.FENCED_STATE_EPOCH, f"State epoch {seen} was seen already.")
