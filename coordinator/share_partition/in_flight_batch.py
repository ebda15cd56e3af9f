"""Offsets in a row that were acquired together (Kafka: `InFlightBatch`).

They have one state until anything touches some of them alone; from then on each has its own, and that stays so.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.share_partition.in_flight_state import InFlightState
from coordinator.share_partition.states import AVAILABLE


class InFlightBatch:
    """`whole` is the state of all of them, None once they are told apart: then `each` has one for every offset."""

    __slots__ = ("_done", "each", "first_offset", "last_offset", "whole")

    def __init__(self, first_offset: int, last_offset: int, whole: InFlightState) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.whole: InFlightState | None = whole
        self.each: list[InFlightState] = []
        self._done = 0  # so many of the first of them are terminal and written, which they stay

    @property
    def size(self) -> int:
        """How many offsets."""
        return self.last_offset - self.first_offset + 1

    def state_at(self, offset: int) -> InFlightState:
        return self.each[offset - self.first_offset] if self.whole is None else self.whole

    def split(self) -> None:
        """Tell the offsets apart, each with what all of them had. Nothing where that was done.

        A release that is pending is one already for each of them, whatever comes of its write: as in Kafka.
        """
        whole = self.whole
        if whole is None:
            return
        state, count, member_id, lock = whole.state, whole.delivery_count, whole.member_id, whole.lock
        if whole.is_pending:
            lock = None
        self.each = [InFlightState(state, count, member_id, lock) for _ in range(self.size)]
        whole.relock(None)
        self.whole = None

    def split_behind(self, last_acquired: int) -> None:
        """Tell the offsets apart: those behind `last_acquired` weren't delivered after all."""
        whole = self.whole
        assert whole is not None
        self.split()
        for offset in range(last_acquired + 1, self.last_offset + 1):
            state = self.each[offset - self.first_offset]
            state.relock(None)
            self.each[offset - self.first_offset] = InFlightState(AVAILABLE, whole.delivery_count - 1)

    def states(self, first_offset: int, last_offset: int) -> Iterator[tuple[int, InFlightState]]:
        """Offset and state of those told apart, in this range."""
        first = max(first_offset, self.first_offset)
        for offset in range(first, min(last_offset, self.last_offset) + 1):
            yield offset, self.each[offset - self.first_offset]

    def leading_done(self) -> int:
        """How many of them, from the first one on, are terminal and written."""
        if self.whole is not None:
            return self.size if self.whole.is_terminal and not self.whole.is_pending else 0
        each, done = self.each, self._done
        while done < len(each) and each[done].is_terminal and not each[done].is_pending:
            done += 1
        self._done = done
        return done

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        """Whether all of it lies in this range."""
        return self.first_offset >= first_offset and self.last_offset <= last_offset
