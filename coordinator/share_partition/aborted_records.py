"""Records of aborted transactions, which a group that reads committed records isn't given (Kafka: `SharePartition`).

Their bytes come along with the others. In flight they are archived, which nobody writes about; the markers that end
transactions are handed out as any offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.share_partition.in_flight_records import InFlightRecords
from coordinator.share_partition.ports import AbortedFrom, AcquiredRecords, FetchedBatch
from coordinator.share_partition.states import ACQUIRED


def archive_aborted(
    records: InFlightRecords,
    batches: Sequence[FetchedBatch],
    acquired: Sequence[AcquiredRecords],
    aborted: Sequence[AbortedFrom],
) -> list[AcquiredRecords]:
    """What is left of what was acquired."""
    gone = _aborted_batches(batches, aborted)
    for batch in gone:
        floor = records.floor(batch.base_offset)
        first = batch.base_offset if floor is None else floor.first_offset
        known = records.between(first, batch.last_offset)
        records.archive(batch.base_offset, batch.last_offset + 1, known, ACQUIRED, counts=True)
    return _without(acquired, gone)


def _aborted_batches(batches: Sequence[FetchedBatch], aborted: Sequence[AbortedFrom]) -> list[FetchedBatch]:
    """Those of the batches that an abort took back, in the order of offsets."""
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
    """The ranges, with those of these batches cut out."""
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
