"""The segments of one log, in a row: which there are, where each begins, which one is appended to."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from protocol.records.batch import BatchHeader
from storage.log.segment import Segment


class Segments:
    """Ascending by base offset; an open log has at least one. The last one, `active`, is appended to.

    `row` and `base_offsets` are for others to read: only the methods here change them.
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
        """Bytes of the `.log` files."""
        return sum(segment.size for segment in self.row)

    def add(self, segment: Segment) -> None:
        """It is the active one from here on."""
        self.row.append(segment)
        self.base_offsets.append(segment.base_offset)
        self.active = segment

    def drop(self, doomed: Segment) -> None:
        """Takes the segment out; the last one that is left is the active one."""
        if not self.holds(doomed):
            return
        # by copying, which takes a hundredth of looking at each: many are dropped one after the other
        slot = self.slot_of(doomed.base_offset)
        self.row = [*self.row[:slot], *self.row[slot + 1 :]]
        self.base_offsets = [*self.base_offsets[:slot], *self.base_offsets[slot + 1 :]]
        if self.row:
            self.active = self.row[-1]

    def replace(self, old: Sequence[Segment], segment: Segment) -> None:
        """It takes the place of neighbours, none of which is the active one."""
        slot = self.row.index(old[0])
        self.row = [*self.row[:slot], segment, *self.row[slot + len(old) :]]
        self.base_offsets = [each.base_offset for each in self.row]

    def begin_with(self, segment: Segment) -> None:
        """It takes the place of all others."""
        self.row, self.base_offsets = [segment], [segment.base_offset]
        self.active = segment

    def newest_first(self, above: int = -1) -> list[Segment]:
        """Those whose base lies above the offset, in the order in which a log's end is dropped."""
        return [segment for segment in reversed(self.row) if segment.base_offset > above]

    def next_base_offset(self, slot: int) -> int | None:
        """Where the segment behind begins; None of the active one."""
        return self.base_offsets[slot + 1] if slot + 1 < len(self.base_offsets) else None

    def slot_of(self, offset: int) -> int:
        """The number of the segment that holds the offset: 0 for an offset below all."""
        return max(0, bisect_right(self.base_offsets, offset) - 1)

    def holds(self, segment: Segment) -> bool:
        """Whether it is one of them."""
        return bool(self.row) and self.row[self.slot_of(segment.base_offset)] is segment

    def locate(self, offset: int, slot: int, position: int) -> tuple[int, Segment, int] | None:
        """Number, segment and position of the first batch that ends at or after the offset, looked for from the given
        position of a segment on; None where none does."""
        segment = self.row[slot]
        return self._locate(slot, segment, segment.find(offset, position), offset)

    def locate_by_index(self, offset: int, slot: int) -> tuple[int, Segment, int] | None:
        """As `locate`, from where the segment's index says."""
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
        """Of the batch that holds the offset; the offset itself where none does. Raises `OSError`, `KafkaError` and
        `CorruptRecordError` where it can't be read."""
        slot = self.slot_of(offset)
        located = self.locate_by_index(offset, slot)
        if located is None:
            return offset
        _slot, segment, position = located
        found = segment.find(offset, position)
        return offset if found is None else min(found[1].base_offset, offset)

    def close(self) -> None:
        """Lets the descriptors go. Raises `OSError` once all are, where closing one of them fails."""
        with ExitStack() as closing:
            for segment in self.row:
                closing.callback(segment.close)

    def relocate(self, directory: str) -> None:
        """The log's directory was renamed."""
        for segment in self.row:
            segment.relocate(directory)
