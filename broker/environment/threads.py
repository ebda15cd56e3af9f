"""Threads beside the loop: one for each lane of blocking work, and some for long computations.

A thread starts with its first work. The reason that keeps one from starting (a container's limit of processes and
threads, too little memory for its stack) may go away. Until then the work waits in line, and no request for it fails.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from broker.environment.scheduler import LoopScheduler, OnLoop, Scheduled, Scheduler
from protocol.errors import stops_the_broker
from protocol.waiting import Compute
from storage.background import Lane, Then, Work, run_in_turn
from storage.files import is_out_of_descriptors

log = logging.getLogger("barnabas.background")


threads_log = logging.getLogger("barnabas.threads")

RETRY_S = 1.0
"""The wait before starting a thread is tried again."""


def in_thread_of_its_own(work: Callable[[], None]) -> None:
    """Run work that may block for long, and whose result nobody waits for. It doesn't keep the process alive."""
    threading.Thread(target=work, name="aside", daemon=True).start()


hold_thread: Callable[[float], None] = time.sleep
"""Blocks the calling thread for so many seconds."""


class Job(Protocol):
    """Work for a thread."""

    def carry_out(self) -> None:
        """Do the work, in a thread. Raises nothing; it reports its result with `tell_loop`."""
        ...


class Threads:
    """A few threads, and the jobs that wait for them. Askers take turns. All but `carry_out` is called on the loop.

    Each thread waits at a lock of its own, made beforehand: a condition would make one each time, and a shortage of
    memory must not end the thread.
    """

    def __init__(self, name: str, most: int, scheduler: Scheduler) -> None:
        self._name = name
        self._most = most
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, deque[Job]] = OrderedDict()  # by asker, the next one first
        self._threads: list[threading.Thread] = []
        self._idle: list[threading.Lock] = []  # releasing one wakes its thread
        self._retry: Scheduled | None = None
        self._is_refused = False
        self._stopped = False

    def put(self, job: Job, asker: str = "") -> None:
        """Queue a job. Raises only MemoryError; then the job isn't queued."""
        with self._lock:
            works = self._waiting.get(asker)
            if works is None:
                self._waiting[asker] = deque((job,))
            else:
                works.append(job)
            if self._idle:
                self._idle.pop().release()
                return
        if self._retry is None:
            self._start()

    def _start(self) -> None:
        if len(self._threads) == self._most or self._stopped:
            return
        try:
            begin = _Begin()
            thread = threading.Thread(target=self._run, args=(begin,), name=self._name, daemon=True)
            self._threads.append(thread)
            try:
                thread.start()
            except BaseException as error:
                with self._lock:
                    begin.is_called_off = not begin.is_done
                if begin.is_called_off:
                    self._threads.pop()
                if begin.is_called_off or not isinstance(error, MemoryError):
                    raise
        except (RuntimeError, MemoryError) as error:
            with suppress(MemoryError):  # the next job tries it then
                self._retry = self._scheduler.call_later(RETRY_S, self._start_again)
            self._say(error)
        else:
            self._is_refused = False

    def _start_again(self) -> None:
        self._retry = None
        if self._waiting:
            self._start()

    def _say(self, error: Exception) -> None:
        if not self._is_refused:
            self._is_refused = True
            with suppress(MemoryError):
                threads_log.warning(
                    "no thread for %s can be started (%s): its work waits, and the broker tries again each second; "
                    "give it more memory, or more threads (pids limit, ulimit -u)",
                    self._name,
                    str(error) or type(error).__name__,
                )

    def take_back(self, job: Job, asker: str = "") -> None:
        """Drop a waiting job whose asker has gone: only jobs that are still wanted may wait."""
        with self._lock:
            works = self._waiting.get(asker)
            if works is not None and job in works:
                works.remove(job)
                if not works:
                    del self._waiting[asker]

    def carry_out_here(self) -> None:
        """Do the waiting jobs here if there is no thread: the caller would rather wait for them than for a thread."""
        while not self._threads:
            with self._lock:
                if not self._waiting:
                    return
                job = self._take()
            job.carry_out()

    def stop(self) -> None:
        """Drop waiting jobs. Jobs under way are finished."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self.end()

    def end(self) -> None:
        """As `stop`, from any thread, when the loop is gone."""
        with self._lock:
            self._stopped = True
            self._waiting.clear()
            while self._idle:
                self._idle.pop().release()

    def join(self) -> None:
        """After `stop`: wait until the threads are gone."""
        for thread in self._threads:
            thread.join()

    def _run(self, begin: _Begin) -> None:
        begin.wake.acquire()
        while True:
            try:
                job = self._next(begin)
                if job is None:
                    return
                job.carry_out()
                del job  # an idle thread must keep nothing alive
            except MemoryError:
                time.sleep(RETRY_S)

    def _next(self, begin: _Begin) -> Job | None:
        while True:
            with self._lock:
                if begin.is_called_off:
                    return None
                begin.is_done = True
                if self._waiting:
                    return self._take()
                if self._stopped:
                    return None
                self._idle.append(begin.wake)
            begin.wake.acquire()

    def _take(self) -> Job:
        """Take the next job. The caller has the lock, and there is a job."""
        asker, works = next(iter(self._waiting.items()))
        job = works.popleft()
        if works:
            self._waiting.move_to_end(asker)  # behind the others
        else:
            del self._waiting[asker]
        return job


class _Begin:
    """The begin of one thread. `Thread.start` may raise although the thread runs: it waits for the thread with a lock
    that it makes only then. So the thread counts if it has looked for work by then. Else it must never do so, since
    another one will be started."""

    __slots__ = ("is_called_off", "is_done", "wake")

    def __init__(self) -> None:
        self.wake = threading.Lock()
        self.is_done = False
        self.is_called_off = False


def only_in_this_thread() -> Callable[[], bool]:
    """A function that returns True in the thread in which this was called."""
    owner = threading.get_ident()
    return lambda: threading.get_ident() == owner


def tell_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], /, *args: Any) -> None:
    """From a thread, have the loop call back. This retries while memory is short. A closed loop is ignored.

    The loop may call back twice: memory may run short when the loop has the callback already.
    """
    while True:
        try:
            loop.call_soon_threadsafe(callback, *args)
        except MemoryError:
            time.sleep(RETRY_S)
        except RuntimeError:
            return
        else:
            return


# --- Lanes for syncing, writing checkpoints and deleting ----------------------------------------------------
#
# The port is `storage.background.Background`. One thread keeps a lane's order, and is as fast as the disk. Syncing
# never waits behind deleting.


AT_ONCE = 16


class Lanes(Protocol):
    """A `storage.background.Background`, with methods for the end of a node."""

    def __call__(self, work: Work, then: Then, /, *, lane: Lane, delay_ms: int = 0) -> None: ...

    def run_all(self, works: Sequence[Work], /) -> list[Exception | None]:
        """A `storage.background.RunAll`."""
        ...

    async def passed(self, lane: Lane) -> None:
        """Wait until all work that was put into the lane so far is done and reported."""
        ...

    async def finish(self) -> None:
        """Wait for all work; drop work that still waits for its delay (the next start finds it again)."""
        ...


def run_all(works: Sequence[Work]) -> list[Exception | None]:
    """Do all work in several threads, and wait for it, as a `storage.background.RunAll`: a file system's journal takes
    simultaneous syncs as one. If threads can't be started, the caller does their work."""
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
    """A share of much work. Its own thread or the caller's does it, whichever comes first: a thread may run although
    its `start` has raised.

    The locks are made beforehand, so that a shortage of memory can't end the wait.
    """

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works
        self._begun = threading.Lock()
        self._under_way = threading.Lock()
        self._under_way.acquire()
        self.failures: list[Exception | None] = []
        self.error: BaseException | None = None
        """An error that ends the process, if there was one."""

    def carry_out(self) -> None:
        """Do the share, unless another thread has begun it."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self.failures = run_in_turn(self._works)
        except BaseException as error:
            self.error = error
        finally:
            self._under_way.release()

    def wait(self) -> None:
        """Wait until the share is done, by whichever thread."""
        self._under_way.acquire()


def _nothing() -> None:
    """Work that does nothing. Once it is done, all work before it in the lane is done."""


class BackgroundThreads:
    """Runs work in threads, and reports its end on the loop. It is made on the running loop. A lane's thread starts
    with its first work."""

    def __init__(self, scheduler: OnLoop | None = None) -> None:
        """`scheduler`: failures are reported to its node, or else to the loop."""
        self._loop = asyncio.get_running_loop()
        self._scheduler: OnLoop = scheduler or LoopScheduler()
        self._lanes: dict[Lane, Threads] = {}
        self._waiting: set[_Task] = set()
        self._progress = asyncio.Event()
        self._timers: set[Scheduled] = set()
        self._stopping = False
        weakref.finalize(self, _end, self._lanes)  # ends the threads even if the node isn't stopped

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
            if error is not None and not is_out_of_descriptors(error):  # the caller logs that, once
                log.error("work in the background failed: %s", error)
            task.then(error)
            if error is not None and stops_the_broker(error):
                raise error  # like an error of `then`
        finally:
            del error  # else its traceback and this frame could keep each other alive

    def run_all(self, works: Sequence[Work], /) -> list[Exception | None]:
        return run_all(works)

    async def passed(self, lane: Lane) -> None:
        """See `Lanes`. If no thread can be started, the work is done here."""
        threads = self._lanes.get(lane)
        if threads is None:
            return
        passed = asyncio.Event()
        self._start(_nothing, lambda _: passed.set(), lane)
        threads.carry_out_here()
        await passed.wait()

    async def finish(self) -> None:
        """See `Lanes`. If no thread can be started, the work is done here."""
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
    """Work, and the callback for its end."""

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


# --- Long computations over bytes of their own, in threads beside the loop ------------------------------------
#
# A thread holds the interpreter for `sys.setswitchinterval` before the loop gets it, and doesn't hold it while a codec
# unpacks. So requests are served meanwhile, if more slowly. A computation is a function of its arguments: it reads no
# state of the node.
#
# A stop doesn't wait for computations under way: the threads are daemons. `concurrent.futures` has no daemon threads.

Computed = Callable[[Any, BaseException | None], None]
"""Gets the computed value, or the error."""

TakeBack = Callable[[], object]
"""Takes a computation back: it isn't begun any more, and its result isn't reported."""

SWITCH_INTERVAL_S = 0.0005
"""How long the loop waits for the interpreter while a thread computes. Java's threads run side by side."""

