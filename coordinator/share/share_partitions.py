"""The share partitions of one partition of `__share_group_state`, built from its records, and decisions about them.

Only records change them. A decision is written, and then applied here. At a start the log is replayed through the
same `apply`. A request for a share partition is checked in Kafka's order, and becomes a record if it changes
something. Errors, in this order, as KafkaError: INVALID_REQUEST (a partition or an epoch below 0; not initialized
although it has to be; invalid batches), FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.

Source: `ShareCoordinatorShard`, `ShareCoordinatorOffsetsManager`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from coordinator.persister import (
    NO_COMPLETE_COUNT,
    NO_START_OFFSET,
    ShareState,
    ShareStateSummary,
    StateBatch,
)
from coordinator.ports import CoordinatorRecord
from coordinator.share.share_partition_key import SharePartitionKey
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from protocol.messages.share_state import StateBatch as RecordedBatch
from protocol.wire.codec import decode, encode
from protocol.wire.primitives import Bytes

# --------------------------------------------------------------------------------------------------------------
# The durable state of one share partition: a snapshot with the updates since (Kafka: `ShareGroupOffset`).
#
# State batches are merged: for each offset the higher delivery count wins; if they are equal, the higher
# state. So a state only moves forward, in whatever order the writes of a share partition arrive. Source:
# `PersisterStateBatchCombiner`.
# --- merging state batches --------------------------------------------------------------------------------------

_Piece = tuple[int, int, int, int]
"""First and last offset, delivery count, delivery state: the order in which they are merged."""

_FIRST_OFFSET, _LAST_OFFSET = attrgetter("first_offset"), attrgetter("last_offset")


def combined(
    so_far: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Merge both, without anything below the start: in the order of offsets, without overlaps.

    Adjacent batches in the same state are joined. No batch may end before it begins; Kafka fails on those.
    Batches that `new` neither overlaps nor touches stay as they are, if they come from here: a share
    partition may have tens of thousands, and most writes only concern the last ones.
    """
    so_far, new = _cut(so_far, start_offset), _cut(new, start_offset)
    if not new and len(so_far) < 2:
        return tuple(so_far)
    if not _is_merged(so_far):
        return tuple(_merged([*so_far, *new]))
    if not new:
        return tuple(so_far)
    first = min([batch.first_offset for batch in new])
    last = max([batch.last_offset for batch in new])
    from_here = bisect_left(so_far, first - 1, key=_LAST_OFFSET)
    to_here = max(bisect_right(so_far, last + 1, key=_FIRST_OFFSET), from_here)
    return (
        *so_far[:from_here],
        *_merged([*so_far[from_here:to_here], *new]),
        *so_far[to_here:],
    )


def begin_and_end_in_order(batches: Sequence[StateBatch]) -> bool:
    """True if no batch ends before it begins."""
    return all(batch.first_offset <= batch.last_offset for batch in batches)


def _is_merged(batches: Sequence[StateBatch]) -> bool:
    """True if they are in the order of offsets, without overlaps, and no adjacent ones are in the same state."""
    behind, before = None, None
    for first, last, state, count in batches:
        if behind is not None and first <= behind and (first < behind or (state, count) == before):
            return False
        behind, before = last + 1, (state, count)
    return True


def _cut(batches: Sequence[StateBatch], start_offset: int) -> Sequence[StateBatch]:
    if start_offset == NO_START_OFFSET:
        return batches
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def _merged(batches: list[StateBatch]) -> list[StateBatch]:
    """Merge in one pass over the offsets."""
    if _is_merged(batches):
        return batches
    coming = sorted([(first, last, count, state) for first, last, state, count in batches], reverse=True)
    # the highest first: count and state, both negative, and last offset
    here: list[tuple[int, int, int]] = []
    done: list[_Piece] = []
    at = 0
    while coming or here:
        if not here:
            at = coming[-1][0]
        while coming and coming[-1][0] <= at:
            _, last, count, state = coming.pop()
            heappush(here, (-count, -state, last))
        while here and here[0][2] < at:
            heappop(here)
        if not here:
            continue
        count, state, last = -here[0][0], -here[0][1], here[0][2]
        if coming:
            last = min(last, coming[-1][0] - 1)
        if done and done[-1][1:] == (at - 1, count, state):
            done[-1] = (done[-1][0], last, count, state)
        else:
            done.append((at, last, count, state))
        at = last + 1
    return [StateBatch(first, last, state, count) for first, last, count, state in done]


