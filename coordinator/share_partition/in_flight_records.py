"""A share group's records in flight in a partition: batches, separate offsets in them, states, locks.

    InFlightRecords → InFlightBatch → InFlightState, of a batch or of a run in it → Lock

`start_offset` (Kafka's SPSO) moves over terminal records. `end_offset` (SPEO) is the last offset in flight,
or the next one to acquire if there is none. A batch was acquired together. It has one state until something
changes only some of its offsets. From then on the offsets are separate. In Kafka each has a state of its own
then. Here consecutive offsets with the same state share one, a *run*.

An acknowledgement changes the state at once, and can be taken back until its write has succeeded. Meanwhile
the change is *pending*, and nobody else may make one.

One lock, with one timer, covers all offsets that were acquired at once, even if they become separate later.
Kafka then creates a timer for each, all due at the same time.

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

# --- locks: how long acquired records stay with their member --------------------------------------------------


class Lock:
    """A lock of the offsets `first` to `last`. It exists as long as any of their states refers to it."""

    __slots__ = ("_holders", "_locks", "first_offset", "has_expired", "last_offset")

    def __init__(self, locks: Locks, first_offset: int, last_offset: int) -> None:
        self._locks = locks
        self._holders = 0
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.has_expired = False

    def hold(self) -> Lock:
        """Count one more state that refers to it."""
        self._holders += 1
        return self

    def drop(self) -> None:
        """Count one state less. Without any there is nothing to wait for."""
        self._holders -= 1
        if not self._holders:
            self._locks.forget(self)


class Locks:
    """All locks of one share partition. `expired` is called with each that expires."""

    def __init__(self, runtime: ShareRuntime, expired: Callable[[Lock], None]) -> None:
        self._runtime = runtime
        self._expired = expired
        self._running: dict[Lock, None] = {}

    def __len__(self) -> int:
        return len(self._running)

    def take(self, first_offset: int, last_offset: int, duration_ms: int) -> Lock:
        """Make a lock of these offsets, whose time begins now. Nobody holds it yet."""
        lock = Lock(self, first_offset, last_offset)
        self._running[lock] = None
        self._runtime.schedule(lock, duration_ms, partial(self._expire, lock))
        return lock

    def forget(self, lock: Lock) -> None:
        """Forget the lock. Nothing happens when its time is over."""
        if lock in self._running:
            self._running.pop(lock, None)
            self._runtime.cancel(lock)

    def go_on_expiring(self, lock: Lock) -> None:
        """Call `expired` with this lock again, in a separate turn: the last call left some of its records."""
        self._running[lock] = None
        self._runtime.schedule(lock, 0, partial(self._expire, lock))

    def end(self) -> None:
        """End all locks. None of them expires any more."""
        self._expired = _nothing_is_held
        for lock in self._running:
            self._runtime.cancel(lock)
        self._running.clear()

    def _expire(self, lock: Lock) -> None:
        self._running.pop(lock, None)
        lock.has_expired = True
        self._expired(lock)


def _nothing_is_held(lock: Lock) -> None:
    """The share partition is gone."""


def dead_state(settings: ShareSettings) -> RecordState:
    """The next state of a record that is rejected, or has reached the limit of deliveries."""
    return ARCHIVING if settings.dead_letter_topic else ARCHIVED


# --- the state of consecutive offsets -------------------------------------------------------------------------

NO_MEMBER = ""
"""The owner of records that aren't acquired: no member has an empty id."""


