"""One pass over a partition: it removes records that nobody needs any more from the closed segments.

First it reads the dirty part, for the latest offset of each key. Then it copies every segment below the end
of that, without the records that have a later one. Source: org.apache.kafka.storage.internals.log Cleaner.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from struct import Struct

from protocol.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    MAX_TIMESTAMP_POS,
    BatchHeader,
    CorruptRecordError,
)
from storage.cleaning.batch_filter import BatchRebuild, RecordFilter, empty_batch
from storage.cleaning.cleaned_files import CleanedFiles, remove_cleaned
from storage.cleaning.offset_map import RECORDS_AT_ONCE, OffsetMap, read_keyed_records
from storage.cleaning.plan import (
    CleaningPlan,
    CleaningResult,
    CleaningSettings,
    CleaningStats,
    CleaningStep,
    Progress,
    SegmentSizes,
)
from storage.cleaning.segment_batches import AbortedTransactions, CleanedTransactions, SegmentBatches
from storage.files import Files
from storage.indexes import MAX_RELATIVE_OFFSET


def clean(files: Files, plan: CleaningPlan) -> Generator[CleaningStep, None, None]:
    """Clean the partition. `storage.cleaning.plan` explains the steps, and what the caller does.

    A step takes some milliseconds, and longer only to decompress or compress a large batch, or to sync a
    file. Raises `UncleanableError`, `OSError`.
    """
    tally = Tally()
    dirty_offsets = plan.first_uncleanable_offset - plan.first_dirty_offset
    offset_map = OffsetMap(plan.max_keys, plan.first_dirty_offset, dirty_offsets)
    try:
        yield from MapBuilding(files, plan, offset_map, tally).run()
        end = max(offset_map.latest + 1, plan.first_dirty_offset)
        if end > plan.first_dirty_offset:
            yield from _clean_segments(files, plan, end, offset_map, tally)
    finally:
        offset_map.close()
    yield CleaningResult(end, tally.stats(offset_map.count))


def _clean_segments(
    files: Files, plan: CleaningPlan, end: int, offset_map: OffsetMap, tally: Tally
) -> Generator[CleaningStep, None, None]:
    """Clean all segments that begin below `end`, including the clean ones: superseded records may be anywhere."""
    transactions = CleanedTransactions()
    index = AbortedTransactions(files, plan.directory, plan.log_start_offset)
    copying = Copying(plan, offset_map, transactions, tally)
    ends = dict(zip(plan.segments, plan.segment_ends(), strict=True))
    below = [segment for segment in plan.segments if segment.base_offset < end]
    reported: list[int] = []
    try:
        for group in group_segments(below, plan.settings, plan.first_uncleanable_offset):
            target = CleanedFiles(files, plan.directory, group[0].base_offset, plan.settings)
            try:
                for segment in group:
                    transactions.add(index.collect(segment.base_offset, ends[segment]))
                    reading = SegmentBatches(
                        files, plan.directory, segment, plan.settings.max_decompressed_message_bytes
                    )
                    try:
                        yield from copying.copy(reading, target)
                    finally:
                        reading.close()
                for finished in target.finish(_base_offsets(group), keep_txn_index=plan.keep_txn_index):
                    yield finished or tally.step()
                    if finished:
                        reported.append(group[0].base_offset)
            except BaseException:
                target.discard()
                raise
    except GeneratorExit:
        # nobody will use these files
        for base_offset in reported:
            remove_cleaned(files, plan.directory, base_offset)
        raise


def _base_offsets(group: Sequence[SegmentSizes]) -> tuple[int, ...]:
    return tuple(segment.base_offset for segment in group)


# ---- filling the offset map from the dirty part of a log. Source: Cleaner.buildOffsetMap


class MapBuilding:
    """Walks through the segments from the one that holds the first dirty offset, until the map is full.

    That segment is read from its beginning. From the middle one can't tell which of the transactions in its
    `.txnindex` are already over. Kafka starts in the middle, and may take later committed data for aborted.
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
            reading = SegmentBatches(
                self._files, plan.directory, segment, plan.settings.max_decompressed_message_bytes
            )
            try:
                full = yield from self._take_segment(reading)
            finally:
                reading.close()
            if full:
                return
            # a gap at the segment's end belongs to the segment
            offset_map.reach(end - 1)

    def _take_segment(self, reading: SegmentBatches) -> Generator[Progress, None, bool]:
        """Put the records of a segment. Returns True if the map is full."""
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
        """Put the records of a batch. Returns True if the map is full."""
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
        """Put `count` records from the position on. Returns their end, or -1 if the map is full."""
        self._tally.cost += count
        try:
            records = read_keyed_records(payload, pos, count)
        except CorruptRecordError as failure:
            raise reading.error(failure) from failure
        first_dirty_offset = self._plan.first_dirty_offset
        if not self._map.put(records, header.base_offset, header.last_offset, first_dirty_offset):
            return -1
        return records[-1][0] if records else pos


