"""What becomes of each batch of a segment that is cleaned: copied as it is, made anew, emptied, or gone.

Source: Cleaner.cleanInto, MemoryRecords.filterTo.
"""

from collections.abc import Generator
from struct import Struct

from protocol.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    MAX_TIMESTAMP_POS,
    BatchHeader,
    CorruptRecordError,
)
from storage.cleaning.batch_filter import BatchRebuild, RecordFilter, empty_batch
from storage.cleaning.cleaned_files import CleanedFiles
from storage.cleaning.cleaned_transactions import CleanedTransactions
from storage.cleaning.keyed_records import RECORDS_AT_ONCE
from storage.cleaning.offset_map import OffsetMap
from storage.cleaning.plan import CleaningPlan, Progress
from storage.cleaning.segment_batches import SegmentBatches
from storage.cleaning.tally import CLEANING_STEP_COST, Tally

_INT64 = Struct(">q")


class Copying:
    """Copies segments in the order of the log; what is known of transactions goes along from one to the next."""

    def __init__(
        self, plan: CleaningPlan, offset_map: OffsetMap, transactions: CleanedTransactions, tally: Tally
    ) -> None:
        self._now_ms = plan.now_ms
        self._new_horizon_ms = plan.now_ms + plan.settings.delete_retention_ms
        self._end_offset = plan.first_uncleanable_offset
        count = len(plan.producers) // 3
        producer_ids = plan.producers[:count]
        self._epochs = dict(zip(producer_ids, plan.producers[count : 2 * count], strict=True))
        self._last_data_offsets = dict(zip(producer_ids, plan.producers[2 * count :], strict=True))
        self._map = offset_map
        self._transactions = transactions
        self._tally = tally

    def copy(self, reading: SegmentBatches, target: CleanedFiles) -> Generator[Progress, None, None]:
        """Raises `UncleanableError`, `OSError`."""
        tally = self._tally
        for header, batch in reading:
            tally.read(len(batch), header.records_count)
            if header.attributes & CONTROL_BIT:
                self._copy_control(reading, header, batch, target)
            elif self._nothing_stays(header):
                if self._keeps_empty(header):
                    self._write(header, empty_batch(header), 0, target)
            elif header.records_count <= RECORDS_AT_ONCE:
                self._copy_data(reading, header, batch, target)
            else:
                yield from self._copy_large(reading, header, batch, target)
            if tally.cost >= CLEANING_STEP_COST:
                yield tally.step()
        yield tally.step()

    def _nothing_stays(self, header: BatchHeader) -> bool:
        """Whether no record of the batch stays, as far as its header tells."""
        return (
            self._transactions.on_data(header)
            or header.records_count <= 0
            or not self._map.has_latest_within(header.base_offset, header.last_offset)
        )

    def _keeps_empty(self, header: BatchHeader) -> bool:
        """Whether the batch stays though nothing is left of it: it says where the cleaned part of the log ends, or
        where an active producer is, so that whoever reads the log from its start finds its epoch and its sequence. Of
        one without a batch of data in its epoch all control batches of that epoch stay."""
        if header.last_offset + 1 == self._end_offset:
            return True
        if header.producer_id < 0:
            return False
        last_data_offset = self._last_data_offsets.get(header.producer_id)
        if last_data_offset is None:
            return False
        if last_data_offset >= 0:
            return header.last_offset == last_data_offset
        return header.is_control and header.producer_epoch == self._epochs[header.producer_id]

    def _copy_control(
        self, reading: SegmentBatches, header: BatchHeader, batch: memoryview, target: CleanedFiles
    ) -> None:
        """A marker whose data is gone gets a delete horizon first, and goes once that has passed."""
        control_type = reading.control_type(header, batch)
        can_go, aborted = self._transactions.on_control(header, control_type)
        if aborted is not None:
            target.aborted.append(aborted)
        expired = can_go and header.has_delete_horizon and header.base_timestamp <= self._now_ms
        if control_type is None or expired:
            if self._keeps_empty(header):
                self._write(header, empty_batch(header), 0, target)
        elif can_go and not header.has_delete_horizon:
            payload = reading.payload(header, batch)
            stays = [(0, len(payload))]
            rebuild = BatchRebuild(header, payload, stays, header.records_count, self._new_horizon_ms)
            while not rebuild.go_on():
                pass
            self._write(header, rebuild.sealed(), header.records_count, target)
        else:
            self._write(header, batch, header.records_count, target)

    def _copy_data(
        self, reading: SegmentBatches, header: BatchHeader, batch: memoryview, target: CleanedFiles
    ) -> None:
        """Of a batch of few records: in one go, since that of a large one costs a generator."""
        payload = reading.payload(header, batch)
        filtering = self._filter(header, payload)
        try:
            filtering.go_on()
        except CorruptRecordError as failure:
            raise reading.error(failure) from failure
        rebuild = self._settle(header, batch, filtering, target)
        if rebuild is not None:
            rebuild.go_on()
            self._write(header, rebuild.sealed(), filtering.kept, target)

    def _copy_large(
        self, reading: SegmentBatches, header: BatchHeader, batch: memoryview, target: CleanedFiles
    ) -> Generator[Progress, None, None]:
        payload = reading.payload(header, batch)
        filtering = self._filter(header, payload)
        try:
            while not filtering.go_on():
                yield self._tally.step()
        except CorruptRecordError as failure:
            raise reading.error(failure) from failure
        rebuild = self._settle(header, batch, filtering, target)
        if rebuild is not None:
            while not rebuild.go_on():
                yield self._tally.step()
            self._write(header, rebuild.sealed(), filtering.kept, target)

    def _filter(self, header: BatchHeader, payload: bytes) -> RecordFilter:
        tombstones_go = header.attributes & DELETE_HORIZON_BIT != 0 and header.base_timestamp <= self._now_ms
        self._tally.cost += header.records_count
        return RecordFilter(header, payload, self._map, tombstones_go)

    def _settle(
        self, header: BatchHeader, batch: memoryview, filtering: RecordFilter, target: CleanedFiles
    ) -> BatchRebuild | None:
        """Writes the batch as it is, or empty, or not at all; else returns how it is made anew."""
        kept = filtering.kept
        has_horizon = header.attributes & DELETE_HORIZON_BIT
        if kept == header.records_count and (has_horizon or not filtering.tombstones):
            self._write(header, batch, kept, target)
        elif kept:
            horizon_ms = None
            if has_horizon:
                horizon_ms = header.base_timestamp
            elif filtering.tombstones:
                horizon_ms = self._new_horizon_ms
            self._tally.cost += kept
            return BatchRebuild(header, filtering.payload, filtering.stays, kept, horizon_ms)
        elif self._keeps_empty(header):
            self._write(header, empty_batch(header), 0, target)
        return None

    def _write(
        self, header: BatchHeader, batch: bytearray | memoryview, records: int, target: CleanedFiles
    ) -> None:
        target.append(batch, header.last_offset, _INT64.unpack_from(batch, MAX_TIMESTAMP_POS)[0])
        self._tally.wrote(len(batch), records)
