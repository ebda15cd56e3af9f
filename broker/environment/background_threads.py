"""Work that must not hold up the loop (syncing, writing checkpoints, deleting), in a thread for each lane.

The port is `storage.background.Background`; one thread keeps a lane's order and is as fast as the disk. What is synced
never stands behind what is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker.environment.scheduler import LoopScheduler, Scheduled
from protocol.broken_invariant import stops_the_broker
from storage.background import Lane, Then, Work, run_in_turn

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger("barnabas.background")

AT_ONCE = 16


class Lanes(Protocol):
    """A `storage.background.Background`, with what a node needs at its end."""

    def __call__(self, work: Work, then: Then, /, *, lane: Lane, delay_ms: int = 0) -> None: ...

    def run_all(self, works: Sequence[Work], /) -> list[Exception | None]:
        """A `storage.background.RunAll`."""
        ...

    async def passed(self, lane: Lane) -> None:
        """Wait for what was begun in the lane so far."""
        ...

    async def finish(self) -> None:
        """Wait for what was started; drop what still waits for its delay (it is found again at the next start)."""
        ...


def run_all(works: Sequence[Work]) -> list[Exception | None]:
    """Does all of the work in several threads and waits for it, in the way of `storage.background.RunAll`: a journal
    takes what is synced at the same time as one."""
    if len(works) < AT_ONCE:
        return run_in_turn(works)
    from concurrent.futures import ThreadPoolExecutor

    shares = [works[first::AT_ONCE] for first in range(AT_ONCE)]
    failures: list[Exception | None] = [None] * len(works)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="syncing") as executor:
        for first, of_share in enumerate(executor.map(run_in_turn, shares)):
            failures[first::AT_ONCE] = of_share
    return failures


def _nothing() -> None:
    """Whoever comes here in a lane knows that all before it is done."""


class BackgroundThreads:
    """Runs work in threads and tells its end on the loop. Made where the loop runs; a lane's thread starts with its
    first work."""

    def __init__(self, scheduler: LoopScheduler | None = None) -> None:
        """`scheduler`: whose node is told of what fails here; without one the loop is."""
        self._loop = asyncio.get_running_loop()
        self._scheduler = scheduler or LoopScheduler()
        self._executors: dict[Lane, ThreadPoolExecutor] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self._timers: set[Scheduled] = set()
        self._stopping = False

    def __call__(self, work: Work, then: Then, /, *, lane: Lane, delay_ms: int = 0) -> None:
        if delay_ms <= 0:
            self._start(work, then, lane)
        elif not self._stopping:
            timer: Scheduled

            def due() -> None:
                self._timers.discard(timer)
                self._start(work, then, lane)

            timer = self._scheduler.call_later(delay_ms / 1000, due)
            self._timers.add(timer)

    def _start(self, work: Work, then: Then, lane: Lane) -> None:
        future = self._loop.run_in_executor(self._executor(lane), work)
        self._waiting.add(future)

        def done(finished: asyncio.Future[None]) -> None:
            self._waiting.discard(finished)
            error = finished.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            if error is not None:
                log.error("work in the background failed: %s", error)
            then(error)
            if error is not None and stops_the_broker(error):
                raise error  # as what `then` raises

        future.add_done_callback(partial(self._scheduler.guard, done))

    def _executor(self, lane: Lane) -> ThreadPoolExecutor:
        executor = self._executors.get(lane)
        if executor is None:
            from concurrent.futures import ThreadPoolExecutor

            executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=lane.value)
            self._executors[lane] = executor
        return executor

    def run_all(self, works: Sequence[Work], /) -> list[Exception | None]:
        return run_all(works)

    async def passed(self, lane: Lane) -> None:
        """Wait for what was begun in the lane so far, and until it is told."""
        if lane in self._executors:
            await self._loop.run_in_executor(self._executors[lane], _nothing)

    async def finish(self) -> None:
        """Wait for what was started; drop what still waits for its delay (it is found again at the next start)."""
        self._stopping = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        while self._waiting:
            await asyncio.wait([*self._waiting])
        for executor in self._executors.values():
            executor.shutdown(wait=True)
