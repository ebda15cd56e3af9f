"""How much of the time the node's loop is idle. Its one thread handles all connections and requests."""

from __future__ import annotations

from collections.abc import Callable

from broker.environment.scheduler import processor_time_s


class Idleness:
    """The idleness of the calling thread. The system counts; this costs nothing between two calls."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._asked_s = monotonic_s()
        self._busy_s = processor_time_s()

    def since_last(self) -> float:
        """The idle part of the time since the last call, or the start, from 0 to 1."""
        now_s, busy_s = self._monotonic_s(), processor_time_s()
        passed_s, worked_s = now_s - self._asked_s, busy_s - self._busy_s
        self._asked_s, self._busy_s = now_s, busy_s
        return min(1.0, max(0.0, 1 - worked_s / passed_s)) if passed_s > 0 else 1.0
