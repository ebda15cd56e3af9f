"""When things happen: callbacks on the loop, soon or after a while.

A port of its own rather than the loop, so that several nodes of one process each learn of their own failures, and so
that a test may drop all that a node still had to do, as a killed process does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
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
    """The loop that runs where this is made.

    What a callback fails with is told to the node that it is of, whoever else has the loop. What comes to the loop by
    other ways, a transport's or a task's, is told to every node: each of them would rather stop than go on wrongly.
    """

    __slots__ = ("_failed", "_loop", "time")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._failed: TaskFailed | None = None
        self.time: Callable[[], float] = self._loop.time

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> Scheduled:
        return self._loop.call_soon(self.guard, callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Scheduled:
        return self._loop.call_later(delay_s, self.guard, callback, *args)

    def guard(self, callback: Callable[..., object], /, *args: Any) -> None:
        """Call it, for the loop: its failure is told here. Where nobody is told, it is raised."""
        try:
            callback(*args)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if self._failed is None:
                raise
            _tell(self._loop, {"message": f"{callback!r} failed", "exception": error}, [self._failed], True)

    def tell_failures(self, failed: TaskFailed) -> Callable[[], None]:
        """The loop goes on as well with what it does of itself: logging them."""
        of_loop = self._loop.get_exception_handler()
        if not isinstance(of_loop, _OfLoop):
            of_loop = _OfLoop(of_loop)
            self._loop.set_exception_handler(of_loop)
        of_loop.told.append(failed)
        self._failed = failed
        return partial(self._forget, of_loop, failed)

    def _forget(self, of_loop: _OfLoop, failed: TaskFailed) -> None:
        self._failed = None
        if failed in of_loop.told:
            of_loop.told.remove(failed)
            if not of_loop.told:
                self._loop.set_exception_handler(of_loop.previous)


class _OfLoop:
    """A loop's exception handler while there are nodes on it."""

    def __init__(self, previous: Any) -> None:
        self.previous = previous
        self.told: list[TaskFailed] = []

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        _tell(loop, context, [*self.told], "handle" in context)


def _tell(
    loop: asyncio.AbstractEventLoop, context: dict[str, Any], told: Sequence[TaskFailed], of_a_callback: bool
) -> None:
    """`context` as of a loop's exception handler. It is logged, too."""
    loop.default_exception_handler(context)
    error = context.get("exception")
    if error is not None and not isinstance(error, asyncio.CancelledError):
        for failed in told:
            failed(error, of_a_callback)
