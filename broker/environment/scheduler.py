"""When things happen: callbacks on the loop, soon or after a while.

A port of its own rather than the loop, so that several nodes of one process each learn of their own failures, and so
that a test may drop all that a node still had to do, as a killed process does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol


class Scheduled(Protocol):
    """A callback that is to come."""

    def cancel(self) -> None: ...


TaskFailed = Callable[[BaseException, bool], None]
"""Told of an exception that nobody caught, and whether a callback of ours ended with it. Connections that break off,
and requests whose client has gone, come here too."""


class Scheduler(Protocol):
    """Callbacks in the order of their time. Whoever calls often binds the method once."""

    def time(self) -> float:
        """Seconds on the clock that delays are counted by; it never goes back."""
        ...

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> Scheduled:
        """Not within this call, and before any timer."""
        ...

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Scheduled: ...

    def tell_failures(self, failed: TaskFailed) -> Callable[[], None]:
        """Who is told from now on; the call that is returned ends it."""
        ...


class LoopScheduler:
    """The loop that runs where this is made."""

    __slots__ = ("_loop", "call_later", "call_soon", "time")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        # the loop's own methods: what is called for each answer takes no way round
        self.time: Callable[[], float] = loop.time
        self.call_soon: Callable[..., Scheduled] = loop.call_soon
        self.call_later: Callable[..., Scheduled] = loop.call_later

    def tell_failures(self, failed: TaskFailed) -> Callable[[], None]:
        """The loop goes on as well with what it does of itself: logging them."""
        previous = self._loop.get_exception_handler()

        def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            loop.default_exception_handler(context)
            error = context.get("exception")
            if error is not None and not isinstance(error, asyncio.CancelledError):
                failed(error, "handle" in context)

        self._loop.set_exception_handler(handle)
        return lambda: self._loop.set_exception_handler(previous)
