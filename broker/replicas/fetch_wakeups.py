"""The fetches that wait at one partition."""

from __future__ import annotations

from typing import Protocol


class WaitingFetch(Protocol):
    """What a partition knows of a fetch that waits."""

    is_over: bool

    def recheck(self, place: int) -> None:
        """The partition moved that is at this place among those of the fetch. Raises nothing."""
        ...


class WaitingFetches(dict[WaitingFetch, int]):
    """Woken whenever the partition's offsets, its role or its leader change, or it goes: in the order in which they
    came, so that a run can be repeated. An empty dict is a third of an empty set, and most partitions are idle."""

    __slots__ = ()

    def add(self, fetch: WaitingFetch, place: int) -> None:
        """`place`: what the fetch knows the partition by."""
        self[fetch] = place

    def discard(self, fetch: WaitingFetch) -> None:
        """It waits no more, if it did."""
        self.pop(fetch, None)

    def wake(self) -> None:
        for fetch, place in [*self.items()]:
            fetch.recheck(place)
