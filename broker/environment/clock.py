"""Where a node is told the time, beside its scheduler, whose own goes by the loop. Everything below the broker gets it
as an argument.

What a thread beside the loop has computed is no matter of any clock: `computing` counts the processor's time.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what records say, monotonic time for how long something took."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ("monotonic_s",)

    def __init__(self) -> None:
        # The function itself: a request asks twice and more, and a call of ours around it costs more than the clock.
        self.monotonic_s = time.monotonic

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
