"""Choosing the records that a member gets, of those that its fetch has read (Kafka: `SharePartition.acquire`).

It counts offsets, not records: an acquisition includes offsets without a record, and control records. Nothing
is written about it.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.share_partition.in_flight_records import (
    InFlightBatch,
    InFlightRecords,
    InFlightState,
    Lock,
    Locks,
)
from coordinator.share_partition.ports import AbortedFrom, AcquiredRecords, FetchedBatch, ShareSettings
from coordinator.share_partition.states import ACQUIRED, AVAILABLE

LEAST_THROTTLED_COUNT = 2
"""The least delivery count at which a batch may be throttled."""


def throttled_from(delivery_limit: int) -> int:
    """The delivery count from which on a batch is handed out in parts: a single record may be what spoils all
    of it."""
    return max(LEAST_THROTTLED_COUNT, (delivery_limit + 1) // 2)


class Acquisition:
    """One pass over what was read, for one member."""

    def __init__(
        self,
        records: InFlightRecords,
        locks: Locks,
        settings: ShareSettings,
        *,
        member_id: str,
        batches: Sequence[FetchedBatch],
        fetch_offset: int,
        most_records: int,
        batch_size: int,
        limits_records: bool,
    ) -> None:
        """`batches`: at least one. `limits_records`: acquire mode `record_limit`."""
        self._records = records
        self._locks = locks
        self._settings = settings
        self._member_id = member_id
        self._batches = batches
        self._fetch_offset = fetch_offset
        self._batch_size = batch_size
        self._limits_records = limits_records
        self._first_fetched = batches[0].base_offset
        self._last_offset = batches[-1].last_offset
        self._most = self._budget(most_records)
        self._count = 0
        self._acquired: list[AcquiredRecords] = []

    def run(self) -> list[AcquiredRecords]:
        """Acquire, and return the acquired offsets in order."""
        records = self._records
        if self._last_offset < records.start_offset or self._most <= 0:
            return []
        self._archive_stale()
        base = self._base_offset()
        known = records.between(min(self._first_fetched, base), self._last_offset)
        if not known:
            self._acquire_new(base, self._last_offset, self._most)
            return self._acquired
        self._acquire_known(known, base)
        last_known = known[-1].last_offset
        if self._count < self._most and last_known < self._last_offset:
            self._acquire_new(last_known + 1, self._last_offset, self._most - self._count)
        if self._acquired:
            records.narrow_gap_window(self._acquired[-1].last_offset + 1)
        return self._acquired

    def _budget(self, most_records: int) -> int:
        """How many offsets may be acquired. If the most allowed are in flight, only offsets among these may."""
        records = self._records
        most = min(most_records, self._settings.partition_max_record_locks - records.in_flight_count)
        if most <= 0 and self._fetch_offset <= records.end_offset:
            most = min(most_records, records.end_offset - self._fetch_offset + 1)
            self._last_offset = min(self._last_offset, records.end_offset)
        return most

    def _archive_stale(self) -> None:
        """Archive available offsets from the fetch offset on that weren't read: they have been compacted away."""
        records, base = self._records, self._first_fetched
        if not records or self._fetch_offset >= base:
            return
        floor = records.floor(self._fetch_offset)
        first = self._fetch_offset
        if floor is not None and floor.last_offset >= first:
            first = floor.first_offset
        stale = records.between(first, base - 1)
        if records.archive(self._fetch_offset, base, stale, AVAILABLE, counts=True):
            records.may_have_available = True

    def _base_offset(self) -> int:
        """Where the first batch begins: at the batch in flight that contains it, and not before the start.

        In Kafka it may be before the start, if something before it is in flight. Then it is fetched forever.
        """
        records, base = self._records, self._first_fetched
        floor = records.floor(base)
        if floor is None or floor.last_offset < base:
            return max(base, records.start_offset)
        return floor.first_offset

    # --- offsets that were in flight before -----------------------------------------------------------------

    def _acquire_known(self, known: Sequence[InFlightBatch], base: int) -> None:
        gap_start = base
        for batch in known:
            if self._count >= self._most:
                return
            if self._records.is_gap_window_active:
                if gap_start < batch.first_offset:
                    self._acquire_new(gap_start, batch.first_offset - 1, self._most - self._count)
                gap_start = batch.last_offset + 1
                if self._count >= self._most:
                    return
            throttled = self._is_throttled(batch)
            if throttled and self._count > 0:
                self._most = 0
                return
            taken = self._acquire_batch(batch, throttled)
            if throttled and taken:
                self._most = 0
                return

    def _acquire_batch(self, batch: InFlightBatch, throttled: bool) -> bool:
        """Acquire offsets of a batch. Returns True if any were."""
        left = self._most - self._count
        is_whole = (
            batch.is_within(self._first_fetched, self._last_offset)
            and not (self._limits_records and batch.size > left)
            and not throttled
        )
        whole = batch.whole
        if whole is None or not is_whole:
            if whole is not None:
                if not whole.is_available:
                    return False
                batch.split()
            count = self._acquire_each(batch, left)
            self._count += count
            return count > 0
        if not whole.is_available or not self._deliver(whole):
            return False
        whole.relock(self._lock(batch.first_offset, batch.last_offset))
        self._acquired.append(AcquiredRecords(batch.first_offset, batch.last_offset, whole.delivery_count))
        self._count += batch.size
        return True

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        least = throttled_from(self._settings.delivery_count_limit)
        if batch.whole is not None:
            return batch.whole.is_available and batch.whole.delivery_count >= least
        return batch.has_delivered(least, self._first_fetched, self._last_offset)

    def _acquire_each(self, batch: InFlightBatch, left: int) -> int:
        """Acquire offsets of a batch in which they are separate. Returns how many. One at its last delivery
        comes alone."""
        limit = self._settings.delivery_count_limit
        throttled = throttled_from(limit)
        most_throttled: int | None = None
        lock: Lock | None = None
        found: list[AcquiredRecords] = []
        count = 0
        for first, last, state in batch.available(self._first_fetched, self._last_offset):
            is_last_time = limit > 2 and state.delivery_count == limit - 1
            if is_last_time and count > 0:
                break
            if most_throttled is None and state.delivery_count >= throttled:
                most_throttled = max(1, batch.size >> (state.delivery_count - throttled + 1))
            most = 1 if is_last_time else last - first + 1
            if self._limits_records:
                most = min(most, left - count)
            if (
                most_throttled is not None and count < most_throttled
            ):  # if it is exceeded it doesn't apply any more
                most = min(most, most_throttled - count)
            last = min(last, first + most - 1)
            state = batch.cut(first, last)
            if not self._deliver(state):
                continue
            lock = lock or self._lock(first, batch.last_offset)
            lock.last_offset = last  # when it ends, everything from its first to its last offset is checked
            state.relock(lock)
            found.append(AcquiredRecords(first, last, state.delivery_count))
            count += last - first + 1
            if is_last_time or (self._limits_records and count == left) or count == most_throttled:
                break
        self._acquired += merged(found)
        return count

    def _deliver(self, state: InFlightState) -> bool:
        return state.move(ACQUIRED, self._settings.delivery_count_limit, self._member_id)

    def _lock(self, first_offset: int, last_offset: int) -> Lock:
        return self._locks.take(first_offset, last_offset, self._settings.record_lock_duration_ms)

    # --- new offsets ----------------------------------------------------------------------------------------

    def _acquire_new(self, first: int, last: int, most: int) -> None:
        """Acquire offsets that aren't in flight. With whole record batches, the one in which `most` is
        reached is included."""
        records = self._records
        if not records:
            first = max(first, records.end_offset)
        bound = last
        if most < last - first + 1:
            last = self._end_of_batch_with(first + most - 1)
            if records.is_gap_window_active and last > bound:
                last = bound
        acquired = self._take_new(first, last, most)
        if records.first_key == first:
            records.start_offset = first
        records.end_offset = max(records.end_offset, last)
        if self._limits_records:
            last = acquired[0].last_offset
        records.narrow_gap_window(last + 1)
        self._acquired += acquired
        self._count += last - first + 1

    def _end_of_batch_with(self, offset: int) -> int:
        """The last offset of the record batch that has this one, or the offset itself if none has."""
        found = None
        for batch in self._batches:
            if batch.base_offset > offset:
                break
            found = batch
        return offset if found is None else max(offset, found.last_offset)

    def _take_new(self, first: int, last: int, most: int) -> list[AcquiredRecords]:
        if self._limits_records:
            return [self._take_limited(first, last, most)]
        acquired = self._cut(first, last)
        for part in acquired:
            self._put_new(part.first_offset, part.last_offset, part.last_offset)
        return acquired

    def _cut(self, first: int, last: int) -> list[AcquiredRecords]:
        """Cut into parts of at least the batch size, at the borders of record batches."""
        parts = []
        if last - first + 1 > self._batch_size:
            for batch in self._batches:
                base = batch.base_offset
                if base > last:
                    break
                if base - first >= self._batch_size:
                    parts.append(AcquiredRecords(first, base - 1, 1))
                    first = base
        parts.append(AcquiredRecords(first, last, 1))
        return parts

    def _take_limited(self, first: int, last: int, most: int) -> AcquiredRecords:
        last_acquired = min(last, first + most - 1)
        self._put_new(first, last, last_acquired)
        if last_acquired < last:
            self._records.may_have_available = True
        return AcquiredRecords(first, last_acquired, 1)

    def _put_new(self, first: int, last: int, last_acquired: int) -> None:
        """Add a batch in flight, which is acquired up to `last_acquired`."""
        lock = self._lock(first, last_acquired)
        batch = InFlightBatch(first, last, InFlightState(ACQUIRED, 1, self._member_id, lock))
        if last_acquired < last:
            batch.split_behind(last_acquired)
        self._records.put(batch)


