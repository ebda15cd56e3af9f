"""What a share group has in flight of a partition: the batches, where they begin and end, how many are done with.

`start_offset` (Kafka's SPSO) moves over what is terminal, `end_offset` (SPEO) is the last offset in flight, or the
next one to acquire where there is nothing. Source: `SharePartition`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from coordinator.share_partition.in_flight_batch import InFlightBatch
from coordinator.share_partition.in_flight_state import InFlightState
from coordinator.share_partition.states import RecordState


class GapWindow:
    """Where durable state has holes: what lies in them was in flight and never written about (Kafka: `GapWindow`).

    It holds as long as nothing is acquired behind `end_offset`; holes from `start_offset` on are to be acquired.
    """

    __slots__ = ("end_offset", "start_offset")

    def __init__(self, start_offset: int, end_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset


class InFlightRecords:
    """Batches by their first offset, none over another."""

    def __init__(self, start_offset: int) -> None:
        self._firsts: list[int] = []
        self._batches: list[InFlightBatch] = []
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.terminal_count = 0
        """Offsets from the start on that are terminal (Kafka: `deliveryCompleteCount`)."""
        self.gap_window: GapWindow | None = None
        self.may_have_available = False
        """Whether an offset that was in flight may be acquired again: it is looked for then."""

    # --- the batches ----------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._batches)

    @property
    def first_key(self) -> int:
        return self._firsts[0]

    @property
    def last_batch(self) -> InFlightBatch:
        return self._batches[-1]

    def put(self, batch: InFlightBatch) -> None:
        """A batch of the same first offset is replaced."""
        first = batch.first_offset
        if not self._firsts or first > self._firsts[-1]:
            self._firsts.append(first)
            self._batches.append(batch)
            return
        place = bisect_left(self._firsts, first)
        if self._firsts[place] == first:
            self._batches[place] = batch
        else:
            self._firsts.insert(place, first)
            self._batches.insert(place, batch)

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at or before the offset."""
        place = bisect_right(self._firsts, offset)
        return self._batches[place - 1] if place else None

    def between(self, first_key: int, last_key: int) -> list[InFlightBatch]:
        """Those that begin in this range, both ends included."""
        return self._batches[bisect_left(self._firsts, first_key) : bisect_right(self._firsts, last_key)]

    def _clear(self) -> None:
        self._firsts.clear()
        self._batches.clear()

    def _drop_before(self, key: int) -> None:
        place = bisect_left(self._firsts, key)
        del self._firsts[:place]
        del self._batches[:place]

    # --- what can be acquired -------------------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        """From start to end, whatever their states are."""
        return self.end_offset - self.start_offset + 1 if self._firsts else 0

    @property
    def is_gap_window_active(self) -> bool:
        return self.gap_window is not None and self.gap_window.end_offset == self.end_offset

    def next_fetch_offset(self) -> int:
        """From where to read what is acquired next."""
        if not self._firsts or self.start_offset > self.last_batch.last_offset:
            self.may_have_available = False
            return self.end_offset
        if self.may_have_available:
            found = self._first_available()
            if found is not None:
                return found
            self.may_have_available = False
        return self.end_offset + 1

    def _first_available(self) -> int | None:
        window = self.gap_window if self.is_gap_window_active else None
        gap_start = -1 if window is None else window.start_offset
        for batch in self._batches:
            if window is not None:
                if batch.first_offset > gap_start:
                    return gap_start
                gap_start = max(batch.last_offset + 1, gap_start)
            if batch.whole is not None:
                if batch.whole.is_available:
                    return batch.first_offset
                continue
            for first, _, _ in batch.available(batch.first_offset, batch.last_offset):
                return first
        return None

    def can_acquire(self, most: int) -> bool:
        """Whether a fetch may find anything: something in flight is available, or fewer than `most` are in flight."""
        return self.next_fetch_offset() != self.end_offset + 1 or self.in_flight_count < most

    def narrow_gap_window(self, offset: int) -> None:
        """All before the offset is acquired."""
        window = self.gap_window
        if window is None:
            return
        if window.end_offset == self.end_offset and offset <= window.end_offset:
            window.start_offset = offset
        else:
            self.gap_window = None

    # --- where it begins ------------------------------------------------------------------------------------

    def count_from_start(self, first_offset: int, last_offset: int) -> int:
        """How many of these offsets lie at or behind the start."""
        return max(0, last_offset - max(self.start_offset, first_offset) + 1)

    def advance_start(self) -> bool:
        """Move the start over what is terminal and written; whether anything left.

        Kafka: `maybeUpdateCachedStateAndOffsets`, whose start goes back where the log begins behind all of it.
        """
        if not self._starts_terminal():
            return False
        last_done, count = self._leading_terminal()
        if last_done is None:
            return False
        if last_done == self.last_batch.last_offset:
            self.start_offset = self.end_offset = max(self.start_offset, last_done + 1)
            self._clear()
            self.terminal_count = 0
            return True
        batch = self.floor(last_done)
        assert batch is not None
        if last_done == batch.last_offset:
            following = self._firsts[bisect_right(self._firsts, last_done)]
            self.start_offset = max(self.start_offset, following)
            if self.gap_window is not None and self.is_gap_window_active:
                self.start_offset = min(self.gap_window.start_offset, self.start_offset)
            self._drop_before(following)
        else:
            self.start_offset = max(self.start_offset, last_done + 1)
            self._drop_before(batch.first_offset)
        self.terminal_count -= count
        return True

    def _starts_terminal(self) -> bool:
        """Whether the offset at the start is terminal and written. It isn't known at all where a hole is there."""
        batch = self.floor(self.start_offset)
        if batch is None:
            return False
        if batch.last_offset < self.start_offset:
            state = batch.state_at(batch.last_offset)
        else:
            state = batch.state_at(self.start_offset)
        return not state.is_pending and state.is_terminal

    def _leading_terminal(self) -> tuple[int | None, int]:
        """The last of the offsets in a row that are terminal, None without any; how many of them count."""
        last_done: int | None = None
        count = 0
        window = self.gap_window if self.is_gap_window_active else None
        for batch in self._batches:
            if window is not None and batch.last_offset >= window.start_offset:
                break
            done = batch.leading_done()
            if done:
                last_done = batch.first_offset + done - 1
                count += self.count_from_start(batch.first_offset, last_done)
            if done < batch.size:
                break
        return last_done, count

    def begin_at(self, log_start_offset: int) -> None:
        """The log begins behind the start: what is before is out of reach (Kafka: `updateCacheAndOffsets`).

        What is acquired there stays so until it is acknowledged or its lock ends. Nothing is written about it: the next
        write has the new start.
        """
        if log_start_offset <= self.start_offset:
            return
        if not self._firsts:
            self.start_offset = self.end_offset = log_start_offset
            self.terminal_count = 0
            return
        gone = self._terminal_before(log_start_offset)
        if self.archive(
            self.start_offset, log_start_offset, self._batches, RecordState.AVAILABLE, counts=False
        ):
            self.may_have_available = True
        self.start_offset = log_start_offset
        # Kafka's stays, and has the holes fetched that the log has no more, for ever.
        if self.gap_window is not None:
            self.gap_window.start_offset = max(self.gap_window.start_offset, log_start_offset)
        self.terminal_count -= gone
        self.end_offset = max(self.end_offset, log_start_offset)

    def _terminal_before(self, end: int) -> int:
        count = 0
        for batch in self.between(self._firsts[0], end - 1):
            if batch.whole is not None:
                if batch.whole.is_terminal:
                    count += self.count_from_start(batch.first_offset, min(end - 1, batch.last_offset))
            else:
                runs = batch.runs(self.start_offset, end - 1)
                count += sum(last - first + 1 for first, last, state in runs if state.is_terminal)
        return count

    # --- what is out of reach -------------------------------------------------------------------------------

    def archive(
        self, first: int, end: int, batches: Iterable[InFlightBatch], in_state: RecordState, *, counts: bool
    ) -> bool:
        """Archive those of the offsets from `first` to before `end` that are in this state; whether there were any.

        `counts`: they count as terminal from now on. Nothing is written.
        """
        any_archived = False
        for batch in batches:
            if batch.first_offset >= end:
                break
            if batch.last_offset < first:
                continue
            if batch.whole is not None:
                if batch.whole.state is not in_state:
                    continue
                if batch.is_within(first, end - 1):
                    self._archive(batch.whole, batch.size if counts else 0)
                    any_archived = True
                    continue
                batch.split()
            for run_first, run_last, state in batch.runs(first, end - 1):
                if state.state is in_state:
                    count = run_last - run_first + 1
                    self._archive(batch.cut(run_first, run_last), count if counts else 0)
                    any_archived = True
        return any_archived

    def _archive(self, state: InFlightState, count: int) -> None:
        state.archive()
        self.terminal_count += count
