"""What computes for long over bytes that are its own, in threads beside the loop.

A thread has the interpreter for as long as `sys.setswitchinterval` says before it lets the loop have it, and not at all
while a codec unpacks. So others are served meanwhile, if more slowly. What is given to it is a function of its
arguments: it looks at no state of the node.

Nobody waits for what is under way at a stop: the threads are daemons, which `concurrent.futures` has none of.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from broker.environment.scheduler import LoopScheduler
from broker.environment.threads import Threads, tell_loop
from protocol.waiting import Compute

Computed = Callable[[Any, BaseException | None], None]
"""Told of what was computed, or of what it failed with."""

TakeBack = Callable[[], object]
"""Nobody wants it any more: it isn't computed unless that has begun, and nobody is told of it then."""

SWITCH_INTERVAL_S = 0.0005
"""How long the loop waits for the interpreter while a thread computes. Java's threads run side by side."""

AT_ONCE = 1
"""Of what may take long. What is brief, and what needs much memory, has a thread of its own; more would take more from
the loop, and memory."""

OUTSIDE_AT_ONCE = 4
"""Of what waits for the world outside: one that gets no answer holds up the others little."""

_THREAD_NAME = "computing"


class Brief:
    """What surely takes less than half a second: it waits for its like alone."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Compute[Any]) -> None:
        self._compute = compute

    def __call__(self) -> Any:
        return self._compute()


class Alone:
    """What may need so much memory that one is computed at a time."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Compute[Any]) -> None:
        self._compute = compute

    def __call__(self) -> Any:
        return self._compute()


class Outside:
    """What waits for the world outside, such as the name service, and computes next to nothing."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Compute[Any]) -> None:
        self._compute = compute

    def __call__(self) -> Any:
        return self._compute()


class Asker(Protocol):
    """In whose name it is computed."""

    computed_s: float
    """What has been computed for it took so long, waiting not counted."""

    @property
    def peer_host(self) -> str:
        """Hosts take turns, however many connections one has."""
        ...


class Computing(Protocol):
    """Where it is done."""

    def __call__(
        self, compute: Compute[Any], then: Computed, asker: Asker | None = None, /
    ) -> TakeBack | None:
        """`then` is called on the loop, in a later turn. None: there is nothing to be taken back.

        Raises nothing but a MemoryError, and then nothing is computed: what can't be begun now, there being no thread
        to be had, is begun later.
        """
        ...

    def stop(self) -> None:
        """What hasn't begun is dropped, and nobody is told of anything any more."""
        ...


class ComputingThreads:
    """Made where the loop runs; its threads start with the first work."""

    def __init__(self, scheduler: LoopScheduler | None = None) -> None:
        """`scheduler`: whose node is told of what fails here; without one the loop is."""
        self._loop = asyncio.get_running_loop()
        scheduler = scheduler or LoopScheduler()
        self._guard = scheduler.guard
        self._brief = Threads(_THREAD_NAME, 1, scheduler)
        self._long = Threads(_THREAD_NAME, AT_ONCE, scheduler)
        self._alone = Threads(_THREAD_NAME, 1, scheduler)
        self._outside = Threads(_THREAD_NAME, OUTSIDE_AT_ONCE, scheduler)
        self._stopped = False

    def __call__(
        self, compute: Compute[Any], then: Computed, asker: Asker | None = None, /
    ) -> TakeBack | None:
        if self._stopped:
            return None
        threads = self._long
        if isinstance(compute, Brief):
            threads = self._brief
        elif isinstance(compute, Alone):
            threads = self._alone
        elif isinstance(compute, Outside):
            threads = self._outside
        work = _Work(compute, then, asker, self._computed)
        name = "" if asker is None else asker.peer_host
        take_back = partial(threads.take_back, work, name)
        threads.put(work, name)
        return take_back

    def _computed(self, work: _Work) -> None:
        """Called in a thread."""
        tell_loop(self._loop, self._guard, self._tell, work)

    def _tell(self, work: _Work) -> None:
        if self._stopped or work.is_told:
            return
        work.is_told = True
        if work.asker is not None:
            work.asker.computed_s += work.took_s
        value, error = work.value, work.error
        work.value = work.error = None
        try:
            work.then(value, error)
        finally:
            del value, error  # its traceback may hold what holds this frame

    def stop(self) -> None:
        self._stopped = True
        for threads in (self._brief, self._long, self._alone, self._outside):
            threads.stop()


class _Work:
    """What is to be computed, and what came of it."""

    __slots__ = ("_computed", "asker", "compute", "error", "is_told", "then", "took_s", "value")

    def __init__(
        self, compute: Compute[Any], then: Computed, asker: Asker | None, computed: Callable[[_Work], None]
    ) -> None:
        self._computed = computed
        self.compute: Compute[Any] | None = compute
        self.then = then
        self.asker = asker
        self.value: Any = None
        self.error: BaseException | None = None
        self.took_s = 0.0
        self.is_told = False

    def carry_out(self) -> None:
        compute, self.compute = self.compute, None
        assert compute is not None
        # the thread's own, which stands while it waits: no time of the node's clock
        began_s = time.thread_time()
        try:
            self.value = compute()
        except BaseException as error:
            self.error = error
        self.took_s = time.thread_time() - began_s
        del compute
        self._computed(self)


def is_under_way() -> bool:
    """Whether any thread is still computing, in whatever name."""
    return any(thread.name == _THREAD_NAME for thread in threading.enumerate())


class ComputingAtOnce:
    """Where there are no threads: it is done before the call returns."""

    def __call__(self, compute: Compute[Any], then: Computed, asker: Asker | None = None, /) -> None:
        try:
            computed = compute()
        except Exception as error:
            then(None, error)
        else:
            then(computed, None)

    def stop(self) -> None:
        pass