LONG_AT_ONCE = 1
"""Threads for computations that may take long. Brief ones, and those that need much memory, have a thread each. More
threads would take more from the loop, and more memory."""

OUTSIDE_AT_ONCE = 4
"""Threads for waits for the outside world: one that gets no answer hardly holds up the others."""

_THREAD_NAME = "computing"


class Brief:
    """A computation that surely takes less than half a second. It waits only for others of its kind."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Compute[Any]) -> None:
        self._compute = compute

    def __call__(self) -> Any:
        return self._compute()


class Alone:
    """A computation that may need much memory, so that only one runs at a time."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Compute[Any]) -> None:
        self._compute = compute

    def __call__(self) -> Any:
        return self._compute()


class Outside:
    """A wait for the outside world, such as the name service. It computes next to nothing."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Compute[Any]) -> None:
        self._compute = compute

    def __call__(self) -> Any:
        return self._compute()


class Asker(Protocol):
    """The request for which something is computed."""

    computed_s: float
    """How long its computations took, without their waits."""

    @property
    def peer_host(self) -> str:
        """The client's host. Hosts take turns, however many connections one has."""
        ...


class Computing(Protocol):
    """Runs computations."""

    def __call__(
        self, compute: Compute[Any], then: Computed, asker: Asker | None = None, /
    ) -> TakeBack | None:
        """Compute. `then` is called on the loop, in a later turn. Returns None if there is nothing to take back.

        Raises only MemoryError; then nothing is computed. If no thread can be started now, the computation begins
        later.
        """
        ...

    def stop(self) -> None:
        """Drop computations that haven't begun, and report nothing any more."""
        ...