class InFlightState:
    """The state, number of deliveries, owner and lock of consecutive offsets."""

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
        self._before: tuple[RecordState, str, int] | None = (
            None  # the state, owner and delivery limit at that time
        )
        self._is_archived_for_good = False
        self._parted: tuple[int, InFlightState] | None = None  # while a change is pending: see `parts`

    @property
    def is_pending(self) -> bool:
        """True if a change waits for its write."""
        return self._before is not None

    @property
    def is_available(self) -> bool:
        """True if it may be acquired."""
        return self.state is AVAILABLE and self._before is None

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    def relock(self, lock: Lock | None) -> None:
        """Switch to this lock, or to none."""
        before, self.lock = self.lock, None if lock is None else lock.hold()
        if before is not None:
            before.drop()

    def parted(self, offset: int) -> InFlightState:
        """Split off the offsets from this one on, with a state of their own that is the same so far,
        including a pending change."""
        behind = InFlightState(self.state, self.delivery_count, self.member_id, self.lock)
        behind._before, behind._is_archived_for_good = self._before, self._is_archived_for_good
        if self._before is not None:
            behind._parted, self._parted = self._parted, (offset, behind)
        return behind

    def parts(self, first_offset: int, last_offset: int) -> list[tuple[int, int, InFlightState]]:
        """The parts of the offsets that had this state when the change began: first, last, and state of each
        part that was split off since."""
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
        """Change the state if that is legal, and return True. A record at the limit of deliveries becomes
        `exhausted` instead of available: ARCHIVED, or ARCHIVING if it goes to a dead letter queue."""
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
        """Do the same as `move`, but the change is pending until `complete`."""
        before = (self.state, self.member_id, delivery_limit)
        if not self.move(to, delivery_limit, exhausted=exhausted):
            return False
        self._before = before
        return True

    def complete(self, *, is_written: bool, exhausted: RecordState = ARCHIVED) -> None:
        """Complete the change, or take it back.

        If its lock has expired meanwhile, a record that is taken back isn't its member's any more, and it is
        `exhausted` if that was its last delivery. In Kafka it is ARCHIVED at once, and goes to no dead letter
        queue.
        """
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
        """Archive it because it is out of reach: the log begins later, it was compacted away, or its
        transaction was aborted. A pending change doesn't undo that."""
        self._is_archived_for_good = True
        self.state = ARCHIVED
        self.member_id = NO_MEMBER
        self.relock(None)


# --- batches --------------------------------------------------------------------------------------------------


