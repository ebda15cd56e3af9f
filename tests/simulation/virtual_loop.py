"""A loop of asyncio whose time is virtual: where nothing is ready it jumps to the next timer.

Nothing is ever waited for, and the order of what happens is that of the calls, so a run repeats itself exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class NothingToCome(Exception):
    """All wait, and nothing is going to happen any more."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Time in seconds since the loop was made."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._selector = self  # whom `BaseEventLoop` asks to wait

    def time(self) -> float:
        return self._now_s

    def select(self, timeout_s: float | None) -> list[Any]:
        """The selector's part: nothing ever comes from outside, so waiting is moving the clock."""
        if timeout_s is None:
            raise NothingToCome
        if timeout_s > 0:
            # exactly to the next timer, not by a sum that may come out a little below it
            self._now_s = max(self._now_s, self._scheduled[0]._when)  # type: ignore[attr-defined]
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        raise AssertionError("a thread: what it does can't be repeated")


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, R]]) -> R:
    """The coroutine's result; what it left running is cancelled."""
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
        )  # or who keeps the loop's time would keep the whole world of its handler
