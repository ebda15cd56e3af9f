"""An asyncio loop with virtual time: if nothing is ready, it jumps to the next timer.

It never waits for anything, and the order of events is that of the calls, so a run repeats exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class NothingToCome(Exception):
    """Everything waits, and nothing will ever happen."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Time is in seconds since the loop was made."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._selector = self  # `BaseEventLoop` asks this to wait

    def time(self) -> float:
        return self._now_s

    def select(self, timeout_s: float | None) -> list[Any]:
        """The selector's part. Nothing ever comes from outside, so waiting means moving the clock."""
        if timeout_s is None:
            raise NothingToCome
        if timeout_s > 0:
            # exactly to the next timer: a sum might come out a little lower
            self._now_s = max(self._now_s, self._scheduled[0]._when)  # type: ignore[attr-defined]
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        raise AssertionError("a thread: what it does can't be repeated")


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, R]]) -> R:
    """Return the coroutine's result. What it left running is cancelled."""
    loop = VirtualLoop()
    try:
        asyncio.set_event_loop(loop)
        result = loop.run_until_complete(main(loop))
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        return result
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        loop.set_exception_handler(
            None
        )  # otherwise whoever keeps the loop's time would keep its exception handler's whole world
