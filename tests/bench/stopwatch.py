"""What processor time named functions take, each without the ones inside of it, while a broker serves."""

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
    """`taken`: by a hop's name what each of its calls took of the thread's processor time, in ns, without the hops that
    it called itself.

    What the stopwatch itself costs its caller is found out first and left out: some tenths of a µs a call.
    """

    def __init__(self) -> None:
        self.taken: dict[str, array[int]] = {}
        self._inside_ns = [0]  # of each hop that is under way: what those inside of it have taken
        self._own_ns = self._within_ns = 0
        self._own_ns, self._within_ns = self._cost()
        self.taken.clear()

    @property
    def costs_ns(self) -> int:
        """What one call of a hop costs the process for the stopwatch's sake."""
        return self._own_ns + self._within_ns

    def timed(self, name: str, function: Callable[P, R]) -> Callable[P, R]:
        """The function, which is the hop of that name from now on."""
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
        """`owner`: a class, or a module with a function of that name."""
        setattr(owner, method, self.timed(name, getattr(owner, method)))

    def _cost(self) -> tuple[int, int]:
        """What a hop costs who calls it beside what it takes, and what of its own it takes for the hop's."""

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
