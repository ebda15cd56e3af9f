"""What a share group has in flight of a partition: batches, offsets that are told apart in them, states, locks.

    InFlightRecords → InFlightBatch → InFlightState, of a batch or of a run in it → Lock

`start_offset` (Kafka's SPSO) moves over what is terminal, `end_offset` (SPEO) is the last offset in flight, or the
next one to acquire where there is nothing. A batch is what was acquired together. It has one state until anything
touches some of its offsets alone; from then on they are told apart, and that stays so: in Kafka each of them has a
state of its own then; here those in a row that have all of it in common share one, a *run*.

What an acknowledgement says is the state at once, and can be taken back until its write has succeeded: meanwhile the
change is *pending*, and nobody else may make one.

One lock, with one timer, holds all offsets that were acquired at once, however many of them are told apart later on.
Kafka makes a timer for each then, all of them due at the same time.

Source: `SharePartition`, `InFlightBatch`, `InFlightState`, `AcquisitionLockTimerTask`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from coordinator.share_partition.ports import ShareRuntime, ShareSettings
from coordinator.share_partition.states import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    ENTERED_FROM,
    TERMINAL,
    RecordState,
)

# --- locks: until when what was acquired together stays with its member ---------------------------------------


class Lock:
    """Held by the states of offsets `first` to `last`, as long as any of them refers to it."""

    __slots__ = ("_holders", "_locks", "first_offset", "has_expired", "last_offset")

    def __init__(self, locks: Locks, first_offset: int, last_offset: int) -> None:
        self._locks = locks
        self._holders = 0
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.has_expired = False

    def hold(self) -> Lock:
        """One more state refers to it."""
        self._holders += 1
        return self

    def drop(self) -> None:
        """One state refers to it no more; without any there is nothing to wait for."""
        self._holders -= 1
        if not self._holders:
            self._locks.forget(self)


class Locks:
    """All locks of one share partition. `expired` is called with each whose time is over."""

    def __init__(self, runtime: ShareRuntime, expired: Callable[[Lock], None]) -> None:
        self._runtime = runtime
        self._expired = expired
        self._running: dict[Lock, None] = {}

    def __len__(self) -> int:
        return len(self._running)

    def take(self, first_offset: int, last_offset: int, duration_ms: int) -> Lock:
        """A lock of these offsets, whose time begins now. Nobody holds it yet."""
        lock = Lock(self, first_offset, last_offset)
        self._running[lock] = None
        self._runtime.schedule(lock, duration_ms, partial(self._expire, lock))
        return lock

    def forget(self, lock: Lock) -> None:
        """Nothing happens where its time is over."""
        if lock in self._running:
            self._running.pop(lock, None)
            self._runtime.cancel(lock)

    def go_on_expiring(self, lock: Lock) -> None:
        """Call `expired` with it once more, in a turn of its own: it was much."""
        self._running[lock] = None
        self._runtime.schedule(lock, 0, partial(self._expire, lock))

    def end(self) -> None:
        """None of them expires any more."""
        self._expired = _nothing_is_held
        for lock in self._running:
            self._runtime.cancel(lock)
        self._running.clear()

    def _expire(self, lock: Lock) -> None:
        self._running.pop(lock, None)
        lock.has_expired = True
        self._expired(lock)


def _nothing_is_held(lock: Lock) -> None:
    """Its share partition is gone."""


def dead_state(settings: ShareSettings) -> RecordState:
    """What becomes of a record that is rejected, or was delivered as often as it may be."""
    return ARCHIVING if settings.dead_letter_topic else ARCHIVED


# --- the state of offsets in a row ----------------------------------------------------------------------------

NO_MEMBER = ""
"""As the owner of what isn't acquired: no member has an empty id."""


