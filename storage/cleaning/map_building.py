"""Filling the offset map from the dirty part of a log. Source: Cleaner.buildOffsetMap."""

from collections.abc import Generator

from protocol.records.batch import CONTROL_BIT, BatchHeader, CorruptRecordError
from storage.cleaning.cleaned_transactions import AbortedTransactions, CleanedTransactions
from storage.cleaning.keyed_records import RECORDS_AT_ONCE, read_keyed_records
from storage.cleaning.offset_map import OffsetMap
from storage.cleaning.plan import CleaningPlan, Progress
from storage.cleaning.segment_batches import SegmentBatches
from storage.cleaning.tally import CLEANING_STEP_COST, Tally
from storage.files import Files


class MapBuilding:
    """Goes through the segments from the one that holds the first dirty offset on, until the map is full.

    That segment is read from its beginning: whoever begins within it can't tell which of the transactions in its
    `.txnindex` are over by then. Kafka does so, and may take later committed data for aborted.
    """

    def __init__(self, files: Files, plan: CleaningPlan, offset_map: OffsetMap, tally: Tally) -> None:
        self._files = files
        self._plan = plan
        self._map = offset_map
        self._tally = tally
        self._transactions = CleanedTransactions()

    def run(self) -> Generator[Progress, None, None]:
        """Raises `UncleanableError`, `OSError`."""
        plan, offset_map = self._plan, self._map
        index = AbortedTransactions(self._files, plan.directory, plan.log_start_offset)
        for segment, end in zip(plan.segments, plan.segment_ends(), strict=True):
            if end <= plan.first_dirty_offset:
                continue
            self._transactions.add(index.collect(segment.base_offset, end))
            reading = SegmentBatches(self._files, plan.directory, segment)
            try:
                full = yield from self._take_segment(reading)
            finally:
                reading.close()
            if full:
                return
            # a gap at the segment's end belongs to it
            offset_map.reach(end - 1)

    def _take_segment(self, reading: SegmentBatches) -> Generator[Progress, None, bool]:
        """Returns whether the map is full."""
        first_dirty_offset = self._plan.first_dirty_offset
        tally, transactions = self._tally, self._transactions
        for header, batch in reading:
            tally.mapped(len(batch), header.records_count)
            if header.attributes & CONTROL_BIT:
                transactions.on_control(header, reading.control_type(header, batch))
            elif not transactions.on_data(header) and header.last_offset >= first_dirty_offset:
                if header.records_count <= RECORDS_AT_ONCE:
                    payload = reading.payload(header, batch)
                    full = self._take_records(reading, header, payload, 0, header.records_count) < 0
                else:
                    full = yield from self._take_batch(reading, header, batch)
                if full:
                    yield tally.step()
                    return True
            if header.last_offset >= first_dirty_offset:
                self._map.reach(header.last_offset)
            if tally.cost >= CLEANING_STEP_COST:
                yield tally.step()
        yield tally.step()
        return False

    def _take_batch(
        self, reading: SegmentBatches, header: BatchHeader, batch: memoryview
    ) -> Generator[Progress, None, bool]:
        """Returns whether the map is full."""
        left = header.records_count
        payload = reading.payload(header, batch)
        pos = 0
        while left:
            count = min(left, RECORDS_AT_ONCE)
            pos = self._take_records(reading, header, payload, pos, count)
            if pos < 0:
                return True
            left -= count
            yield self._tally.step()
        return False

    def _take_records(
        self, reading: SegmentBatches, header: BatchHeader, payload: bytes, pos: int, count: int
    ) -> int:
        """Takes so many records from the position on, and returns where they end; -1 where the map is full."""
        self._tally.cost += count
        try:
            records = read_keyed_records(payload, pos, count)
        except CorruptRecordError as failure:
            raise reading.error(failure) from failure
        first_dirty_offset = self._plan.first_dirty_offset
        if not self._map.put(records, header.base_offset, header.last_offset, first_dirty_offset):
            return -1
        return records[-1][0] if records else pos
