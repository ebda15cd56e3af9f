"""A segment of a log: a `.log` file of batches with its three indexes, beginning at its base offset.

Only the last segment of a log, the active one, is appended to. Source: org.apache.kafka.storage LogSegment.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice

from protocol.errors import Error, KafkaError
from protocol.records.batch import BATCH_OVERHEAD, LOG_OVERHEAD, MAGIC, NO_TIMESTAMP, BatchHeader, read_header
from storage.files import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    File,
    Files,
    TornWriteError,
    file_path,
)
from storage.indexes import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedTxn,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)
from storage.log.log_config import LogConfig

logger = logging.getLogger(__name__)

_HEADERS_CHUNK_BYTES = 8192
_LOOKED_AT = 200
"""How many batches may lie between an index entry and the one with a timestamp. Further on it isn't looked for."""
_REINDEXED_BYTES = 4096  # the default of index.interval.bytes, to rebuild an index while it is used


class Segment:
    """One segment. It reads nothing before it is needed. Calls that touch files may raise `OSError`."""

    __slots__ = (
        "_first_timestamp_ms",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "directory",
        "files",
        "is_full",
        "jitter_ms",
        "log",
        "max_index_bytes",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "offset_index",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        jitter_ms: int,
        max_index_bytes: int,
    ) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.size = 0
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.max_index_bytes = max_index_bytes
        self.is_full = False
        """True if an index has no room left. (The time index keeps room for its last entry.)"""
        stem = file_path(directory, base_offset, "")
        self.log = File(stem + LOG_SUFFIX)
        self.offset_index = OffsetIndex(files, stem + INDEX_SUFFIX, base_offset)
        self.time_index = TimeIndex(files, stem + TIME_INDEX_SUFFIX, base_offset)
        self.txn_index = TransactionIndex(files, stem + TXN_INDEX_SUFFIX)
        self.bytes_since_index_entry = 0
        self.max_timestamp_ms: int | None = None
        """The largest timestamp of its records, -1 if it has none. None until it is needed."""
        self.max_timestamp_offset = base_offset
        """The last offset of the batch with the largest timestamp."""
        self._first_timestamp_ms: int | None = None

    def create(self) -> None:
        """Create its files, empty. Leftovers of an earlier run are removed."""
        self.files.remove(self.txn_index.file.path)
        self.files.create(self.log)
        self.offset_index.create()
        self.time_index.create()
        self.size = 0
        self.max_timestamp_ms = NO_TIMESTAMP

    def load_max_timestamp(self) -> int:
        """Return the largest timestamp, -1 without timestamps. A closed segment has it in its last time index
        entry."""
        if self.max_timestamp_ms is None:
            self.max_timestamp_ms, self.max_timestamp_offset = self.time_index.last_entry()
        return self.max_timestamp_ms

    def first_timestamp_ms(self) -> int:
        """Return the largest timestamp of the first batch, from which the time to roll counts; -1 without a batch."""
        if self._first_timestamp_ms is None:
            for _position, header in self.batches():
                self._first_timestamp_ms = header.max_timestamp
                return header.max_timestamp
            return NO_TIMESTAMP
        return self._first_timestamp_ms

    def must_roll_for(self, header: BatchHeader, base_offset: int, now_ms: int, config: LogConfig) -> bool:
        """True if the segment is full, old, or too far from the batch's offsets. Source: LogSegment.shouldRoll."""
        size = self.size
        if (
            size > config.segment_bytes - header.batch_length - LOG_OVERHEAD
            or base_offset + header.last_offset_delta - self.base_offset > MAX_RELATIVE_OFFSET
        ):
            return True
        if not size:
            return False
        if self.is_full:
            return True
        # Its age, measured with the batch's largest timestamp, or else with the clock.
        first_ms = self._first_timestamp_ms
        if first_ms is None:
            first_ms = self.first_timestamp_ms()
        waited_ms = header.max_timestamp - first_ms if first_ms >= 0 else now_ms - self.created_ms
        return waited_ms > config.roll_ms - self.jitter_ms

    def append(
        self,
        batch: bytearray | memoryview,
        last_offset: int,
        max_timestamp_ms: int,
        aborted: AbortedTxn | None,
        index_interval_bytes: int,
    ) -> None:
        """Write one batch and its index entries. If any of it fails, all of it is undone."""
        position = self.size
        size = len(batch)
        max_so_far_ms = self.max_timestamp_ms
        if max_so_far_ms is None:
            # before the write: a failure after it would have to be undone
            max_so_far_ms = self.load_max_timestamp()
        self.files.append(self.log, batch, position)
        max_offset = self.max_timestamp_offset
        if max_timestamp_ms > max_so_far_ms:
            max_so_far_ms = max_timestamp_ms
            max_offset = last_offset
        indexed = self.bytes_since_index_entry > index_interval_bytes
        if indexed or aborted is not None:
            self._index(position, last_offset, (max_so_far_ms, max_offset) if indexed else None, aborted)
        if indexed:
            self.bytes_since_index_entry = size
        else:
            self.bytes_since_index_entry += size
        self.max_timestamp_ms = max_so_far_ms
        self.max_timestamp_offset = max_offset
        if position == 0:
            self._first_timestamp_ms = max_timestamp_ms
        self.size = position + size

    def _index(
        self,
        position: int,
        last_offset: int,
        time_entry: tuple[int, int] | None,
        aborted: AbortedTxn | None,
    ) -> None:
        counts: tuple[int, int, int] | None = None
        try:
            counts = (self.offset_index.count, self.time_index.count, self.txn_index.count)
            if aborted is not None:
                self.txn_index.append(aborted)
            if time_entry is not None:
                self.offset_index.append(last_offset, position)
                self.time_index.maybe_append(*time_entry)
                self.check_full()
        except OSError as failure:
            self._take_back(position, counts, failure)
            raise

    def check_full(self) -> None:
        self.is_full = (
            self.offset_index.count >= self.max_index_bytes // OFFSET_ENTRY.size
            or self.time_index.count >= self.max_index_bytes // TIME_ENTRY.size - 1
        )

    def _take_back(self, size: int, counts: tuple[int, int, int] | None, failure: OSError) -> None:
        try:
            self.files.truncate(self.log, size)
            if counts is None:
                return
            self.offset_index.truncate_to_count(counts[0])
            self.time_index.truncate_to_count(counts[1])
            self.txn_index.truncate_to_count(counts[2])
        except OSError as second:
            raise TornWriteError(
                second.errno, f"can't take back a failed write: {second}", self.log.path
            ) from failure

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Iterate over whole batches, as (position, header), from `position`, which is a batch's, up to the
        position `end`.

        It doesn't read the records. Raises `KafkaError` (CORRUPT_MESSAGE) at an impossible header.
        """
        if end is None:
            end = self.size
        chunk = b""
        chunk_at = position
        while end - position >= BATCH_OVERHEAD:
            if position - chunk_at + BATCH_OVERHEAD > len(chunk):
                chunk_at = position
                chunk = self.files.read(self.log, min(_HEADERS_CHUNK_BYTES, end - position), position)
                if len(chunk) < BATCH_OVERHEAD:
                    return
            header = read_header(chunk, position - chunk_at)
            size = header.batch_length + LOG_OVERHEAD
            if header.magic != MAGIC or size < BATCH_OVERHEAD:
                raise KafkaError(Error.CORRUPT_MESSAGE, f"{self.log.path} at position {position}")
            if position + size > end:
                return
            yield position, header
            position += size

    def find(self, offset: int, position: int) -> tuple[int, BatchHeader] | None:
        """Return the first batch from `position` on that ends at or after the offset; None if all end before it."""
        for at, header in self.batches(position):
            if header.base_offset + header.last_offset_delta >= offset:
                return at, header
        return None

    def find_by_index(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Find the batch as `find` does, starting where the index says.

        An entry leads to a batch that ends at the offset or before it. If it doesn't, the index is damaged
        and is rebuilt.
        """
        position = self.offset_index.lookup(offset)
        if position == 0:
            return self.find(offset, 0)
        if 0 < position < self.size:
            try:
                found = self.find(offset, position)
            except KafkaError:
                found = None
                is_true = False
            else:
                is_true = found is None or found[0] != position or found[1].last_offset == offset
            if is_true:
                return found
        self._index_anew()
        return self.find(offset, 0)

    def position_for(self, offset: int) -> int:
        """Return the position from which to look for the offset, as the index says: see `find_by_index`."""
        position = self.offset_index.lookup(offset)
        if position == 0 or self._ends_by(offset, position):
            return position
        self._index_anew()
        return self.offset_index.lookup(offset)

    def _ends_by(self, offset: int, position: int) -> bool:
        """True if a batch begins at the position, and ends at the offset or before it."""
        if not 0 <= position < self.size:
            return False
        try:
            return all(header.last_offset <= offset for _, header in islice(self.batches(position), 1))
        except KafkaError:
            return False

    def offset_before_time(self, timestamp_ms: int) -> int:
        """Return an offset such that all batches that end before it are earlier than the timestamp, as the
        time index says.

        An entry leads to a batch with its timestamp. If it doesn't, the index is damaged and isn't used.
        Kafka uses it, and skips records.
        """
        found_ms, offset = self.time_index.lookup(timestamp_ms)
        if found_ms == NO_TIMESTAMP or self._has_time(found_ms, offset):
            return offset
        logger.warning("%s leads to no batch with its timestamp, and isn't used", self.time_index.file.path)
        return self.base_offset

    def _has_time(self, timestamp_ms: int, offset: int) -> bool:
        looked = 0
        for _, header in islice(self.batches(self.position_for(offset)), _LOOKED_AT):
            looked += 1
            if header.last_offset >= offset:
                return header.max_timestamp == timestamp_ms or header.base_offset > offset
        return looked == _LOOKED_AT

    def _index_anew(self) -> None:
        logger.warning("%s leads to no batch: rebuilding it", self.offset_index.file.path)
        entries = bytearray()
        indexed = 0
        for position, header in self.batches():
            if position - indexed > _REINDEXED_BYTES:
                entries += self.offset_index.pack(header.last_offset, position)
                indexed = position
        self.offset_index.make_anew(entries)

    def next_offset(self) -> int:
        """The offset after its last batch, or its base if it is empty. Walks from the last index entry."""
        return self.walk_to_end()[0]

    def walk_to_end(self) -> tuple[int, int]:
        """The (offset after the last whole batch, position after it)."""
        next_offset, end = self.base_offset, 0
        for position, header in self.batches(self.offset_index.last_entry()[1]):
            next_offset = header.base_offset + header.last_offset_delta + 1
            end = position + header.batch_length + LOG_OVERHEAD
        return next_offset, end

    def become_inactive(self) -> None:
        """Add a last entry with the largest timestamp to the time index. Retention uses it."""
        if self.max_timestamp_ms is not None:
            self.time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop all batches from the one that holds the offset."""
        found = self.find_by_index(offset)
        self.load_max_timestamp()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        if found is not None:
            self.files.truncate(self.log, found[0])
            self.size = found[0]
        if self.size == 0:
            self.created_ms = now_ms
            self._first_timestamp_ms = None
        self.bytes_since_index_entry = 0
        self._reload_max_timestamp()

    def _reload_max_timestamp(self) -> None:
        timestamp_ms, offset = self.time_index.last_entry()
        for _position, header in self.batches(self.offset_index.lookup(offset)):
            if header.max_timestamp > timestamp_ms:
                timestamp_ms = header.max_timestamp
                offset = header.base_offset + header.last_offset_delta
        self.max_timestamp_ms, self.max_timestamp_offset = timestamp_ms, offset

    def largest_timestamp_ms(self) -> int:
        """The timestamp for retention: the largest one of its records, or else the time when the file was
        last written."""
        timestamp_ms = self.load_max_timestamp()
        return timestamp_ms if timestamp_ms >= 0 else self.files.modified_ms(self.log.path)

    def paths(self) -> list[str]:
        """The paths of its files, whether or not they exist."""
        return [file_path(self.directory, self.base_offset, suffix) for suffix in SEGMENT_SUFFIXES]

    def mark_deleted(self) -> list[str]:
        """Rename its files with `.deleted` and return the new paths, so that the caller can unlink them.

        It is gone once its `.log` is renamed. An index that can't be renamed is an orphan, which the next
        start finds.
        """
        self.close()
        marked = []
        for path in self.paths():
            try:
                self.files.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue
            except OSError as failure:
                if path == self.log.path:
                    raise
                logger.warning("%s is left until the next start: %s", path, failure)
                continue
            marked.append(path + DELETED_SUFFIX)
        return marked

    def relocate(self, directory: str) -> None:
        """Note that the log's directory was renamed. Open files stay open."""
        self.directory = directory
        self.log.path, self.offset_index.file.path, self.time_index.file.path, self.txn_index.file.path = (
            file_path(directory, self.base_offset, suffix)
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
        )

    def close(self) -> None:
        """Close all files. If closing one fails, `OSError` is raised after all are closed."""
        with ExitStack() as closing:
            closing.callback(self.txn_index.close)
            closing.callback(self.time_index.close)
            closing.callback(self.offset_index.close)
            closing.callback(self.files.close, self.log)


