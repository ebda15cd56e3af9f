"""The processor time of named functions, each without the ones it calls, while a broker serves."""

from __future__ import annotations

import functools
import statistics
import time
from array import array
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

TRIES = 20_000


class Stopwatch:
    """`taken`: by hop name, the processor time in ns that each of its calls took of the thread, without the hops that
    it called.

    The stopwatch measures its own cost first, and leaves it out: some tenths of a µs per call.
    """

    def __init__(self) -> None:
        self.taken: dict[str, array[int]] = {}
        self._inside_ns = [0]  # for each hop in progress, the time of the hops inside it
        self._own_ns = self._within_ns = 0
        self._own_ns, self._within_ns = self._cost()
        self.taken.clear()

    @property
    def costs_ns(self) -> int:
        """What one call of a hop costs the process because of the stopwatch."""
        return self._own_ns + self._within_ns

    def timed(self, name: str, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function as the hop of that name."""
        taken = self.taken.setdefault(name, array("q"))
        inside = self._inside_ns
        now = time.thread_time_ns

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            inside.append(0)
            began = now()
            try:
                return function(*args, **kwargs)
            finally:
                took = now() - began
                taken.append(max(0, took - inside.pop() - self._within_ns))
                inside[-1] += took + self._own_ns

        return run

    def time_method(self, name: str, owner: Any, method: str) -> None:
        """Make a method a hop. `owner`: a class, or a module with a function of that name."""
        setattr(owner, method, self.timed(name, getattr(owner, method)))

    def _cost(self) -> tuple[int, int]:
        """Return what a hop costs its caller beside its own time, and how much of the stopwatch's cost counts as the
        hop's."""

        def nothing() -> None:
            pass

        times = []
        for function in (nothing, self.timed("nothing", nothing)):
            began = time.thread_time_ns()
            for _ in range(TRIES):
                function()
            times.append((time.thread_time_ns() - began) // TRIES)
        within_ns = round(statistics.median(self.taken["nothing"]))
        return max(0, times[1] - times[0] - within_ns), within_ns
