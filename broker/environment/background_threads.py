"""Work that must not hold up the loop (syncing, writing checkpoints, deleting), in a thread for each lane.

The port is `storage.background.Background`; one thread keeps a lane's order and is as fast as the disk. What is synced
never stands behind what is deleted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from broker.environment.scheduler import LoopScheduler, Scheduled
from broker.environment.threads import Threads, tell_loop
from protocol.errors import stops_the_broker
from storage.background import Lane, Then, Work, run_in_turn
from storage.files import is_out_of_descriptors

log = logging.getLogger("barnabas.background")

AT_ONCE = 16


class Lanes(Protocol):
    """A `storage.background.Background`, with what a node needs at its end."""

    def __call__(self, work: Work, then: Then, /, *, lane: Lane, delay_ms: int = 0) -> None: ...

    def run_all(self, works: Sequence[Work], /) -> list[Exception | None]:
        """A `storage.background.RunAll`."""
        ...

    async def passed(self, lane: Lane) -> None:
        """Wait for what was begun in the lane so far, and until it is told."""
        ...

    async def finish(self) -> None:
        """Wait for what was started; drop what still waits for its delay (it is found again at the next start)."""
        ...


def run_all(works: Sequence[Work]) -> list[Exception | None]:
    """Does all of the work in several threads and waits for it, in the way of `storage.background.RunAll`: a journal
    takes what is synced at the same time as one. What no thread can be started for, the caller does."""
    if len(works) < AT_ONCE:
        return run_in_turn(works)
    shares = [_Share(works[first::AT_ONCE]) for first in range(AT_ONCE)]
    with suppress(RuntimeError, MemoryError):
        for share in shares[1:]:
            threading.Thread(target=share.carry_out, name="syncing", daemon=True).start()
    for share in shares:
        share.carry_out()
    for share in shares:
        share.wait()
    failures: list[Exception | None] = [None] * len(works)
    for first, share in enumerate(shares):
        if share.error is not None:
            raise share.error
        failures[first::AT_ONCE] = share.failures
    return failures


class _Share:
    """What one thread does of much work: whoever comes first, its own or the caller's. A thread may run though its
    `start` has raised, so who does it isn't known from that.

    The locks are made beforehand: too little memory must not end the waiting.
    """

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works
        self._begun = threading.Lock()
        self._under_way = threading.Lock()
        self._under_way.acquire()
        self.failures: list[Exception | None] = []
        self.error: BaseException | None = None
        """What ends a process."""

    def carry_out(self) -> None:
        """Unless another thread has begun it."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self.failures = run_in_turn(self._works)
        except BaseException as error:
            self.error = error
        finally:
            self._under_way.release()

    def wait(self) -> None:
        """Until it is done, by whoever does it."""
        self._under_way.acquire()


def _nothing() -> None:
    """Whoever comes here in a lane knows that all before it is done."""


class BackgroundThreads:
    """Runs work in threads and tells its end on the loop. Made where the loop runs; a lane's thread starts with its
    first work."""

    def __init__(self, scheduler: LoopScheduler | None = None) -> None:
        """`scheduler`: whose node is told of what fails here; without one the loop is."""
        self._loop = asyncio.get_running_loop()
        self._scheduler = scheduler or LoopScheduler()
        self._lanes: dict[Lane, Threads] = {}
        self._waiting: set[_Task] = set()
        self._progress = asyncio.Event()
        self._timers: set[Scheduled] = set()
        self._stopping = False
        weakref.finalize(self, _end, self._lanes)  # of a node that nobody has stopped no thread is left

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
        threads = self._lanes.get(lane)
        if threads is None:
            threads = self._lanes[lane] = Threads(lane.value, 1, self._scheduler)
        task = _Task(self, work, then)
        self._waiting.add(task)
        try:
            threads.put(task)
        except MemoryError:
            self._waiting.discard(task)
            raise
        self._progress.set()

    def done(self, task: _Task) -> None:
        """Called in a thread."""
        tell_loop(self._loop, self._scheduler.guard, self._tell, task)

    def _tell(self, task: _Task) -> None:
        if task not in self._waiting:
            return
        self._waiting.discard(task)
        self._progress.set()
        error, task.error = task.error, None
        try:
            if error is not None and not isinstance(error, Exception):
                raise error
            if error is not None and not is_out_of_descriptors(error):  # of which who waits says so, once
                log.error("work in the background failed: %s", error)
            task.then(error)
            if error is not None and stops_the_broker(error):
                raise error  # as what `then` raises
        finally:
            del error  # its traceback may hold what holds this frame

    def run_all(self, works: Sequence[Work], /) -> list[Exception | None]:
        return run_all(works)

    async def passed(self, lane: Lane) -> None:
        """Wait for what was begun in the lane so far, and until it is told. Where no thread is to be had, it is done
        here."""
        threads = self._lanes.get(lane)
        if threads is None:
            return
        passed = asyncio.Event()
        self._start(_nothing, lambda _: passed.set(), lane)
        threads.carry_out_here()
        await passed.wait()

    async def finish(self) -> None:
        """Wait for what was started; drop what still waits for its delay (it is found again at the next start). Where
        no thread is to be had, it is done here."""
        self._stopping = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        while self._waiting:
            for threads in self._lanes.values():
                threads.carry_out_here()
            self._progress.clear()
            await self._progress.wait()
        for threads in self._lanes.values():
            threads.stop()
            threads.join()
        self._lanes.clear()


class _Task:
    """Work, and who is told of its end."""

    __slots__ = ("_owner", "_work", "error", "then")

    def __init__(self, owner: BackgroundThreads, work: Work, then: Then) -> None:
        self._owner = owner
        self._work = work
        self.then = then
        self.error: BaseException | None = None

    def carry_out(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error
        self._owner.done(self)


def _end(lanes: dict[Lane, Threads]) -> None:
    for threads in lanes.values():
        threads.end()
