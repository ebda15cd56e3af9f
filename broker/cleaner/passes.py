"""A pass over one partition, how fast it may be, and how it is made on the loop: a step in each turn.

The latter is for files that are not the machine's own, in a test's memory or with faults, and for where no process is
to be had: `worker_passes` has the other way. All passes together keep to `log.cleaner.io.max.bytes.per.second`.
Source: org.apache.kafka.storage.internals.utils Throttler. Its wart is kept: time in which nothing was done counts
into the average, so that what is over within 300 ms isn't slowed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from storage.cleaning.plan import CleanedSegment, CleaningResult, Progress

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled, Scheduler
    from storage.cleaning.plan import CleaningPlan
    from storage.files import Files


_CHECK_S = 0.3
_LONGEST_REST_S = 3600.0  # a rate of 0 is legal, and means never


class Throttle:
    """Looks at the average of a period, which ends when there has been a rest."""

    def __init__(self, bytes_per_s: float, now_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self._begun_s = now_s
        self._handled = 0

    def rest_s(self, handled: int, now_s: float) -> float:
        """So many bytes were read or written: for how long nothing may be, 0 where it goes on at once."""
        self._handled += handled
        elapsed_s = now_s - self._begun_s
        if elapsed_s <= _CHECK_S or not self._handled:
            return 0.0
        due_s = self._handled / self.bytes_per_s if self.bytes_per_s else _LONGEST_REST_S
        rest_s = min(max(0.0, due_s - elapsed_s), _LONGEST_REST_S)
        self._begun_s = now_s + rest_s
        self._handled = 0
        return rest_s


# --- Passes -------------------------------------------------------------------------------------------------


class PassLostError(Exception):
    """The pass has ended, and neither the partition nor the disk is to blame: it may be made again."""


class Told(Protocol):
    """Who learns how a pass goes on. After `finished` or `failed` nothing more is told."""

    def cleaned(self, segment: CleanedSegment) -> None: ...

    def finished(self, result: CleaningResult) -> None: ...

    def failed(self, error: Exception) -> None:
        """`UncleanableError`, `OSError`, `PassLostError`, or a fault of ours."""
        ...


class Pass(Protocol):
    """One that is under way."""

    def end(self, ended: Callable[[], None]) -> None:
        """It comes to nothing, and nothing more is told of it. `ended` is called once nothing of it is written any
        more, its `.cleaned` files being left."""
        ...


class Passes(Protocol):
    """Who makes passes."""

    def begin(self, plan: CleaningPlan, told: Told, throttle: Throttle) -> Pass:
        """Nothing is told within the call."""
        ...

    def rest(self) -> None:
        """There is nothing to do for a while."""
        ...

    def stop(self) -> bool:
        """All have ended, or been ended. Whether nothing of any is written any more when the call returns."""
        ...


class SlicedPasses:
    """On the loop."""

    def __init__(self, files: Files, scheduler: Scheduler) -> None:
        self._files = files
        self._scheduler = scheduler

    def begin(self, plan: CleaningPlan, told: Told, throttle: Throttle) -> Pass:
        return _SlicedPass(self._files, plan, told, throttle, self._scheduler)

    def rest(self) -> None:
        """Nothing is kept."""

    def stop(self) -> bool:
        """Nothing is kept."""
        return True


class _SlicedPass:
    def __init__(
        self, files: Files, plan: CleaningPlan, told: Told, throttle: Throttle, scheduler: Scheduler
    ) -> None:
        from storage.cleaning import cleaner  # not needed by every start

        self._steps = cleaner.clean(files, plan)
        self._told = told
        self._throttle = throttle
        self._scheduler = scheduler
        self._next: Scheduled | None = scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        self._next = None
        try:
            step = next(self._steps)
        except MemoryError:
            self._told.failed(PassLostError("there is too little memory"))
            return
        except Exception as error:
            self._told.failed(error)
            return
        if isinstance(step, CleaningResult):
            self._told.finished(step)
            return
        scheduler = self._scheduler
        rest_s = 0.0
        if isinstance(step, Progress):
            rest_s = self._throttle.rest_s(step.read_bytes + step.written_bytes, scheduler.time())
        # before it is told: who is told may end the pass
        self._next = scheduler.call_later(rest_s, self._turn) if rest_s else scheduler.call_soon(self._turn)
        if isinstance(step, CleanedSegment):
            self._told.cleaned(step)

    def end(self, ended: Callable[[], None]) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        with contextlib.suppress(OSError):  # what can't be removed is left to the next start
            self._steps.close()
        self._scheduler.call_soon(ended)