# ---- grouping neighbouring segments into one. Source: Cleaner.groupSegmentsBySize

MAX_SEGMENTS_IN_GROUP = 100
"""When they are replaced, their files are renamed at once, in some 7 ms in which nobody else is served. Kafka
has no such bound. A later pass merges the rest."""


def group_segments(
    segments: Sequence[SegmentSizes], settings: CleaningSettings, first_uncleanable_offset: int
) -> list[list[SegmentSizes]]:
    """Group the segments, in ascending order. From the left, each group takes as many as it has room for.

    Sizes are those before the pass, so that the next pass merges what shrinks now.
    """
    groups: list[list[SegmentSizes]] = []
    log_bytes = offset_index_bytes = time_index_bytes = 0
    for slot, segment in enumerate(segments):
        log_bytes += segment.log_bytes
        offset_index_bytes += segment.offset_index_bytes
        time_index_bytes += segment.time_index_bytes
        end = segments[slot + 1].base_offset if slot + 1 < len(segments) else first_uncleanable_offset
        if (
            groups
            and len(groups[-1]) < MAX_SEGMENTS_IN_GROUP
            and log_bytes <= settings.segment_bytes
            and offset_index_bytes <= settings.segment_index_bytes
            and time_index_bytes <= settings.segment_index_bytes
            and (not segment.log_bytes or end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            _base_offset, log_bytes, offset_index_bytes, time_index_bytes = segment
    return groups


# ---- what happens to each batch: it is copied, rebuilt, emptied, or dropped. Source: Cleaner.cleanInto

_INT64 = Struct(">q")


class Copying:
    """Copies segments in the order of the log, and carries the state of transactions from one to the next."""

    def __init__(
        self, plan: CleaningPlan, offset_map: OffsetMap, transactions: CleanedTransactions, tally: Tally
    ) -> None:
        self._now_ms = plan.now_ms
        self._new_horizon_ms = plan.now_ms + plan.settings.delete_retention_ms
        self._high_watermark = plan.high_watermark
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
        """True if no record of the batch stays, as far as its header tells."""
        return (
            self._transactions.on_data(header)
            or header.records_count <= 0
            or not self._map.has_latest_within(header.base_offset, header.last_offset)
        )

    def _keeps_empty(self, header: BatchHeader) -> bool:
        """True if the batch stays although it has no records left.

        It marks the high watermark (KAFKA-20452), or the epoch and sequence of an active producer, for those
        who read the log from its start. If a producer has no data batch in its epoch, all control batches of
        that epoch stay.
        """
        if header.last_offset + 1 == self._high_watermark:
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
        """Copy a control batch. A marker without data first gets a delete horizon, and is dropped after that."""
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
        """Copy a batch of few records, in one go: a generator, as for a large one, would cost too much."""
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
        """Write the batch as it is, or empty, or not at all; else return the way to rebuild it."""
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


# ---- what a pass has done: since its last step, and altogether

CLEANING_STEP_COST = 1000
"""The cost of one step, some milliseconds of work. The unit is a record."""
_BATCH_COST = 2
_BYTES_PER_COST = 2048


class Tally:
    """Counts bytes and records. `cost` is that of the current step so far."""

    __slots__ = (
        "_read",
        "_written",
        "bytes_read",
        "bytes_written",
        "cost",
        "map_bytes_read",
        "map_records_read",
        "records_read",
        "records_written",
    )

    def __init__(self) -> None:
        self.cost = 0
        self._read = 0
        self._written = 0
        self.map_bytes_read = 0
        self.map_records_read = 0
        self.bytes_read = 0
        self.records_read = 0
        self.bytes_written = 0
        self.records_written = 0

    def mapped(self, batch_bytes: int, records: int) -> None:
        """Count a batch that was read for the offset map."""
        self._took(batch_bytes)
        self.map_bytes_read += batch_bytes
        self.map_records_read += records

    def read(self, batch_bytes: int, records: int) -> None:
        """Count a batch that was read to be copied."""
        self._took(batch_bytes)
        self.bytes_read += batch_bytes
        self.records_read += records

    def _took(self, batch_bytes: int) -> None:
        self._read += batch_bytes
        self.cost += _BATCH_COST + batch_bytes // _BYTES_PER_COST

    def wrote(self, batch_bytes: int, records: int) -> None:
        """Count the rest of a batch that was written."""
        self._written += batch_bytes
        self.bytes_written += batch_bytes
        self.records_written += records

    def step(self) -> Progress:
        """End the step."""
        progress = Progress(self._read, self._written)
        self.cost = self._read = self._written = 0
        return progress

    def stats(self, keys: int) -> CleaningStats:
        """The counts of the whole pass."""
        return CleaningStats(
            map_bytes_read=self.map_bytes_read,
            map_records_read=self.map_records_read,
            bytes_read=self.bytes_read,
            records_read=self.records_read,
            bytes_written=self.bytes_written,
            records_written=self.records_written,
            keys=keys,
        )