class ComputingThreads:
    """Computes in threads. It is made on the running loop. The threads start with the first work."""

    def __init__(self, scheduler: OnLoop | None = None) -> None:
        """`scheduler`: failures are reported to its node, or else to the loop."""
        self._loop = asyncio.get_running_loop()
        scheduler = scheduler or LoopScheduler()
        self._guard = scheduler.guard
        self._brief = Threads(_THREAD_NAME, 1, scheduler)
        self._long = Threads(_THREAD_NAME, LONG_AT_ONCE, scheduler)
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
            del value, error  # else a traceback and this frame could keep each other alive

    def stop(self) -> None:
        self._stopped = True
        for threads in (self._brief, self._long, self._alone, self._outside):
            threads.stop()


class _Work:
    """A computation and its result."""

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
        # the thread's own clock, which stands still while the thread waits; not the node's
        began_s = time.thread_time()
        try:
            self.value = compute()
        except BaseException as error:
            self.error = error
        self.took_s = time.thread_time() - began_s
        del compute
        self._computed(self)


def is_under_way() -> bool:
    """True if there is still a computing thread, of any node."""
    return any(thread.name == _THREAD_NAME for thread in threading.enumerate())


class ComputingAtOnce:
    """Computes without threads, before the call returns."""

    def __call__(self, compute: Compute[Any], then: Computed, asker: Asker | None = None, /) -> None:
        try:
            computed = compute()
        except Exception as error:
            then(None, error)
        else:
            then(computed, None)

    def stop(self) -> None:
        pass
