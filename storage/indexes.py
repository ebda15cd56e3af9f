"""A segment's indexes: positions of offsets, times, and aborted transactions. All numbers are big-endian.

`.index` has an entry about every `index.interval.bytes`: `int32 last offset of the batch - the segment's base
| int32 position of the batch`. `.timeindex` is for searches by time and for retention: `int64 largest
timestamp so far | int32 last offset of the batch that has it - base`, with strictly ascending timestamps. The
entries of both are in the page cache, as Kafka's are in a mapped file, and are searched there. A partition
that nobody reads only keeps a count.

`.txnindex` has the aborted transactions with a marker in the segment: `int16 version = 0 | int64 producer id |
int64 first offset | int64 last offset (the marker's) | int64 last stable offset`, with strictly ascending last
offsets. Kafka creates the file at the first abort, and trusts its absence: if it was lost, aborted records are
served. Here a segment of a partition that knew transactions keeps even an empty file, so that its absence is
noticed (`recovery.py`). It has no checksum. Records read from the file are *unproven* until they have been checked
against the batches (`storage.log.aborted`). Those that this run has appended or rebuilt are proven.

Source: org.apache.kafka.storage OffsetIndex, TimeIndex, TransactionIndex, AbortedTxn.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from protocol.records.batch import NO_TIMESTAMP
from protocol.wire.primitives import Bytes
from storage.files import File, Files

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
MAX_RELATIVE_OFFSET = 2**31 - 1
"""The largest distance of a segment's last offset from its base: more doesn't fit in an entry."""
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_UNKNOWN = -1


class _Column:
    """One of the two numbers of each entry, as a sequence for `bisect`. Each fetch uses it."""

    __slots__ = ("_count", "_entry_size", "_file", "_read", "_shift", "_size", "_unpack")

    def __init__(
        self, files: Files, file: File, entry_size: int, field: Struct, shift: int, count: int
    ) -> None:
        self._read = files.read
        self._file = file
        self._entry_size = entry_size
        self._unpack = field.unpack
        self._size = field.size
        self._shift = shift
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, slot: int) -> int:
        return self._unpack(self._read(self._file, self._size, slot * self._entry_size + self._shift))[0]  # type: ignore[no-any-return]


class _EntryIndex:
    """A file of entries of two numbers. It reads nothing before it is needed.

    All calls may raise `OSError`: `FileNotFoundError` without a file.
    """

    __slots__ = ("_count", "_files", "_last_entry", "base_offset", "file")

    ENTRY: ClassVar[Struct]
    TRUE_ZEROS: ClassVar[int]
    """How many of the first entries may really be all zeros."""

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self.file = File(path)
        self.base_offset = base_offset
        self._count = _UNKNOWN
        self._last_entry: tuple[int, int] | None = None
        """The last entry, once it was needed."""

    @property
    def count(self) -> int:
        if self._count == _UNKNOWN:
            self._count = self._files.size_of(self.file) // self.ENTRY.size
        return self._count

    def create(self) -> None:
        self._files.create(self.file)
        self._count = 0
        self._last_entry = None

    def make_anew(self, entries: Bytes) -> None:
        """Make these the only entries of the file, each in the form that `pack` returns."""
        self._files.make_say(self.file, entries)
        self._count = len(entries) // self.ENTRY.size
        self._last_entry = None

    def _append(self, packed: bytes, entry: tuple[int, int]) -> None:
        count = self.count
        self._files.append(self.file, packed, count * self.ENTRY.size)
        self._count = count + 1
        self._last_entry = entry

    def _read(self, slot: int) -> bytes:
        size = self.ENTRY.size
        return self._files.read(self.file, size, slot * size)

    def _column(self, field: Struct, shift: int, count: int) -> _Column:
        return _Column(self._files, self.file, self.ENTRY.size, field, shift, count)

    def truncate_to_count(self, count: int) -> None:
        self._files.truncate(self.file, count * self.ENTRY.size)
        self._count = count
        self._last_entry = None

    def trim(self) -> None:
        """Cut off the zeros of a file that a killed Kafka had preallocated."""
        size, entry_size = self._files.size_of(self.file), self.ENTRY.size
        count = self._count = size // entry_size
        if count > self.TRUE_ZEROS and not any(self._read(count - 1)):
            used = used_bytes(self._files.read_whole(self.file.path))
            self.truncate_to_count(-(-used // entry_size))
        elif size % entry_size:
            self.truncate_to_count(count)

    def close(self) -> None:
        self._files.close(self.file)


class OffsetIndex(_EntryIndex):
    """Offsets and their positions in the `.log`. The first batch of a segment never gets an entry, so no real
    entry is all zeros."""

    __slots__ = ()
    ENTRY = OFFSET_ENTRY
    TRUE_ZEROS = 0

    def pack(self, last_offset: int, position: int) -> bytes:
        """An entry in the file's form."""
        return OFFSET_ENTRY.pack(last_offset - self.base_offset, position)

    def append(self, last_offset: int, position: int) -> None:
        """Add an entry. Offsets and positions only ever grow."""
        self._append(self.pack(last_offset, position), (last_offset, position))

    def entry(self, slot: int) -> tuple[int, int]:
        """(offset, position)"""
        relative, position = OFFSET_ENTRY.unpack(self._read(slot))
        return self.base_offset + relative, position

    def last_entry(self) -> tuple[int, int]:
        """(offset, position) of the last entry, (base offset, 0) of an empty index."""
        entry = self._last_entry
        if entry is None:
            count = self.count
            entry = self._last_entry = self.entry(count - 1) if count else (self.base_offset, 0)
        return entry

    def lookup(self, offset: int) -> int:
        """The position from which to look for `offset`: that of the last entry at or below it, 0 without one."""
        count = self.count
        if not count:
            return 0
        column = _Column(self._files, self.file, self.ENTRY.size, _INT32, 0, count)  # each fetch looks here
        slot = bisect_right(column, offset - self.base_offset) - 1
        return OFFSET_ENTRY.unpack(self._read(slot))[1] if slot >= 0 else 0

    def offset_at_or_after(self, position: int) -> int | None:
        """The offset of the first entry whose position is at or after the given one.

        For the very first entry the position has to be after it, since Kafka's search doesn't check whether
        that one is equal (AbstractIndex.binarySearch).
        """
        count = self.count
        if not count or position > self.last_entry()[1]:
            return None
        slot = bisect_left(self._column(_INT32, 4, count), position)
        if slot == 0 and self.entry(0)[1] == position:
            if count == 1:
                return None
            slot = 1
        return self.entry(slot)[0]

    def entry_at_or_before(self, position: int) -> tuple[int, int]:
        """(offset, position) of the last entry at or before the position; (base offset, 0) without one."""
        count = self.count
        slot = bisect_right(self._column(_INT32, 4, count), position) - 1 if count else -1
        return self.entry(slot) if slot >= 0 else (self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above the offset."""
        count = self.count
        self.truncate_to_count(
            bisect_left(self._column(_INT32, 0, count), offset - self.base_offset) if count else 0
        )


class TimeIndex(_EntryIndex):
    """The largest timestamps up to a batch."""

    __slots__ = ()
    ENTRY = TIME_ENTRY
    TRUE_ZEROS = 1

    def pack(self, timestamp_ms: int, offset: int) -> bytes:
        """An entry in the file's form."""
        return TIME_ENTRY.pack(timestamp_ms, offset - self.base_offset)

    def maybe_append(self, timestamp_ms: int, offset: int) -> bool:
        """Add an entry if the timestamp is larger than the last entry's. Returns True if it was."""
        if timestamp_ms <= self.last_entry()[0]:
            return False
        self._append(self.pack(timestamp_ms, offset), (timestamp_ms, offset))
        return True

    def entry(self, slot: int) -> tuple[int, int]:
        """(timestamp, offset)"""
        timestamp_ms, relative = TIME_ENTRY.unpack(self._read(slot))
        return timestamp_ms, self.base_offset + relative

    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry, (-1, base offset) of an empty index."""
        entry = self._last_entry
        if entry is None:
            count = self.count
            entry = self._last_entry = self.entry(count - 1) if count else (NO_TIMESTAMP, self.base_offset)
        return entry

    def lookup(self, timestamp_ms: int) -> tuple[int, int]:
        """(timestamp, offset) of the last entry not above the timestamp, (-1, base offset) without one."""
        count = self.count
        slot = bisect_right(self._column(_INT64, 0, count), timestamp_ms) - 1 if count else -1
        return self.entry(slot) if slot >= 0 else (NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose batch is at or above the offset."""
        count = self.count
        self.truncate_to_count(
            bisect_left(self._column(_INT32, 8, count), offset - self.base_offset) if count else 0
        )


# ---- aborted transactions

_RECORD = Struct(">hqqqq")
RECORD_SIZE = _RECORD.size
_LAST_OFFSET = 3  # of the fields
_VERSION = 0
_RUN = 256
_RUN_SIZE = _RUN * RECORD_SIZE
_KEPT_RUNS = 64


class AbortedTxn(NamedTuple):
    """One record of the index. Offsets are inclusive; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class _Content:
    """The file's content, and what has been decoded of it."""

    __slots__ = ("bounds", "data", "ends", "runs", "unproven")

    def __init__(self, data: bytearray, unproven: bytearray | None = None) -> None:
        del data[len(data) - len(data) % RECORD_SIZE :]
        self.data = data
        self.unproven = unproven
        """A byte for each of the first records, 1 while it is unproven; None if all are proven."""
        last_ones = range(_RUN_SIZE - RECORD_SIZE, len(data), _RUN_SIZE)
        self.ends = [_RECORD.unpack_from(data, position)[_LAST_OFFSET] for position in last_ones]
        """The last offset of each `_RUN` records."""
        self.runs: dict[int, list[AbortedTxn]] = {}
        """Runs that were used lately, including the incomplete one at the end."""
        self.bounds: dict[int, tuple[int, int]] = {}
        """For complete runs that were used, the least first offset and the largest last stable offset.

        If one transaction stays open, all that are aborted meanwhile refer to its offset, and each read would
        have to look at all of them.
        """

    def append(self, txn: AbortedTxn, record: bytes) -> None:
        run = self.runs.get(len(self.data) // _RUN_SIZE)
        if run is not None:
            run.append(txn)
        self.data += record
        if not len(self.data) % _RUN_SIZE:
            self.ends.append(txn.last_offset)

    def are_proven(self, first: int, end: int) -> bool:
        """True if these records are proven, including the one before the first: its end tells which is the first."""
        unproven = self.unproven
        return unproven is None or unproven.find(1, first - 1 if first else 0, end) < 0

    def run(self, run: int) -> list[AbortedTxn]:
        records = self.runs.get(run)
        if records is None:
            if len(self.runs) >= _KEPT_RUNS:
                self.runs.clear()
            start = run * _RUN_SIZE
            records = self.runs[run] = _records_in(self.data[start : start + _RUN_SIZE])
        return records

    def number_at(self, offset: int) -> int:
        """The number of the first record whose marker is at or after the offset."""
        run = bisect_left(self.ends, offset)
        return run * _RUN + bisect_left(self.run(run), offset, key=_last_offset)

    def bounds_of(self, run: int) -> tuple[int, int]:
        """The bounds of a complete run."""
        found = self.bounds.get(run)
        if found is None:
            records = self.run(run)
            self.bounds[run] = found = (
                min(txn.first_offset for txn in records),
                max(txn.last_stable_offset for txn in records),
            )
        return found


class TransactionIndex:
    """The aborted transactions of a segment. The file is read when first needed, and kept as it is. Raises
    `OSError`.

    Records are only decoded when needed. After a start, the first reader of a segment only waits for the
    file, even with hundreds of thousands of aborted transactions.
    """

    __slots__ = ("_files", "_read", "file", "remaking")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.file = File(path)
        self._read: _Content | None = None  # None until needed: most segments have no such file
        self.remaking: Iterator[list[AbortedTxn] | None] | None = None
        """The work of `storage.log.aborted` while it rebuilds the index. None once the segment is cut off."""

    @property
    def records(self) -> list[AbortedTxn]:
        """All records, by last offset."""
        return _records_in(self._content().data)

    @property
    def count(self) -> int:
        """The number of records."""
        read = self._read  # needed for each entry of the other indexes
        return len((self._content() if read is None else read).data) // RECORD_SIZE

    def _content(self) -> _Content:
        if self._read is None:
            try:
                data = bytearray(self._files.read_whole(self.file.path))
            except FileNotFoundError:
                data = bytearray()
            count = len(data) // RECORD_SIZE
            self._read = _Content(data, bytearray(b"\1") * count if count else None)
        return self._read

    def exists(self) -> bool:
        return (self._read is not None and bool(self._read.data)) or self._files.exists(self.file.path)

    def create(self) -> None:
        """Create the file without records."""
        self._files.create(self.file)
        self._read = _Content(bytearray())

    def make_anew(self, records: list[AbortedTxn]) -> None:
        """Make these the only records of the file."""
        data = b"".join(_RECORD.pack(_VERSION, *txn) for txn in records)
        self._files.make_say(self.file, data)
        self.remaking = None
        self._read = _Content(bytearray(data))

    def append(self, txn: AbortedTxn) -> None:
        """Add a record at the end: its marker is the newest one."""
        read = self._content()
        if not read.data and not self._files.exists(self.file.path):
            self._files.create(self.file)
        record = _RECORD.pack(_VERSION, *txn)
        self._files.append(self.file, record, len(read.data))
        read.append(txn, record)

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTxn], bool]:
        """The transactions that overlap [fetch offset, upper bound), and whether no later segment can have more.

        Two consecutive records have to say that all after them began later. If only one decided, a wrong last
        stable offset in it would hide the next record.
        """
        found, complete, _ = self.collect_as_proven(fetch_offset, upper_bound_offset)
        return found, complete

    def collect_as_proven(
        self, fetch_offset: int, upper_bound_offset: int
    ) -> tuple[list[AbortedTxn], bool, bool]:
        """The same as `collect`, and whether all records that it relies on are proven."""
        found: list[AbortedTxn] = []
        read = self._content()
        if not read.data:
            return found, False, True
        ends = read.ends
        said_once = False
        first = read.number_at(fetch_offset)
        run, start = divmod(first, _RUN)
        while run <= len(ends):
            if run < len(ends):
                first_offset, last_stable_offset = read.bounds_of(run)
                if first_offset >= upper_bound_offset > last_stable_offset:
                    run, start = run + 1, 0
                    continue
            records = read.run(run)
            for place in range(start, len(records)):
                txn = records[place]
                if txn.first_offset < upper_bound_offset:
                    found.append(txn)
                if txn.last_stable_offset >= upper_bound_offset:
                    if said_once:
                        return found, True, read.are_proven(first, run * _RUN + place + 1)
                    said_once = True
            run, start = run + 1, 0
        return found, False, read.are_proven(first, run * _RUN)

    def unproven(self, fetch_offset: int, upper_bound_offset: int, most: int) -> list[tuple[int, AbortedTxn]]:
        """The unproven records that `collect` relies on, with their numbers.

        These are up to `most` of the records that it looks at, from the one before the first, and all that it
        returns.
        """
        asked: list[tuple[int, AbortedTxn]] = []
        read = self._content()
        flags = read.unproven
        if flags is None:
            return asked
        ends = read.ends
        run, start = divmod(max(read.number_at(fetch_offset) - 1, 0), _RUN)
        said_once = False
        while run <= len(ends):
            if run < len(ends) and len(asked) >= most:
                first_offset, last_stable_offset = read.bounds_of(run)
                if first_offset >= upper_bound_offset > last_stable_offset:
                    run, start = run + 1, 0
                    continue
            records = read.run(run)
            for place in range(start, len(records)):
                txn, number = records[place], run * _RUN + place
                if number >= len(flags):
                    return asked
                if flags[number] and (len(asked) < most or txn.first_offset < upper_bound_offset):
                    asked.append((number, txn))
                if txn.last_stable_offset >= upper_bound_offset:
                    if said_once:
                        return asked
                    said_once = True
            run, start = run + 1, 0
        return asked

    def believe(self, numbers: Iterable[int] | None = None) -> None:
        """Mark the records with these numbers as proven, or all."""
        read = self._content()
        if numbers is None:
            self.remaking = None
        if numbers is not None and read.unproven is not None:
            for number in numbers:
                read.unproven[number] = 0
        if numbers is None or (read.unproven is not None and read.unproven.find(1) < 0):
            read.unproven = None

    def marker_behind(self, offset: int, count: int, unproven_count: int) -> int | None:
        """The offset of the last of `count` markers from the offset on, or None if there are no more than these.

        If one of them is unproven, `unproven_count` counts instead.
        """
        read = self._content()
        data = read.data
        total = len(data) // RECORD_SIZE
        if total <= (count if read.unproven is None else unproven_count):
            return None
        if offset > _RECORD.unpack_from(data, (total - 1) * RECORD_SIZE)[_LAST_OFFSET]:
            return None  # the usual case: a read at the end
        first = read.number_at(offset)
        if not read.are_proven(first, first + count):
            count = min(count, unproven_count)
        last = first + count - 1
        if last + 1 >= total:
            return None
        found: int = _RECORD.unpack_from(data, last * RECORD_SIZE)[_LAST_OFFSET]
        return found

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or above the offset."""
        self.remaking = None
        count = self._content().number_at(offset)
        if count < self.count:
            self.truncate_to_count(count)

    def truncate_to_count(self, count: int) -> None:
        if self._files.exists(self.file.path):
            self._files.truncate(self.file, count * RECORD_SIZE)
        read = self._content()
        flags = None if read.unproven is None or not any(read.unproven[:count]) else read.unproven[:count]
        self._read = _Content(read.data[: count * RECORD_SIZE], flags)

    def is_sane(self, base_offset: int, end_offset: int) -> bool:
        """True if the file has whole records of a segment with these offsets, and they are possible.

        Each one ends after the one before it. The last stable offset never decreases, and no later record
        began below it.
        """
        if not self._files.exists(self.file.path):
            return True
        data = self._files.read_whole(self.file.path)
        if len(data) % RECORD_SIZE:
            return False
        previous, stable = base_offset - 1, 0
        for version, producer_id, first, last, now_stable in _RECORD.iter_unpack(data):
            if (
                version > _VERSION
                or producer_id < 0
                or not previous < last < end_offset
                or not stable <= first < last
                or not stable <= now_stable <= last + 1
            ):
                return False
            previous, stable = last, now_stable
        return True

    def close(self) -> None:
        self._files.close(self.file)


def _records_in(data: bytes | bytearray) -> list[AbortedTxn]:
    return [AbortedTxn._make(fields[1:]) for fields in _RECORD.iter_unpack(data)]


def _last_offset(txn: AbortedTxn) -> int:
    return txn.last_offset


# --- indexes that a killed Kafka left preallocated, with 10 MiB of zeros each -----------------------------------

_ZEROS: Final = bytes(64 * 1024)


def used_bytes(data: bytes) -> int:
    """The number of bytes without the zeros at the end. It looks at blocks: byte by byte, one of Kafka's
    folders with a hundred partitions would take minutes."""
    end = len(data)
    while end >= len(_ZEROS) and data.endswith(_ZEROS, end - len(_ZEROS), end):
        end -= len(_ZEROS)
    begin = max(end - len(_ZEROS), 0)
    return begin + len(data[begin:end].rstrip(b"\0"))
