"""The fetches that wait at one partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

WOKEN_PER_TURN = 100
"""Fetches that one move of a partition answers in one turn of the loop, at some 40 µs each."""


class WaitingFetch(Protocol):
    """What a partition knows of a fetch that waits."""

    is_over: bool

    def recheck(self, place: int) -> None:
        """The partition moved that is at this place among those of the fetch. Raises nothing."""
        ...

    def call_soon(self, callback: Callable[[], object]) -> object:
        """In a turn of its own."""
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
        """Where very many wait, some now, and the others in turns of their own."""
        _wake([*self.items()])


def _wake(waiting: Sequence[tuple[WaitingFetch, int]]) -> None:
    if len(waiting) > WOKEN_PER_TURN:
        waiting, rest = waiting[:WOKEN_PER_TURN], waiting[WOKEN_PER_TURN:]
        rest[0][0].call_soon(partial(_wake, rest))
    for fetch, place in waiting:
        fetch.recheck(place)
