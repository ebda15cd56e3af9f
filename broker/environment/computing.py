"""What computes for long over bytes that are its own, in threads beside the loop.

A thread has the interpreter for as long as `sys.setswitchinterval` says before it lets the loop have it, and not at all
while a codec unpacks. So others are served meanwhile, if more slowly. What is given to it is a function of its
arguments: it looks at no state of the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Compute = Callable[[], Any]
Computed = Callable[[Any, BaseException | None], None]
"""Told of what was computed, or of what it failed with."""

SWITCH_INTERVAL_S = 0.0005
"""How long the loop waits for the interpreter while a thread computes. Java's threads run side by side."""

AT_ONCE = 2
"""So that one that takes seconds doesn't hold up all that are long; more would take more from the loop."""


class Alone:
    """What may need so much memory that one is computed at a time."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Compute) -> None:
        self._compute = compute

    def __call__(self) -> Any:
        return self._compute()


class Computing(Protocol):
    """Where it is done."""

    def __call__(self, compute: Compute, then: Computed, /) -> None:
        """`then` is called on the loop, in a later turn."""
        ...

    def stop(self) -> None:
        """What hasn't begun is dropped, and nobody is told of anything any more."""
        ...


class ComputingThreads:
    """Made where the loop runs; its threads start with the first work."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._executors: dict[
            bool, ThreadPoolExecutor
        ] = {}  # the one of what is computed alone, and the other
        self._stopped = False

    def __call__(self, compute: Compute, then: Computed, /) -> None:
        if self._stopped:
            return
        future = self._loop.run_in_executor(self._executor(isinstance(compute, Alone)), compute)

        def done(finished: asyncio.Future[Any]) -> None:
            if self._stopped or finished.cancelled():
                return
            error = finished.exception()
            then(None if error is not None else finished.result(), error)

        future.add_done_callback(done)

    def _executor(self, alone: bool) -> ThreadPoolExecutor:
        executor = self._executors.get(alone)
        if executor is None:
            from concurrent.futures import ThreadPoolExecutor

            executor = ThreadPoolExecutor(1 if alone else AT_ONCE, thread_name_prefix="computing")
            self._executors[alone] = executor
        return executor

    def stop(self) -> None:
        self._stopped = True
        for executor in self._executors.values():
            executor.shutdown(wait=False, cancel_futures=True)


class ComputingAtOnce:
    """Where there are no threads: it is done before the call returns."""

    def __call__(self, compute: Compute, then: Computed, /) -> None:
        try:
            computed = compute()
        except Exception as error:
            then(None, error)
        else:
            then(computed, None)

    def stop(self) -> None:
        pass