class InFlightState:
    """State, number of deliveries, owner and lock."""

    __slots__ = (
        "_before",
        "_is_archived_for_good",
        "_parted",
        "delivery_count",
        "lock",
        "member_id",
        "state",
    )

    def __init__(
        self, state: RecordState, delivery_count: int, member_id: str = NO_MEMBER, lock: Lock | None = None
    ) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock = None if lock is None else lock.hold()
        self._before: tuple[RecordState, str, int] | None = None  # state, owner, delivery limit then
        self._is_archived_for_good = False
        self._parted: tuple[int, InFlightState] | None = None  # while a change is pending: see `parts`

    @property
    def is_pending(self) -> bool:
        """Whether a change waits for its write."""
        return self._before is not None

    @property
    def is_available(self) -> bool:
        """Whether it may be acquired."""
        return self.state is AVAILABLE and self._before is None

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    def relock(self, lock: Lock | None) -> None:
        """From now on it is held by this lock, or by none."""
        before, self.lock = self.lock, None if lock is None else lock.hold()
        if before is not None:
            before.drop()

    def parted(self, offset: int) -> InFlightState:
        """From this offset on they have a state of their own, which is the same so far, with the change that is
        pending."""
        behind = InFlightState(self.state, self.delivery_count, self.member_id, self.lock)
        behind._before, behind._is_archived_for_good = self._before, self._is_archived_for_good
        if self._before is not None:
            behind._parted, self._parted = self._parted, (offset, behind)
        return behind

    def parts(self, first_offset: int, last_offset: int) -> list[tuple[int, int, InFlightState]]:
        """What has become of the offsets that it was the state of when the change was begun: first, last, and state of
        each part that they have been told apart into since."""
        found: list[tuple[int, int, InFlightState]] = []
        part, first = self, first_offset
        while part._parted is not None:
            behind, following = part._parted
            found.append((first, behind - 1, part))
            part, first = following, behind
        found.append((first, last_offset, part))
        return found

    def move(
        self,
        to: RecordState,
        delivery_limit: int,
        member_id: str = NO_MEMBER,
        exhausted: RecordState = ARCHIVED,
    ) -> bool:
        """Change the state where that is legal; whether it was. What has been delivered as often as it may be is
        `exhausted` instead of made available: ARCHIVED, or ARCHIVING where it goes to a dead letter queue."""
        if self._before is not None:
            return False
        if to is AVAILABLE and self.delivery_count >= delivery_limit:
            to = exhausted
        if self.state not in ENTERED_FROM[to]:
            return False
        self.state = to
        self.member_id = member_id
        if to is ACQUIRED:
            self.delivery_count += 1
        return True

    def begin(self, to: RecordState, delivery_limit: int, exhausted: RecordState = ARCHIVED) -> bool:
        """As `move`; it is pending until `complete`."""
        before = (self.state, self.member_id, delivery_limit)
        if not self.move(to, delivery_limit, exhausted=exhausted):
            return False
        self._before = before
        return True

    def complete(self, *, is_written: bool, exhausted: RecordState = ARCHIVED) -> None:
        """End what was begun: it holds, or all is as it was. What is taken back isn't its member's any more where its
        lock's time is over meanwhile, and `exhausted` where that was its last delivery: in Kafka ARCHIVED at once, and
        in no dead letter queue."""
        assert self._before is not None, "nothing was begun"
        (state, member_id, limit), self._before = self._before, None
        self._parted = None
        if is_written or self._is_archived_for_good:
            self.relock(None)
        elif self.lock is not None and self.lock.has_expired:
            self.state = exhausted if self.delivery_count >= limit else AVAILABLE
            self.member_id = NO_MEMBER
            self.relock(None)
        else:
            self.state = state
            self.member_id = member_id

    def archive(self) -> None:
        """It is out of reach: the log begins later, it was compacted away, or its transaction was aborted. A pending
        change doesn't undo that."""
        self._is_archived_for_good = True
        self.state = ARCHIVED
        self.member_id = NO_MEMBER
        self.relock(None)


# --- batches --------------------------------------------------------------------------------------------------


