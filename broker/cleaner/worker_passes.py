"""Passes in processes beside the broker (`worker`). Each process makes one pass at a time.

A process starts when it is needed, and ends after a while without work. So an idle broker keeps neither a
process nor its memory. Ending a pass ends its process.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.cleaner.passes import PassLostError
from broker.cleaner.worker import GO, HELLO, Failure, Order, Rest
from storage.cleaning.plan import CleanedSegment, CleaningResult
from storage.files import OUT_OF_DESCRIPTORS

if TYPE_CHECKING:
    from broker.cleaner.passes import Pass, Passes, Throttle, Told
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.environment.workers import Worker, Workers
    from storage.cleaning.plan import CleaningPlan

log = logging.getLogger("barnabas.cleaner")

WORKER = "broker.cleaner.worker"
KEPT_IDLE_S = 30.0

_UNTHROTTLED_BYTES_PER_S = 1e12
_ASKS_S = 0.1  # how long a throttled pass may run between requests, at its rate
_ASKED_BYTES = 64 * 1024

MOST_REFUSED = 20
"""How often in a row to try to start a process, for one partition every 15 s, before making passes in this
process."""

_NO_ROOM = OUT_OF_DESCRIPTORS | {errno.EAGAIN, errno.ENOMEM}


class WorkerPasses:
    """Makes passes in processes. If there can't be any, or one ends before it reports, `instead` makes the
    pass."""

    def __init__(self, workers: Workers, scheduler: Scheduler, instead: Passes) -> None:
        self._workers = workers
        self._scheduler = scheduler
        self._instead = instead
        self._idle: list[_Desk] = []
        self._busy: list[_Desk] = []
        self._leaving: list[_Desk] = []
        self._timer: Scheduled | None = None
        self._refused = 0  # processes that couldn't be started, in a row

    def begin(self, plan: CleaningPlan, told: Told, throttle: Throttle) -> Pass:
        """Begin a pass in an idle or a new process.

        Raises MemoryError if the system has no room for a process now: a pass in this process would need as
        much, and hold others up. If there is no room for long, a pass in this process is better than none.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._idle:
            desk = self._idle.pop()
        else:
            desk = _Desk(self._scheduler, self._freed, self._lost, self._left)
            try:
                desk.worker = self._workers.start(WORKER, desk.received, desk.ended)
            except OSError as error:
                self._refused += 1
                if error.errno in _NO_ROOM and self._refused <= MOST_REFUSED:
                    raise MemoryError(f"can't start a process to compact it: {error}") from error
                log.warning("can't start a process to compact logs, so this one does it: %s", error)
                return self._instead.begin(plan, told, throttle)
            self._refused = 0
            desk.instead = partial(self._instead.begin, plan, told, throttle)
        self._busy.append(desk)
        try:
            desk.begin(plan, told, throttle)
        except MemoryError:
            desk.end(_nobody)
            raise
        return desk

    def _freed(self, desk: _Desk) -> None:
        self._busy.remove(desk)
        self._idle.append(desk)

    def _lost(self, desk: _Desk) -> None:
        for desks in (self._busy, self._idle):
            if desk in desks:
                desks.remove(desk)
        self._leaving.append(desk)

    def _left(self, desk: _Desk) -> None:
        self._leaving.remove(desk)

    def rest(self) -> None:
        if self._timer is None and self._idle:
            self._timer = self._scheduler.call_later(KEPT_IDLE_S, self._dismiss)

    def _dismiss(self) -> None:
        self._timer = None
        for desk in [*self._idle]:
            desk.end(_nobody)

    def stop(self) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        ended = [desk.worker.kill_and_wait() for desk in (*self._busy, *self._idle, *self._leaving)]
        self._busy, self._idle, self._leaving = [], [], []
        return all(ended)


def _nobody() -> None:
    """Called when an idle process is gone. Does nothing."""


class _Desk:
    """A worker and its current pass."""

    worker: Worker
    instead: Callable[[], Pass] | None = None
    """Makes the first pass otherwise. Set until the worker has reported."""

    def __init__(
        self,
        scheduler: Scheduler,
        freed: Callable[[_Desk], None],
        lost: Callable[[_Desk], None],
        left: Callable[[_Desk], None],
    ) -> None:
        self._scheduler = scheduler
        self._freed = freed
        self._lost = lost
        self._left = left
        self._told: Told | None = None
        self._throttle: Throttle | None = None
        self._next: Scheduled | None = None
        self._made_instead: Pass | None = None

    def begin(self, plan: CleaningPlan, told: Told, throttle: Throttle) -> None:
        self._told = told
        self._throttle = throttle
        asks_each_bytes = 0
        if throttle.bytes_per_s < _UNTHROTTLED_BYTES_PER_S:
            asks_each_bytes = max(_ASKED_BYTES, int(throttle.bytes_per_s * _ASKS_S))
        self.worker.send(Order(plan, asks_each_bytes))

    def received(self, message: Any) -> None:
        """Handle a message of the worker."""
        told = self._told
        if message == HELLO:
            self.instead = None
        elif told is None:
            return
        elif isinstance(message, Rest):
            assert self._throttle is not None
            rest_s = self._throttle.rest_s(message.handled, self._scheduler.time())
            self._next = self._scheduler.call_later(rest_s, self._go)
        elif isinstance(message, CleanedSegment):
            told.cleaned(message)
        elif isinstance(message, CleaningResult):
            self._free()
            told.finished(message)
        elif isinstance(message, Failure):
            self._free()
            told.failed(message.error())

    def _free(self) -> None:
        self._told = None
        self._freed(self)

    def _go(self) -> None:
        self._next = None
        self.worker.send(GO)

    def ended(self) -> None:
        """Handle the end of the worker, which nobody here wanted."""
        self._lost(self)
        self._left(self)
        told, self._told = self._told, None
        if told is None:
            return
        if self.instead is None:
            told.failed(PassLostError("the process that compacted it ended"))
        else:
            log.warning("a process to compact logs ended before it began, so this one does it")
            self._made_instead = self.instead()

    def end(self, ended: Callable[[], None]) -> None:
        if self._made_instead is not None:
            self._made_instead.end(ended)
            return
        if self._next is not None:
            self._next.cancel()
        self._told = None
        self._lost(self)

        def gone() -> None:
            self._left(self)
            ended()

        self.worker.kill(gone)