class InFlightBatch:
    """A batch. `whole` is the state of all its offsets, None once they are separate."""

    __slots__ = ("_done", "_firsts", "_states", "first_offset", "last_offset", "whole")

    def __init__(self, first_offset: int, last_offset: int, whole: InFlightState) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.whole: InFlightState | None = whole
        self._firsts: list[int] = []  # of each run, once the offsets are separate
        self._states: list[InFlightState] = []
        self._done = 0  # how many of the first are terminal and written; they stay so

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last_offset - self.first_offset + 1

    def state_at(self, offset: int) -> InFlightState:
        return self._states[bisect_right(self._firsts, offset) - 1] if self.whole is None else self.whole

    def split(self) -> None:
        """Make the offsets separate, each with the common state, unless they are.

        A pending release counts as done for each of them, whatever the outcome of its write, as in Kafka.
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
        """Make the offsets separate, and take back the delivery of those after `last_acquired`."""
        self.split()
        behind = self.cut(last_acquired + 1, self.last_offset)
        behind.relock(None)
        self._states[-1] = InFlightState(AVAILABLE, behind.delivery_count - 1)

    def runs(self, first_offset: int, last_offset: int) -> Iterator[tuple[int, int, InFlightState]]:
        """First and last offset and state of each run, as far as it lies in this range. A run may be cut
        before the next one is requested."""
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
        """The same as `runs`, but only available ones: a search may have to skip hundreds of thousands of others."""
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
        """True if an available run in this range has been delivered at least this often."""
        begin, end = (bisect_right(self._firsts, offset) for offset in (first_offset, last_offset))
        return any(
            state.delivery_count >= least and state.is_available
            for state in self._states[max(begin - 1, 0) : end]
        )

    def cut(self, first_offset: int, last_offset: int) -> InFlightState:
        """Split these offsets, all of one run, off from the rest of it. Returns their state."""
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
        """Let a run begin at each of these ascending offsets, from the batch's first one to the one after its
        last. Cutting one by one would move all the later runs each time."""
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
        """Split a run in two, the second of which begins at the offset."""
        self._firsts.insert(place + 1, offset)
        self._states.insert(place + 1, self._states[place].parted(offset))

    def leading_done(self) -> int:
        """The number of its first offsets that are terminal and written."""
        if self.whole is not None:
            return self.size if self.whole.is_terminal and not self.whole.is_pending else 0
        for _, last, state in self.runs(self.first_offset + self._done, self.last_offset):
            if state.is_pending or not state.is_terminal:
                break
            self._done = last - self.first_offset + 1
        return self._done

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        """True if all of it lies in this range."""
        return self.first_offset >= first_offset and self.last_offset <= last_offset


# --- everything in flight -------------------------------------------------------------------------------------


class GapWindow:
    """The gaps in durable state. Offsets in them were in flight and never written (Kafka: `GapWindow`).

    It is valid as long as nothing is acquired after `end_offset`. Gaps from `start_offset` on are to be acquired.
    """

    __slots__ = ("end_offset", "start_offset")

    def __init__(self, start_offset: int, end_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset


class InFlightRecords:
    """Batches by their first offset, without overlaps."""

    def __init__(self, start_offset: int) -> None:
        self._firsts: list[int] = []
        self._batches: list[InFlightBatch] = []
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.terminal_count = 0
        """The number of terminal offsets from the start on (Kafka: `deliveryCompleteCount`)."""
        self.gap_window: GapWindow | None = None
        self.may_have_available = False
        """True if an offset in flight may be available again. Then it is searched for."""

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
        """Add a batch. It replaces one with the same first offset."""
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
        """Batches that begin in this range, both ends included."""
        return self._batches[bisect_left(self._firsts, first_key) : bisect_right(self._firsts, last_key)]

    def _clear(self) -> None:
        self._firsts.clear()
        self._batches.clear()

    def _drop_before(self, key: int) -> None:
        place = bisect_left(self._firsts, key)
        del self._firsts[:place]
        del self._batches[:place]

    # --- what may be acquired -------------------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        """The number of offsets from start to end, whatever their states."""
        return self.end_offset - self.start_offset + 1 if self._firsts else 0

    @property
    def is_gap_window_active(self) -> bool:
        return self.gap_window is not None and self.gap_window.end_offset == self.end_offset

    def next_fetch_offset(self) -> int:
        """The offset from which to read for the next acquisition."""
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
        """True if a fetch may find something: an offset in flight is available, or fewer than `most` are in flight."""
        return self.next_fetch_offset() != self.end_offset + 1 or self.in_flight_count < most

    def narrow_gap_window(self, offset: int) -> None:
        """Note that everything before the offset is acquired."""
        window = self.gap_window
        if window is None:
            return
        if window.end_offset == self.end_offset and offset <= window.end_offset:
            window.start_offset = offset
        else:
            self.gap_window = None

    # --- the start ------------------------------------------------------------------------------------------

    def count_from_start(self, first_offset: int, last_offset: int) -> int:
        """The number of these offsets at or after the start."""
        return max(0, last_offset - max(self.start_offset, first_offset) + 1)

    def advance_start(self) -> bool:
        """Move the start over offsets that are terminal and written. Returns True if any were.

        Kafka: `maybeUpdateCachedStateAndOffsets`. Its start moves back if the log begins after all of them.
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
        """True if the offset at the start is terminal and written. In a gap it is unknown."""
        batch = self.floor(self.start_offset)
        if batch is None:
            return False
        if batch.last_offset < self.start_offset:
            state = batch.state_at(batch.last_offset)
        else:
            state = batch.state_at(self.start_offset)
        return not state.is_pending and state.is_terminal

    def _leading_terminal(self) -> tuple[int | None, int]:
        """The last of the consecutive terminal offsets, or None, and how many of them count."""
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
        """Move the start to the start of the log. Everything before is out of reach (Kafka:
        `updateCacheAndOffsets`).

        Acquired offsets before it stay acquired until they are acknowledged or their lock ends. That isn't
        written: the next write has the new start.
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
        # Kafka doesn't move its window, and keeps fetching gaps that the log doesn't have any more.
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

    # --- offsets out of reach -------------------------------------------------------------------------------

    def archive(
        self, first: int, end: int, batches: Iterable[InFlightBatch], in_state: RecordState, *, counts: bool
    ) -> bool:
        """Archive those offsets from `first` to before `end` that are in this state. Returns True if there
        were any.

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
        """Archive those of these offsets that are ARCHIVING. They count as terminal, unless they are before
        the start."""
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
