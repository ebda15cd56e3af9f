"""Many questions to the persister, whose answers are of use together.

They are asked some at a time, others being served in between: a topic may have thousands of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from coordinator.ports import Runtime

A = TypeVar("A")

MOST_ASKED_AT_ONCE = 50
"""So many are asked in one turn, at some 50 µs each."""

Ask = Callable[[Callable[[A], None]], None]
"""Asks something, and has the answer given to where it is told."""


def ask_together(runtime: Runtime, asks: Sequence[Ask[A]], then: Callable[[list[A]], None]) -> None:
    """`then` is given the answers, in the order of the questions, once all are there: in this call where they are few
    and come at once. Where the shard is given up meanwhile it may not be called."""
    _Asked(runtime, asks, then).go_on(0)


class _Asked(Generic[A]):
    def __init__(self, runtime: Runtime, asks: Sequence[Ask[A]], then: Callable[[list[A]], None]) -> None:
        self._runtime = runtime
        self._asks = asks
        self._then = then
        self._answers: list[Any] = [None] * len(asks)
        self._missing = len(asks)

    def go_on(self, first: int) -> None:
        last = min(first + MOST_ASKED_AT_ONCE, len(self._asks))
        if last < len(self._asks):
            self._runtime.schedule(self, 0, partial(self.go_on, last))
        if not self._asks:
            self._then([])
        for index in range(first, last):
            self._asks[index](partial(self._answered, index))

    def _answered(self, index: int, answer: A) -> None:
        self._answers[index] = answer
        self._missing -= 1
        if not self._missing:
            self._then(self._answers)