# --- the state ------------------------------------------------------------------------------------------------


class ShareGroupOffset(NamedTuple):
    """The durable state of a share partition. Timestamps are in ms since the epoch.

    `create_timestamp` is the time of the snapshot that last changed the state. `write_timestamp` differs from
    it if the state was only rewritten.
    """

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_COMPLETE_COUNT
    state_batches: tuple[StateBatch, ...] = ()
    create_timestamp: int = 0
    write_timestamp: int = 0

    def updated(self, update: ShareGroupOffset) -> ShareGroupOffset:
        """The state with an update applied. Epochs and the start offset are -1 if the update doesn't change them."""
        start_offset = update.start_offset
        if start_offset == NO_START_OFFSET:
            start_offset = self.start_offset
        return self._replace(
            leader_epoch=self.leader_epoch if update.leader_epoch == -1 else update.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=combined(self.state_batches, update.state_batches, start_offset),
        )


# --- The records of `__share_group_state`, and their encoding -------------------------------------------------
#
# Source: `ShareCoordinatorRecordHelpers`, `ShareCoordinatorRecordSerde`.

HIGHEST_SNAPSHOT_EPOCH = 2**31 - 2**16
"""The highest snapshot epoch that is read. Nobody takes so many snapshots. Soon after it the next one
wouldn't fit in its record."""

_INT16 = Struct(">h")
_SNAPSHOT = ShareSnapshotKey.API_KEY
_UPDATE = ShareUpdateKey.API_KEY
_VERSION = 0


class ShareRecord(NamedTuple):
    """A snapshot, or an update of the last one. Without a state, the share partition is deleted."""

    key: SharePartitionKey
    state: ShareGroupOffset | None
    is_update: bool = False


@lru_cache(1024)  # a share partition is written to again and again
def _encode_key(key: SharePartitionKey, is_update: bool) -> bytes:
    group_id, topic_id, partition = key
    if is_update:
        update = ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition)
        return _INT16.pack(_UPDATE) + encode(update, 0)
    snapshot = ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition)
    return _INT16.pack(_SNAPSHOT) + encode(snapshot, 0)


def encode_record(record: ShareRecord) -> CoordinatorRecord:
    """Encode the key and the value as Kafka 4.3 writes them."""
    key = _encode_key(record.key, record.is_update)
    state = record.state
    if state is None:
        return key, None
    batches = [
        RecordedBatch(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_state=batch.delivery_state,
            delivery_count=batch.delivery_count,
        )
        for batch in state.state_batches
    ]
    value: ShareSnapshotValue | ShareUpdateValue
    if record.is_update:
        value = ShareUpdateValue(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            state_batches=batches,
        )
    else:
        value = ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            create_timestamp=state.create_timestamp,
            write_timestamp=state.write_timestamp,
            state_batches=batches,
        )
    return key, _INT16.pack(_VERSION) + encode(value, _VERSION)


def decode_record(key: Bytes, value: Bytes | None) -> ShareRecord | None:
    """Decode a record. Returns None for a key of an unknown type. Raises CodecError if the record makes no sense."""
    key_type = _int16(key, "a key")
    if key_type == _SNAPSHOT:
        named: ShareSnapshotKey | ShareUpdateKey = decode(ShareSnapshotKey, 0, key, _INT16.size)
    elif key_type == _UPDATE:
        named = decode(ShareUpdateKey, 0, key, _INT16.size)
    else:
        return None
    share_partition = SharePartitionKey(named.group_id, named.topic_id, named.partition)
    if value is None:
        if key_type == _UPDATE:
            raise CodecError("an update of a share partition without a value")
        return ShareRecord(share_partition, None)
    version = _int16(value, "a value")
    if key_type == _SNAPSHOT:
        return ShareRecord(
            share_partition, _snapshot(decode(ShareSnapshotValue, version, value, _INT16.size))
        )
    update = decode(ShareUpdateValue, version, value, _INT16.size)
    if update.snapshot_epoch > HIGHEST_SNAPSHOT_EPOCH:  # that of a snapshot that isn't there any more
        raise CodecError(f"a share partition at snapshot epoch {update.snapshot_epoch}")
    return ShareRecord(
        share_partition,
        ShareGroupOffset(
            snapshot_epoch=update.snapshot_epoch,
            leader_epoch=update.leader_epoch,
            start_offset=update.start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=_batches(update.state_batches),
        ),
        is_update=True,
    )


