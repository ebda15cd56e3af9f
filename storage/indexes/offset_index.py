"""A segment's `.index`: from offsets to positions in the `.log`, an entry about every `index.interval.bytes`.

Entries of 8 bytes, big-endian: `int32 last offset of the batch - the segment's base | int32 position of the
batch`. Entries are in the page cache, as Kafka's are in a map of the file, and are searched there: a
partition that nobody asks keeps a count and nothing else. Source: org.apache.kafka.storage OffsetIndex.
"""

from bisect import bisect_left, bisect_right
from struct import Struct

from protocol.wire.primitives import Bytes
from storage.files import File, Files
from storage.indexes.preallocated import used_bytes

ENTRY_SIZE = 8
MAX_RELATIVE_OFFSET = 2**31 - 1
"""What an entry holds: a segment's last offset is at most so far from its base."""
_ENTRY = Struct(">ii")
_INT32 = Struct(">i")
_UNKNOWN = -1


class _Column:
    """One of the two numbers of each entry, for `bisect`."""

    __slots__ = ("_count", "_file", "_files", "_shift")

    def __init__(self, files: Files, file: File, shift: int, count: int) -> None:
        self._files = files
        self._file = file
        self._shift = shift
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, slot: int) -> int:
        number: int = _INT32.unpack(self._files.read(self._file, 4, slot * ENTRY_SIZE + self._shift))[0]
        return number


class OffsetIndex:
    """Reads nothing until it is asked. All calls may raise `OSError`: `FileNotFoundError` without a file."""

    __slots__ = ("_count", "_files", "_last_position", "base_offset", "file")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self.file = File(path)
        self.base_offset = base_offset
        self._count = _UNKNOWN
        self._last_position = _UNKNOWN

    @property
    def count(self) -> int:
        if self._count == _UNKNOWN:
            self._count = self._files.size_of(self.file) // ENTRY_SIZE
        return self._count

    def create(self) -> None:
        self._files.create(self.file)
        self._count = 0
        self._last_position = _UNKNOWN

    def pack(self, last_offset: int, position: int) -> bytes:
        """An entry as the file has it."""
        return _ENTRY.pack(last_offset - self.base_offset, position)

    def make_anew(self, entries: Bytes) -> None:
        """Makes the file hold these, each as `pack` gives it, and nothing else."""
        self._files.make_say(self.file, entries)
        self._count = len(entries) // ENTRY_SIZE
        self._last_position = _UNKNOWN

    def append(self, last_offset: int, position: int) -> None:
        """Adds an entry; offsets and positions only ever grow."""
        count = self.count
        self._files.append(self.file, self.pack(last_offset, position), count * ENTRY_SIZE)
        self._count = count + 1
        self._last_position = position

    def entry(self, slot: int) -> tuple[int, int]:
        """(offset, position)"""
        relative, position = _ENTRY.unpack(self._files.read(self.file, ENTRY_SIZE, slot * ENTRY_SIZE))
        return self.base_offset + relative, position

    def last_entry(self) -> tuple[int, int]:
        """(offset, position) of the last entry, (base offset, 0) of an empty index."""
        count = self.count
        return self.entry(count - 1) if count else (self.base_offset, 0)

    def lookup(self, offset: int) -> int:
        """Where to look for `offset` from: the position of the last entry at or below it, 0 without one."""
        count = self.count
        if not count:
            return 0
        slot = bisect_right(_Column(self._files, self.file, 0, count), offset - self.base_offset) - 1
        return self.entry(slot)[1] if slot >= 0 else 0

    def offset_at_or_after(self, position: int) -> int | None:
        """The offset of the first entry whose position is at or after the given one.

        Of the very first entry only the position after: Kafka's search doesn't look whether that one is equal
        (AbstractIndex.binarySearch).
        """
        count = self.count
        if not count:
            return None
        if self._last_position == _UNKNOWN:
            self._last_position = self.entry(count - 1)[1]
        if position > self._last_position:
            return None
        slot = bisect_left(_Column(self._files, self.file, 4, count), position)
        if slot == 0 and self.entry(0)[1] == position:
            if count == 1:
                return None
            slot = 1
        return self.entry(slot)[0]

    def entry_at_or_before(self, position: int) -> tuple[int, int]:
        """(offset, position) of the last entry not behind the position; (base offset, 0) without one."""
        count = self.count
        slot = bisect_right(_Column(self._files, self.file, 4, count), position) - 1 if count else -1
        return self.entry(slot) if slot >= 0 else (self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at or above the offset."""
        count = self.count
        self.truncate_to_count(
            bisect_left(_Column(self._files, self.file, 0, count), offset - self.base_offset) if count else 0
        )

    def truncate_to_count(self, count: int) -> None:
        self._files.truncate(self.file, count * ENTRY_SIZE)
        self._count = count
        self._last_position = _UNKNOWN

    def trim(self) -> None:
        """Cuts off the zeros of a file that Kafka had laid out in full length and was killed over.

        The first batch of a segment never gets an entry, so no real entry is all zeros.
        """
        size = self._files.size_of(self.file)
        count = self._count = size // ENTRY_SIZE
        if count and self.entry(count - 1) == (self.base_offset, 0):
            used = used_bytes(self._files.read_whole(self.file.path))
            self.truncate_to_count(-(-used // ENTRY_SIZE))
        elif size % ENTRY_SIZE:
            self.truncate_to_count(count)

    def close(self) -> None:
        self._files.close(self.file)
