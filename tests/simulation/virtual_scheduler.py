"""A node's callbacks on the virtual loop, its clock, its background work, and its computing."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from broker.environment.scheduler import Scheduled, TaskFailed
from broker.environment.threads import Asker, Compute, Computed, TakeBack
from protocol.errors import stops_the_broker
from storage.background import Lane, Then, Work, run_in_turn
from tests.simulation.virtual_files import MachineDied

BEGIN_MS = 1_700_000_000_000

MEAN_WORK_S = 1 / 300
"""The average wait of background work."""

COMPUTING_S = (0.001, 0.02, 0.3, 3.0)
"""Computing waits for up to one of these times, and so does the news of its end. In calm times it is the first one."""


class VirtualClock:
    """The wall clock and the monotonic clock run together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time = loop.time

    def now_ms(self) -> int:
        return BEGIN_MS + int(self._time() * 1000)

    def time_ns(self) -> int:
        return self.now_ms() * 1_000_000

    def monotonic_s(self) -> float:
        return self._time()


class _Never:
    """A callback of a dead node, which never comes."""

    def cancel(self) -> None:
        pass


class _Call:
    """A future callback: on the loop, or kept until the node has a turn again."""

    __slots__ = ("args", "callback", "handle", "is_cancelled")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback = callback
        self.args = args
        self.is_cancelled = False
        self.handle: asyncio.Handle

    def cancel(self) -> None:
        self.is_cancelled = True
        self.handle.cancel()


class NodeScheduler:
    """One run of a node. Once it is dead, it does nothing more. While it is paused, its callbacks wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._told: TaskFailed | None = None
        self._kept: list[_Call] | None = None
        self.dead = False
        self.failures: list[BaseException] = []

    def time(self) -> float:
        return self._loop.time()

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> Scheduled:
        # A step of a request that is dropped with a dead node may call this, even when its loop is closed.
        if self.dead:
            return _Never()
        call = _Call(callback, args)
        call.handle = self._loop.call_soon(self._run, call)
        return call

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Scheduled:
        if self.dead:
            return _Never()
        call = _Call(callback, args)
        call.handle = self._loop.call_later(delay_s, self._run, call)
        return call

    def pause(self) -> None:
        """Pause like a stopped process, or a machine that does something else: the clock goes on."""
        if self._kept is None:
            self._kept = []

    def resume(self) -> None:
        """Do everything that was due, in that order."""
        kept, self._kept = self._kept, None
        for call in kept or ():
            if not call.is_cancelled:
                call.handle = self._loop.call_soon(self._run, call)

    def tell_failures(self, failed: TaskFailed) -> Callable[[], None]:
        self._told = failed

        def stop() -> None:
            self._told = None

        return stop

    def failed(self, error: BaseException, of_a_callback: bool) -> None:
        self.failures.append(error)
        if self._told is not None:
            self._told(error, of_a_callback)

    def _run(self, call: _Call) -> None:
        if self.dead:
            return
        if self._kept is not None:
            self._kept.append(call)
            return
        try:
            call.callback(*call.args)
        except MachineDied:
            return
        except Exception as error:
            self.failed(error, True)


class VirtualLanes:
    """Work takes a random time, one piece after the other in each lane; so does the news of its end."""

    def __init__(
        self, scheduler: NodeScheduler, luck: random.Random, mean_s: Callable[[], float] = lambda: MEAN_WORK_S
    ) -> None:
        self._scheduler = scheduler
        self._luck = luck
        self._mean_s = mean_s
        self._queues: dict[Lane, deque[tuple[Work, Then]]] = {lane: deque() for lane in Lane}
        self._finished: asyncio.Future[None] | None = None
        self._stopping = False

    def __call__(self, work: Work, then: Then, /, *, lane: Lane, delay_ms: int = 0) -> None:
        if delay_ms <= 0:
            self._queue(work, then, lane)
        else:
            self._scheduler.call_later(delay_ms / 1000, self._due, work, then, lane)

    def _due(self, work: Work, then: Then, lane: Lane) -> None:
        if not self._stopping:
            self._queue(work, then, lane)

    def _queue(self, work: Work, then: Then, lane: Lane) -> None:
        queue = self._queues[lane]
        queue.append((work, then))
        if len(queue) == 1:
            self._next(lane)

    def _next(self, lane: Lane) -> None:
        self._scheduler.call_later(self._luck.expovariate(1 / self._mean_s()), self._work, lane)

    def _work(self, lane: Lane) -> None:
        work, then = self._queues[lane][0]
        failure: Exception | None = None
        try:
            work()
        except Exception as error:
            failure = error
        self._scheduler.call_later(self._luck.expovariate(3000), self._tell, lane, then, failure)

    def _tell(self, lane: Lane, then: Then, failure: Exception | None) -> None:
        queue = self._queues[lane]
        queue.popleft()
        if queue:
            self._next(lane)
        try:
            then(failure)
            if failure is not None and stops_the_broker(failure):
                raise failure
        finally:
            if self._finished is not None and not any(self._queues.values()) and not self._finished.done():
                self._finished.set_result(None)

    def run_all(self, works: Sequence[Work], /) -> list[Exception | None]:
        return run_in_turn(works)

    async def passed(self, lane: Lane) -> None:
        passed = asyncio.get_running_loop().create_future()
        self._queue(lambda: None, passed.set_result, lane)
        await passed

    async def finish(self) -> None:
        self._stopping = True
        if any(self._queues.values()) and not self._scheduler.dead:
            self._finished = asyncio.get_running_loop().create_future()
            await self._finished


class VirtualComputing:
    """Computing takes a random time, each piece independently."""

    def __init__(self, scheduler: NodeScheduler, luck: random.Random, is_calm: Callable[[], bool]) -> None:
        self._scheduler = scheduler
        self._luck = luck
        self._is_calm = is_calm
        self._stopped = False

    def __call__(self, compute: Compute, then: Computed, asker: Asker | None = None, /) -> TakeBack:
        return self._scheduler.call_later(self._delay_s(), self._compute, compute, then).cancel

    def _delay_s(self) -> float:
        longest_s = COMPUTING_S[0] if self._is_calm() else self._luck.choice(COMPUTING_S)
        return self._luck.uniform(0, longest_s)

    def _compute(self, compute: Compute, then: Computed) -> None:
        if self._stopped:
            return
        value: Any = None
        failure: Exception | None = None
        try:
            value = compute()
        except Exception as error:
            failure = error
        self._scheduler.call_later(self._delay_s(), self._tell, then, value, failure)

    def _tell(self, then: Computed, value: Any, failure: Exception | None) -> None:
        if not self._stopped:
            then(value, failure)

    def stop(self) -> None:
        self._stopped = True