class InFlightBatch:
    """`whole` is the state of all of them, None once they are told apart."""

    __slots__ = ("_done", "_firsts", "_states", "first_offset", "last_offset", "whole")

    def __init__(self, first_offset: int, last_offset: int, whole: InFlightState) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.whole: InFlightState | None = whole
        self._firsts: list[int] = []  # of each run, once they are told apart
        self._states: list[InFlightState] = []
        self._done = 0  # so many of the first of them are terminal and written, which they stay

    @property
    def size(self) -> int:
        """How many offsets."""
        return self.last_offset - self.first_offset + 1

    def state_at(self, offset: int) -> InFlightState:
        return self._states[bisect_right(self._firsts, offset) - 1] if self.whole is None else self.whole

    def split(self) -> None:
        """Tell the offsets apart, each with what all of them had. Nothing where that was done.

        A release that is pending is one already for each of them, whatever comes of its write: as in Kafka.
        """
        whole = self.whole
        if whole is None:
            return
        lock = None if whole.is_pending else whole.lock
        self._firsts = [self.first_offset]
        self._states = [InFlightState(whole.state, whole.delivery_count, whole.member_id, lock)]
        whole.relock(None)
        self.whole = None

    def split_behind(self, last_acquired: int) -> None:
        """Tell the offsets apart: those behind `last_acquired` weren't delivered after all."""
        self.split()
        behind = self.cut(last_acquired + 1, self.last_offset)
        behind.relock(None)
        self._states[-1] = InFlightState(AVAILABLE, behind.delivery_count - 1)

    def runs(self, first_offset: int, last_offset: int) -> Iterator[tuple[int, int, InFlightState]]:
        """First and last offset and state of what is told apart, as far as it lies in this range. What was given out
        may be cut before the next one is asked for."""
        firsts = self._firsts
        offset, last = max(first_offset, self.first_offset), min(last_offset, self.last_offset)
        place = bisect_right(firsts, offset) - 1
        while offset <= last:
            while place + 1 < len(firsts) and firsts[place + 1] <= offset:
                place += 1
            behind = firsts[place + 1] if place + 1 < len(firsts) else self.last_offset + 1
            run_last = min(behind - 1, last)
            yield offset, run_last, self._states[place]
            offset = run_last + 1

    def available(self, first_offset: int, last_offset: int) -> Iterator[tuple[int, int, InFlightState]]:
        """As `runs`, of what may be acquired: whoever looks for that may have to pass over hundreds of thousands."""
        firsts, states = self._firsts, self._states
        offset, last = max(first_offset, self.first_offset), min(last_offset, self.last_offset)
        place = bisect_right(firsts, offset) - 1
        while offset <= last:
            for found in range(place, bisect_right(firsts, last)):
                state = states[found]
                if state.state is AVAILABLE and not state.is_pending:
                    break
            else:
                return
            first = max(firsts[found], offset)
            behind = firsts[found + 1] if found + 1 < len(firsts) else self.last_offset + 1
            offset = min(behind, last + 1)
            yield first, offset - 1, state
            place = found + 1
            while place < len(firsts) and firsts[place] < offset:
                place += 1

    def has_delivered(self, least: int, first_offset: int, last_offset: int) -> bool:
        """Whether anything that may be acquired, of what is told apart in this range, was delivered so often."""
        begin, end = (bisect_right(self._firsts, offset) for offset in (first_offset, last_offset))
        return any(
            state.delivery_count >= least and state.is_available
            for state in self._states[max(begin - 1, 0) : end]
        )

    def cut(self, first_offset: int, last_offset: int) -> InFlightState:
        """Tell these offsets, all of one run, apart from the rest of it; their state."""
        firsts = self._firsts
        place = bisect_right(firsts, first_offset) - 1
        if firsts[place] < first_offset:
            self._part(place, first_offset)
            place += 1
        following = firsts[place + 1] if place + 1 < len(firsts) else self.last_offset + 1
        if last_offset + 1 < following:
            self._part(place, last_offset + 1)
        return self._states[place]

    def cut_at(self, offsets: Sequence[int]) -> None:
        """Have a run begin at each of these, which ascend, from the first one of the batch to the one behind its last:
        cut one after the other, each would move all that lie behind it."""
        firsts, states = self._firsts, self._states
        begin, end = bisect_right(firsts, offsets[0]) - 1, bisect_right(firsts, offsets[-1])
        merged_firsts: list[int] = []
        merged_states: list[InFlightState] = []
        number = 0
        for place in range(begin, end):
            first, state = firsts[place], states[place]
            merged_firsts.append(first)
            merged_states.append(state)
            following = firsts[place + 1] if place + 1 < len(firsts) else self.last_offset + 1
            while number < len(offsets) and offsets[number] < following:
                if offsets[number] > first:
                    first = offsets[number]
                    state = state.parted(first)
                    merged_firsts.append(first)
                    merged_states.append(state)
                number += 1
        firsts[begin:end], states[begin:end] = merged_firsts, merged_states

    def _part(self, place: int, offset: int) -> None:
        """A run is two from here on, the second of which begins at the offset."""
        self._firsts.insert(place + 1, offset)
        self._states.insert(place + 1, self._states[place].parted(offset))

    def leading_done(self) -> int:
        """How many of them, from the first one on, are terminal and written."""
        if self.whole is not None:
            return self.size if self.whole.is_terminal and not self.whole.is_pending else 0
        for _, last, state in self.runs(self.first_offset + self._done, self.last_offset):
            if state.is_pending or not state.is_terminal:
                break
            self._done = last - self.first_offset + 1
        return self._done

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        """Whether all of it lies in this range."""
        return self.first_offset >= first_offset and self.last_offset <= last_offset


# --- all that is in flight ------------------------------------------------------------------------------------


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

    def archive_buried(self, first: int, last: int) -> None:
        """What is ARCHIVING of these offsets is archived, and counts as terminal where it isn't before the start."""
        floor = self.floor(first)
        for batch in self.between(first if floor is None else floor.first_offset, last):
            whole = batch.whole
            if whole is not None:
                if whole.state is not ARCHIVING:
                    continue
                if batch.is_within(first, last):
                    self._archive(whole, self.count_from_start(batch.first_offset, batch.last_offset))
                    continue
                batch.split()
            for run_first, run_last, state in batch.runs(first, last):
                if state.state is ARCHIVING:
                    count = self.count_from_start(run_first, run_last)
                    self._archive(batch.cut(run_first, run_last), count)

    def _archive(self, state: InFlightState, count: int) -> None:
        state.archive()
        self.terminal_count += count
