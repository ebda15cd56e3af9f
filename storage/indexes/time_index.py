"""A segment's `.timeindex`: the largest timestamp up to a batch, for searches by time and for retention.

Entries of 12 bytes, big-endian: `int64 largest timestamp so far | int32 last offset of the batch that has it
- base`. Timestamps grow strictly. Searched in the page cache, like the offset index. Source:
org.apache.kafka.storage TimeIndex.
"""

from bisect import bisect_left, bisect_right
from struct import Struct

from protocol.records.batch import NO_TIMESTAMP
from protocol.wire.primitives import Bytes
from storage.files import File, Files
from storage.indexes.preallocated import used_bytes

ENTRY_SIZE = 12
_ENTRY = Struct(">qi")
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_UNKNOWN = -1


class _Column:
    __slots__ = ("_count", "_field", "_file", "_files", "_shift")

    def __init__(self, files: Files, file: File, field: Struct, shift: int, count: int) -> None:
        self._files = files
        self._file = file
        self._field = field
        self._shift = shift
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, slot: int) -> int:
        data = self._files.read(self._file, self._field.size, slot * ENTRY_SIZE + self._shift)
        number: int = self._field.unpack(data)[0]
        return number


class TimeIndex:
    """Reads nothing until it is asked. All calls may raise `OSError`: `FileNotFoundError` without a file."""

    __slots__ = ("_count", "_files", "_last_entry", "base_offset", "file")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self.file = File(path)
        self.base_offset = base_offset
        self._count = _UNKNOWN
        self._last_entry: tuple[int, int] | None = None

    @property
    def count(self) -> int:
        if self._count == _UNKNOWN:
            self._count = self._files.size_of(self.file) // ENTRY_SIZE
        return self._count

    def create(self) -> None:
        self._files.create(self.file)
        self._count = 0
        self._last_entry = None

    def pack(self, timestamp_ms: int, offset: int) -> bytes:
        """An entry as the file has it."""
        return _ENTRY.pack(timestamp_ms, offset - self.base_offset)

    def make_anew(self, entries: Bytes) -> None:
        """Makes the file hold these, each as `pack` gives it, and nothing else."""
        self._files.make_say(self.file, entries)
        self._count = len(entries) // ENTRY_SIZE
        self._last_entry = None

    def maybe_append(self, timestamp_ms: int, offset: int) -> bool:
        """Adds an entry if the timestamp is larger than the last entry's. Returns whether it was."""
        if timestamp_ms <= self.last_entry()[0]:
            return False
        count = self.count
        self._files.append(self.file, self.pack(timestamp_ms, offset), count * ENTRY_SIZE)
        self._count = count + 1
        self._last_entry = (timestamp_ms, offset)
        return True

    def entry(self, slot: int) -> tuple[int, int]:
        """(timestamp, offset)"""
        timestamp_ms, relative = _ENTRY.unpack(self._files.read(self.file, ENTRY_SIZE, slot * ENTRY_SIZE))
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
        slot = (
            bisect_right(_Column(self._files, self.file, _INT64, 0, count), timestamp_ms) - 1 if count else -1
        )
        return self.entry(slot) if slot >= 0 else (NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries whose batch is at or above the offset."""
        count = self.count
        column = _Column(self._files, self.file, _INT32, 8, count)
        self.truncate_to_count(bisect_left(column, offset - self.base_offset) if count else 0)

    def truncate_to_count(self, count: int) -> None:
        self._files.truncate(self.file, count * ENTRY_SIZE)
        self._count = count
        self._last_entry = None

    def trim(self) -> None:
        """Cuts off the zeros of a file that Kafka had laid out in full length and was killed over."""
        size = self._files.size_of(self.file)
        count = self._count = size // ENTRY_SIZE
        if count > 1 and self.entry(count - 1) == (0, self.base_offset):
            used = used_bytes(self._files.read_whole(self.file.path))
            self.truncate_to_count(-(-used // ENTRY_SIZE))
        elif size % ENTRY_SIZE:
            self.truncate_to_count(count)

    def close(self) -> None:
        self._files.close(self.file)