def merged(found: Sequence[AcquiredRecords]) -> list[AcquiredRecords]:
    """Join adjacent ranges with the same delivery count."""
    result: list[AcquiredRecords] = []
    for each in found:
        if result:
            last = result[-1]
            if each.first_offset == last.last_offset + 1 and each.delivery_count == last.delivery_count:
                result[-1] = AcquiredRecords(last.first_offset, each.last_offset, each.delivery_count)
                continue
        result.append(each)
    return result


# --- records of aborted transactions --------------------------------------------------------------------------
#
# A group that reads committed records doesn't get them, although their bytes come along. In flight they are
# archived, which isn't written. Transaction markers are handed out like any other offset.


def archive_aborted(
    records: InFlightRecords,
    batches: Sequence[FetchedBatch],
    acquired: Sequence[AcquiredRecords],
    aborted: Sequence[AbortedFrom],
) -> list[AcquiredRecords]:
    """Archive aborted records, and return the rest of what was acquired."""
    gone = _aborted_batches(batches, aborted)
    for batch in gone:
        floor = records.floor(batch.base_offset)
        first = batch.base_offset if floor is None else floor.first_offset
        known = records.between(first, batch.last_offset)
        records.archive(batch.base_offset, batch.last_offset + 1, known, ACQUIRED, counts=True)
    return _without(acquired, gone)


def _aborted_batches(batches: Sequence[FetchedBatch], aborted: Sequence[AbortedFrom]) -> list[FetchedBatch]:
    """The batches that an abort took back, in the order of offsets."""
    ahead = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    producers: set[int] = set()
    found = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        while ahead and ahead[-1].first_offset <= batch.last_offset:
            producers.add(ahead.pop().producer_id)
        if batch.is_abort_marker:
            producers.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in producers:
            found.append(batch)
    return found


def _without(acquired: Sequence[AcquiredRecords], gone: Sequence[FetchedBatch]) -> list[AcquiredRecords]:
    """The ranges without these batches."""
    left: list[AcquiredRecords] = []
    place = 0
    for first, last, count in acquired:
        while place < len(gone) and gone[place].last_offset < first:
            place += 1
        ahead = place
        while ahead < len(gone) and gone[ahead].base_offset <= last:
            batch = gone[ahead]
            if first < batch.base_offset:
                left.append(AcquiredRecords(first, batch.base_offset - 1, count))
            first = batch.last_offset + 1
            ahead += 1
        if first <= last:
            left.append(AcquiredRecords(first, last, count))
    return left