# ---- the segments of one log ---------------------------------------------------------------------------------


class Segments:
    """The segments of a log, ascending by base offset. An open log has at least one. Appends go to the last,
    `active`.

    Others may read `row` and `base_offsets`, but only the methods here change them.
    """

    __slots__ = ("active", "base_offsets", "row")

    def __init__(self) -> None:
        self.row: list[Segment] = []
        self.base_offsets: list[int] = []
        self.active: Segment

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, slot: int) -> Segment:
        return self.row[slot]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.row)

    @property
    def size(self) -> int:
        """The bytes of the `.log` files."""
        return sum(segment.size for segment in self.row)

    def add(self, segment: Segment) -> None:
        """Add the segment. It is the active one from now on."""
        self.row.append(segment)
        self.base_offsets.append(segment.base_offset)
        self.active = segment

    def drop(self, doomed: Segment) -> None:
        """Remove the segment. The last remaining one is the active one."""
        if not self.holds(doomed):
            return
        # Copying takes a hundredth of comparing each, and many may be dropped one after the other.
        slot = self.slot_of(doomed.base_offset)
        self.row = [*self.row[:slot], *self.row[slot + 1 :]]
        self.base_offsets = [*self.base_offsets[:slot], *self.base_offsets[slot + 1 :]]
        if self.row:
            self.active = self.row[-1]

    def replace(self, old: Sequence[Segment], segment: Segment) -> None:
        """Replace consecutive segments, none of them the active one."""
        slot = self.row.index(old[0])
        self.row = [*self.row[:slot], segment, *self.row[slot + len(old) :]]
        self.base_offsets = [each.base_offset for each in self.row]

    def begin_with(self, segment: Segment) -> None:
        """Replace all others."""
        self.row, self.base_offsets = [segment], [segment.base_offset]
        self.active = segment

    def newest_first(self, above: int = -1) -> list[Segment]:
        """The segments with a base above the offset, in the order in which a log's end is dropped."""
        return [segment for segment in reversed(self.row) if segment.base_offset > above]

    def next_base_offset(self, slot: int) -> int | None:
        """The base offset of the next segment; None for the active one."""
        return self.base_offsets[slot + 1] if slot + 1 < len(self.base_offsets) else None

    def slot_of(self, offset: int) -> int:
        """The number of the segment that holds the offset; 0 for an offset below all."""
        return max(0, bisect_right(self.base_offsets, offset) - 1)

    def holds(self, segment: Segment) -> bool:
        """True if it is one of them."""
        return bool(self.row) and self.row[self.slot_of(segment.base_offset)] is segment

    def locate(self, offset: int, slot: int, position: int) -> tuple[int, Segment, int] | None:
        """Return number, segment and position of the first batch that ends at or after the offset; None if
        there is none.

        It looks from the given position of a segment on.
        """
        segment = self.row[slot]
        return self._locate(slot, segment, segment.find(offset, position), offset)

    def locate_by_index(self, offset: int, slot: int) -> tuple[int, Segment, int] | None:
        """Find the batch as `locate` does, from where the segment's index says."""
        segment = self.row[slot]
        return self._locate(slot, segment, segment.find_by_index(offset), offset)

    def _locate(
        self, slot: int, segment: Segment, found: tuple[int, BatchHeader] | None, offset: int
    ) -> tuple[int, Segment, int] | None:
        row = self.row
        while found is None:
            slot += 1
            if slot == len(row):
                return None
            segment = row[slot]
            found = segment.find(offset, 0)
        return slot, segment, found[0]

    def base_offset_of(self, offset: int) -> int:
        """Return the base offset of the batch that holds the offset, or the offset itself if there is no such
        batch.

        Raises `OSError`, `KafkaError` and `CorruptRecordError` if it can't be read.
        """
        slot = self.slot_of(offset)
        located = self.locate_by_index(offset, slot)
        if located is None:
            return offset
        _slot, segment, position = located
        found = segment.find(offset, position)
        return offset if found is None else min(found[1].base_offset, offset)

    def close(self) -> None:
        """Close all files. If closing one fails, `OSError` is raised after all are closed."""
        with ExitStack() as closing:
            for segment in self.row:
                closing.callback(segment.close)

    def relocate(self, directory: str) -> None:
        """Note that the log's directory was renamed."""
        for segment in self.row:
            segment.relocate(directory)
