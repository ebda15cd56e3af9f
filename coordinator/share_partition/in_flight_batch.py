"""Offsets in a row that were acquired together (Kafka: `InFlightBatch`).

They have one state until anything touches some of them alone. From then on they are told apart, and that stays so: in
Kafka each of them has a state of its own then; here those in a row that have all of it in common share one, a *run*.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from coordinator.share_partition.in_flight_state import InFlightState
from coordinator.share_partition.states import AVAILABLE


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
