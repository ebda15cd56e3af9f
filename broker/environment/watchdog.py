"""Who holds the loop for long is logged, since everybody else waits meanwhile.

    Produce v9 of 127.0.0.1:40118 client rdkafka held up everybody for 81 ms

What comes often is told once in a while, with how often it came.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

log = logging.getLogger("barnabas.watchdog")

LONGEST_HOLD_S = 0.05
"""Of the loop, in one turn: who takes longer is logged."""

TURN_S = 0.01
"""From here on a turn ends where there is more to do, and others are served first."""

IN_A_ROW_S = 0.002
"""For so long requests of one connection are served one behind the other, and batches of one Produce appended, before
others are let in; of one that is alone with its listener, for `TURN_S`."""

QUIET_S = 10.0
"""Between two lines about the same kind of work."""


class _Told(NamedTuple):
    """What was said of a kind of work, and what wasn't since."""

    told_s: float
    unsaid: int = 0
    longest_s: float = 0.0


class Watchdog:
    """Told of what took long. The kinds of work are few (APIs, timers), and so are the lines."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self.monotonic_s = monotonic_s
        self._told: dict[str, _Told] = {}

    def held(self, kind: str, who: object, took_s: float) -> None:
        """The loop was held for longer than `LONGEST_HOLD_S`. `who` is part of the text alone."""
        now_s = self.monotonic_s()
        told = self._told.get(kind)
        if told is not None and now_s - told.told_s < QUIET_S:
            longest_s = max(told.longest_s, took_s)
            self._told[kind] = _Told(told.told_s, told.unsaid + 1, longest_s)
            return
        self._told[kind] = _Told(now_s)
        before = ""
        if told is not None and told.unsaid:
            before = f", and {told.unsaid} of the kind did before, for up to {told.longest_s * 1000:.0f} ms"
        log.warning("%s%s held up everybody for %.0f ms%s", kind, who, took_s * 1000, before)
