"""Threads beside the loop: one for each lane of what must not hold it up, and some for what is long to compute.

They are started with the first work. What keeps one from being started (a container's limit of processes and threads,
too little memory for its stack) may pass. Until then the work waits in its place; nobody who asks for it fails.
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
"""After so long it is tried again."""


def in_thread_of_its_own(work: Callable[[], None]) -> None:
    """For what waits for others for long, and is wanted by nobody in particular. It doesn't keep the process."""
    threading.Thread(target=work, name="aside", daemon=True).start()


hold_thread: Callable[[float], None] = time.sleep
"""For so many seconds: in a thread of its own."""


class Job(Protocol):
    """What a thread is to do."""

    def carry_out(self) -> None:
        """In a thread. Raises nothing: whoever wants to know is told, with `tell_loop`."""
        ...


class Threads:
    """A few threads, and what waits for them: those who ask take turns. All but `carry_out` is called on the loop.

    Each thread waits at a lock of its own, made beforehand, where a condition would make one each time: it must not end
    by too little memory.
    """

    def __init__(self, name: str, most: int, scheduler: Scheduler) -> None:
        self._name = name
        self._most = most
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, deque[Job]] = OrderedDict()  # by who asks, the next one first
        self._threads: list[threading.Thread] = []
        self._idle: list[threading.Lock] = []  # each is released for its thread to look
        self._retry: Scheduled | None = None
        self._is_refused = False
        self._stopped = False

    def put(self, job: Job, asker: str = "") -> None:
        """Raises nothing but a MemoryError, and then the job isn't here."""
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
            with suppress(MemoryError):  # else the next job tries it
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
                    "no thread for %s can be started (%s): what it is to do waits, and it is tried again each second; "
                    "give the broker more memory, or more threads (pids limit, ulimit -u)",
                    self._name,
                    str(error) or type(error).__name__,
                )

    def take_back(self, job: Job, asker: str = "") -> None:
        """Who asked for it has gone: what waits is no more than what somebody waits for."""
        with self._lock:
            works = self._waiting.get(asker)
            if works is not None and job in works:
                works.remove(job)
                if not works:
                    del self._waiting[asker]

    def carry_out_here(self) -> None:
        """Do what waits, where there is no thread for it: the caller would rather wait for it than for one."""
        while not self._threads:
            with self._lock:
                if not self._waiting:
                    return
                job = self._take()
            job.carry_out()

    def stop(self) -> None:
        """What waits is dropped; what is being done is done."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self.end()

    def end(self) -> None:
        """As `stop`, in any thread, where there is no loop any more."""
        with self._lock:
            self._stopped = True
            self._waiting.clear()
            while self._idle:
                self._idle.pop().release()

    def join(self) -> None:
        """Behind `stop`: wait until the threads are gone."""
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
                del job  # nothing is kept while there is nothing to do
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
        """With the lock, where something waits."""
        asker, works = next(iter(self._waiting.items()))
        job = works.popleft()
        if works:
            self._waiting.move_to_end(asker)  # behind the others
        else:
            del self._waiting[asker]
        return job


class _Begin:
    """Of one thread. `start` may raise though the thread runs: it waits for it with a lock that it makes only then. So
    the thread counts if it has looked for work by then; else it must never do so, as another will be started."""

    __slots__ = ("is_called_off", "is_done", "wake")

    def __init__(self) -> None:
        self.wake = threading.Lock()
        self.is_done = False
        self.is_called_off = False


def only_in_this_thread() -> Callable[[], bool]:
    """Says whether who asks is in the thread that this was called in."""
    owner = threading.get_ident()
    return lambda: threading.get_ident() == owner


def tell_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], /, *args: Any) -> None:
    """From a thread, once the loop can be told. One that is closed has nobody who would want to know.

    It may be told twice: too little memory may be noticed when the loop has the callback already.
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


# --- A lane each for syncing, writing checkpoints, deleting -------------------------------------------------
#
# The port is `storage.background.Background`; one thread keeps a lane's order and is as fast as the disk. What is
# synced never stands behind what is deleted.


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

    def __init__(self, scheduler: OnLoop | None = None) -> None:
        """`scheduler`: whose node is told of what fails here; without one the loop is."""
        self._loop = asyncio.get_running_loop()
        self._scheduler: OnLoop = scheduler or LoopScheduler()
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


# --- What computes for long over bytes that are its own, in threads beside the loop ---------------------------
#
# A thread has the interpreter for as long as `sys.setswitchinterval` says before it lets the loop have it, and not at
# all while a codec unpacks. So others are served meanwhile, if more slowly. What is given to it is a function of its
# arguments: it looks at no state of the node.
#
# Nobody waits for what is under way at a stop: the threads are daemons, which `concurrent.futures` has none of.

Computed = Callable[[Any, BaseException | None], None]
"""Told of what was computed, or of what it failed with."""

TakeBack = Callable[[], object]
"""Nobody wants it any more: it isn't computed unless that has begun, and nobody is told of it then."""

SWITCH_INTERVAL_S = 0.0005
"""How long the loop waits for the interpreter while a thread computes. Java's threads run side by side."""

LONG_AT_ONCE = 1
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

    def __init__(self, scheduler: OnLoop | None = None) -> None:
        """`scheduler`: whose node is told of what fails here; without one the loop is."""
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