def _snapshot(value: ShareSnapshotValue) -> ShareGroupOffset:
    if value.snapshot_epoch > HIGHEST_SNAPSHOT_EPOCH:
        raise CodecError(f"a share partition at snapshot epoch {value.snapshot_epoch}")
    return ShareGroupOffset(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        state_batches=_batches(value.state_batches),
        create_timestamp=value.create_timestamp,
        write_timestamp=value.write_timestamp,
    )


def _batches(recorded: list[RecordedBatch]) -> tuple[StateBatch, ...]:
    """Raises CodecError for a batch that ends before it begins."""
    found = []
    for batch in recorded:
        if batch.last_offset < batch.first_offset:
            raise CodecError(f"a state batch from {batch.first_offset} to {batch.last_offset}")
        found.append(
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        )
    return tuple(found)


def _int16(data: Bytes, what: str) -> int:
    if len(data) < _INT16.size:
        raise CodecError(f"{what} of {len(data)} bytes")
    value: int = _INT16.unpack_from(data)[0]
    return value


# --------------------------------------------------------------------------------------------------------------


class KnownSharePartition:
    """A known share partition. The epochs are the highest ones seen, which may be higher than in the last record."""

    __slots__ = ("leader_epoch", "state", "state_epoch", "updates")

    def __init__(self, state: ShareGroupOffset, *, updates: int, state_epoch: int | None) -> None:
        self.state = state
        self.leader_epoch = state.leader_epoch
        self.state_epoch = state_epoch
        """None if no snapshot has had it."""
        self.updates = updates
        """The updates since the last snapshot that replaced them."""


class SharePartitions:
    """The share partitions of a shard, by their keys."""

    def __init__(self, updates_per_snapshot: int) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self._known: dict[SharePartitionKey, KnownSharePartition] = {}
        self._of_topic: dict[bytes, dict[SharePartitionKey, None]] = {}
        self._snapshot_offsets: dict[SharePartitionKey, int] = {}
        """The offset of each one's last snapshot, ascending."""
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
        """The offset below which every record is obsolete; None if unknown, or if there is none."""
        return self._redundant_before or None

    def needs_snapshot(self, known: KnownSharePartition) -> bool:
        """True if the last snapshot has so many updates that the next write has to be a snapshot."""
        return known.updates >= self._updates_per_snapshot

    def apply(self, record: ShareRecord, record_offset: int) -> None:
        """Apply one record of the log."""
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
        """Forget them, as another node coordinates them."""
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
        if known is None:  # its snapshot is lost: Kafka goes on with the update
            self._add(key, KnownSharePartition(update, updates=1, state_epoch=None))
            return
        known.leader_epoch = max(known.leader_epoch, update.leader_epoch)
        known.state = known.state.updated(update)
        known.updates += 1

    def _snapshot_is_at(self, key: SharePartitionKey, record_offset: int) -> None:
        offsets = self._snapshot_offsets
        offsets.pop(key, None)
        offsets[key] = record_offset  # at the end, as offsets grow
        self._redundant_before = next(iter(offsets.values()))


# --- decisions; they change nothing ---------------------------------------------------------------------------

PartitionCountOf = Callable[[bytes], int]
"""The number of partitions of a topic, by its id; 0 if it isn't in the metadata."""

MOST_BATCHES = 50_000
"""The most batches of one write, and of a share partition. A record with more would exceed the default size
of a batch, so no snapshot could be written. Kafka merges any number of them first."""


class Write(NamedTuple):
    """A write to a share partition."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


class Decisions:
    """Makes decisions about the share partitions of one shard."""

    def __init__(
        self, known: SharePartitions, partition_count_of: PartitionCountOf, now_ms: Callable[[], int]
    ) -> None:
        self._known = known
        self._partition_count_of = partition_count_of
        self._now_ms = now_ms

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> ShareRecord:
        """Decide to start anew, whatever state there is."""
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
        """Return the state, and a record if this leader asks for the first time."""
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
            raise KafkaError(Error.INVALID_REQUEST, "The state batches are invalid, or too many.")
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
        """Decide to delete the state. Returns None if there is nothing to delete."""
        _check_not_negative(key)
        self._check_topic(key)
        return ShareRecord(key, None) if key in self._known else None

    def summarize(self, key: SharePartitionKey) -> ShareStateSummary:
        """Return the state's summary, or the default values if it isn't initialized."""
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
        """Make the write an update, or a snapshot if there are many updates by now. The start never moves
        back, and the count of completed records belongs to it."""
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
