"""Who gets the next partition, and who gives one (Kafka: `MemberAssignmentBalancer`).

Members are walked from both ends of their order by load: all at the least load get one each, then they are at the load
of the next ones, who join them; at the other end those at the most load give one each.
"""

from __future__ import annotations

from collections.abc import Sequence


class Balancer:
    """`loads` belong to the caller, who changes them as it gives and takes."""

    def __init__(self, loads: Sequence[int]) -> None:
        self._loads = loads
        self._sorted: list[int] = []
        self._least_end = 0
        self._least_load = 0
        self._next_least = 0
        self._most_start = 0
        self._most_end = 0
        self._most_load = 0
        self._next_most = 0

    def begin(self, members: Sequence[int]) -> int:
        """Start over with these members, of whom there is at least one; how much their loads differ."""
        loads = self._loads
        self._sorted = sorted(members, key=lambda member: (loads[member], member))
        least, most = loads[self._sorted[0]], loads[self._sorted[-1]]
        self._least_end = 0
        self._least_load = least - 1
        self._next_least = 0
        self._most_start = self._most_end = len(self._sorted)
        self._most_load = most + 1
        self._next_most = len(self._sorted) - 1
        return most - least

    def is_balanced(self) -> bool:
        return self._most_load - self._least_load <= 1

    def next_least_loaded(self) -> int:
        """The member that gets the next partition: each of those with the least load in turn."""
        if self._next_least >= self._least_end:
            self._least_load += 1
            while (
                self._least_end < len(self._sorted)
                and self._loads[self._sorted[self._least_end]] == self._least_load
            ):
                self._least_end += 1
            self._next_least = 0
        member = self._sorted[self._next_least]
        self._next_least += 1
        return member

    def next_most_loaded(self) -> int | None:
        """None where nobody is left who could give."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # All of them were excluded: go on with whoever comes next.
                self._most_load = self._loads[self._sorted[self._most_start - 1]]
            else:
                self._most_load -= 1
            while self._most_start > 0 and self._loads[self._sorted[self._most_start - 1]] == self._most_load:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return None
        member = self._sorted[self._next_most]
        self._next_most -= 1
        return member

    def exclude_most_loaded(self) -> None:
        """The one that was given out last has nothing to give: it goes to the end of its range and out of it."""
        at, last = self._next_most + 1, self._most_end - 1
        self._sorted[at], self._sorted[last] = self._sorted[last], self._sorted[at]
        self._most_end -= 1
