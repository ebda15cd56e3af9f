"""Count the records that a reader would get: offsets alone don't show it.

Markers take an offset each, records of aborted transactions are skipped, and compaction leaves gaps. So this
reads the batch headers from an offset to the end. A transaction's records count by its marker, which comes after them.
Only a batch that the offset cuts is decoded.
Source: `CompletedFetch` and `LogCleaner` of Kafka.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cli.client.cluster import KafkaCluster
from cli.client.fetching import fetch
from cli.client.offsets import Partition
from cli.errors import CommandError
from protocol.records.batch import (
    UNREADABLE,
    BatchHeader,
    CorruptRecordError,
    read_marker,
    read_records,
    walk_batches,
)
from protocol.wire.primitives import Bytes

FETCH_BYTES: Final = 4 * 1024 * 1024
TRIES: Final = 4
"""How often a fetch before the end may return nothing, for example while a leader changes."""
PAUSE_S: Final = 0.1


@dataclass(frozen=True)
class Effort:
    """How far a count goes per partition before it says "at least"."""

    max_bytes: float = 64 * 1024 * 1024
    max_seconds: float = 5.0


SOME: Final = Effort()
ALL: Final = Effort(float("inf"), float("inf"))
"""The effort of `--exact`."""


@dataclass
class Pending:
    """Records of a producer whose transaction has no marker yet: below the last stable offset, and after it."""

    stable: int = 0
    behind: int = 0
    last: int = -1


@dataclass
class Counted:
    """Counts of records from an offset to the end of what consumers see.

    records: all records, for a reader of everything. given: what a reader of committed records gets now. waiting: what
    it gets once no open transaction is before it. undecided: records of open transactions, by producer id. unmarked:
    records without a marker as far as was read, by producer id, whatever becomes of them. last_given: the offset at
    which its last record ends, or -1. Unless `is_exact`, each number is a lower bound.
    """

    records: int = 0
    given: int = 0
    waiting: int = 0
    aborted: int = 0
    markers: int = 0
    last_given: int = -1
    undecided: dict[int, int] = field(default_factory=dict)
    unmarked: dict[int, int] = field(default_factory=dict, compare=False)
    is_exact: bool = True


ReadBatches = Callable[[int], Bytes]
"""Return batches from an offset on. They are empty at the end, and sometimes before it. Raises CommandError."""


def count_records(
    cluster: KafkaCluster, partition: Partition, offset: int, stable: int, end: int, effort: Effort = SOME
) -> Counted:
    """Count the partition's records from `offset` to `end`, the high watermark. `stable` is the last stable offset.
    Both may have moved on since: markers are looked for up to the log's present end. Raises CommandError."""

    def read(position: int) -> Bytes:
        data = fetch(cluster, partition, position, FETCH_BYTES)
        return data.records if isinstance(data.records, bytes | memoryview) else b""

    return count_read_records(read, partition, offset, stable, end, effort)


def count_read_records(
    read: ReadBatches, partition: Partition, offset: int, stable: int, end: int, effort: Effort = SOME
) -> Counted:
    """Like `count_records`, wherever the batches come from."""
    walk = _Walk(offset, stable, end)
    deadline_s = time.monotonic() + effort.max_seconds
    read_bytes = 0
    position = offset
    tries = 0
    while position < end or walk.awaits_a_marker:
        if read_bytes >= effort.max_bytes or time.monotonic() > deadline_s:
            return walk.cut_short()
        records = read(position)
        before = position
        try:
            for at, header in walk_batches(records):
                walk.pass_by(header, records[at : at + header.size_bytes])
                position = max(position, header.last_offset + 1)
        except CorruptRecordError as error:
            raise CommandError(f"{partition[0]}-{partition[1]}: {error}") from None
        read_bytes += len(records)
        if position > before:
            tries = 0
        elif position >= end:
            break
        else:
            tries += 1
            if tries == TRIES:
                return walk.cut_short()
            time.sleep(PAUSE_S)
    return walk.done()


class _Walk:
    """Goes from batch to batch, in the order of the log."""

    def __init__(self, offset: int, stable: int, end: int) -> None:
        self._offset = offset
        self._stable = stable
        self._end = end
        self._pending: dict[int, Pending] = defaultdict(Pending)
        self.counted = Counted()

    @property
    def awaits_a_marker(self) -> bool:
        """True if a transaction has records below the last stable offset, and its marker wasn't seen."""
        return any(each.stable for each in self._pending.values())

    def pass_by(self, header: BatchHeader, batch: Bytes) -> None:
        """Count the next batch."""
        if header.is_control:
            self._end_of_transaction(header, batch)
            return
        if header.base_offset >= self._end or header.last_offset < self._offset:
            return
        stable, behind = self._split(header, batch)
        self.counted.records += stable + behind
        if header.is_transactional:
            pending = self._pending[header.producer_id]
            pending.stable += stable
            pending.behind += behind
            pending.last = header.last_offset
        else:
            self._give(Pending(stable, behind, header.last_offset))

    def done(self) -> Counted:
        """Return the counts. A transaction without a marker is open, unless its records are already stable. Then
        readers get them, because nothing says that it was aborted."""
        for producer_id, pending in self._pending.items():
            if pending.stable:
                self._give(Pending(pending.stable, 0, min(pending.last, self._stable - 1)))
                pending.stable = 0
            if pending.stable + pending.behind:
                self.counted.undecided[producer_id] = pending.stable + pending.behind
        return self._told()

    def cut_short(self) -> Counted:
        """Return the counts if there is more to read: unread markers may decide anything."""
        self.counted.is_exact = False
        return self._told()

    def _told(self) -> Counted:
        self.counted.unmarked = {
            producer_id: pending.stable + pending.behind for producer_id, pending in self._pending.items()
        }
        return self.counted

    def _end_of_transaction(self, header: BatchHeader, batch: Bytes) -> None:
        if self._offset <= header.base_offset < self._end:
            self.counted.markers += header.records_count
        marker = read_marker(batch)
        if marker is None or header.producer_id not in self._pending:
            return
        pending = self._pending.pop(header.producer_id)
        if marker.commit:
            self._give(pending)
        else:
            self.counted.aborted += pending.stable + pending.behind

    def _give(self, pending: Pending) -> None:
        self.counted.given += pending.stable
        self.counted.waiting += pending.behind
        if pending.stable + pending.behind:
            self.counted.last_given = max(self.counted.last_given, pending.last)

    def _split(self, header: BatchHeader, batch: Bytes) -> tuple[int, int]:
        """Return how many of its records are below the last stable offset, and how many after it."""
        first, last = header.base_offset, header.last_offset
        cuts = (self._offset, self._stable, self._end)
        if not any(first < cut <= last for cut in cuts):
            return (header.records_count, 0) if last < self._stable else (0, header.records_count)
        try:
            offsets = [record.offset for record in read_records(batch)]
        except UNREADABLE:
            # The codec's library is missing. At least as many records are there as don't fit elsewhere in the batch.
            self.counted.is_exact = False
            spare = last + 1 - first - header.records_count
            low, middle = max(first, self._offset), min(max(first, self._offset, self._stable), last + 1)
            high = min(last + 1, self._end)
            return max(min(middle, high) - low - spare, 0), max(high - middle - spare, 0)
        inside = [offset for offset in offsets if self._offset <= offset < self._end]
        stable = sum(1 for offset in inside if offset < self._stable)
        return stable, len(inside) - stable
