"""Threads beside the loop: started with the first work, and later where they can't be.

What keeps one from being started (a container's limit of processes and threads, too little memory for its stack) may
pass. Until then the work waits in its place; nobody who asks for it fails.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from broker.environment.scheduler import Scheduled, Scheduler

log = logging.getLogger("barnabas.threads")

RETRY_S = 1.0
"""After so long it is tried again."""


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
                log.warning(
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
