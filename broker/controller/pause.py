"""What is long in the controller goes in steps: a generator yields None wherever others may be served.

Nobody else changes the metadata meanwhile: decisions wait for one another (`controller.Controller`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]

CarryOut: TypeAlias = Callable[[Steps[None]], None]
"""Carries the steps out to the end: in this call where there is one. What the first one raises is raised; what fails
later is the node's to know."""

PER_STEP = 500
"""Entries, records or partitions that one step goes through: some milliseconds."""


def at_once(steps: Steps[T]) -> T:
    """What the steps return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class Pause:
    """Says when it is time for one, over loops within loops."""

    __slots__ = ("_left", "_per_step")

    def __init__(self, per_step: int = PER_STEP) -> None:
        self._per_step = self._left = per_step

    def is_due(self, entries: int = 1) -> bool:
        """Asked once for each entry, or for so many at a time, before them or behind them."""
        self._left -= entries
        if self._left > 0:
            return False
        self._left = self._per_step
        return True
