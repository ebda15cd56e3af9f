"""A pass over one partition, its rate limit, and passes on the loop: a step in each turn.

Passes on the loop are for files that aren't the machine's own (a test's, in memory or with faults), and for
when no process can be started; `worker_passes` has the other way. All passes together keep to
`log.cleaner.io.max.bytes.per.second`.

Source: org.apache.kafka.storage.internals.utils Throttler. Its quirk is kept: idle time counts for the
average, so anything that ends within 300 ms isn't slowed down.
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
    """Limits the average rate of a period. A rest ends the period."""

    def __init__(self, bytes_per_s: float, now_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self._begun_s = now_s
        self._handled = 0

    def rest_s(self, handled: int, now_s: float) -> float:
        """Count bytes that were read or written. Returns how long to rest, or 0."""
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
    """The pass has ended, through no fault of the partition or the disk. It may be tried again."""


class Told(Protocol):
    """Receives the progress of a pass. After `finished` or `failed`, nothing more comes."""

    def cleaned(self, segment: CleanedSegment) -> None: ...

    def finished(self, result: CleaningResult) -> None: ...

    def failed(self, error: Exception) -> None:
        """`UncleanableError`, `OSError`, `PassLostError`, or an error of our own."""
        ...


class Pass(Protocol):
    """A pass in progress."""

    def end(self, ended: Callable[[], None]) -> None:
        """End the pass without a result, and report nothing more. `ended` is called once nothing is written
        any more; its `.cleaned` files are left."""
        ...


class Passes(Protocol):
    """Makes passes."""

    def begin(self, plan: CleaningPlan, told: Told, throttle: Throttle) -> Pass:
        """Begin a pass. Nothing is reported within this call."""
        ...

    def rest(self) -> None:
        """Release resources: there is nothing to do for a while."""
        ...

    def stop(self) -> bool:
        """All passes have ended or been told to. Returns True if nothing is written any more."""
        ...


class SlicedPasses:
    """Makes passes on the loop."""

    def __init__(self, files: Files, scheduler: Scheduler) -> None:
        self._files = files
        self._scheduler = scheduler

    def begin(self, plan: CleaningPlan, told: Told, throttle: Throttle) -> Pass:
        return _SlicedPass(self._files, plan, told, throttle, self._scheduler)

    def rest(self) -> None:
        """Do nothing: no resources are kept."""

    def stop(self) -> bool:
        """Do nothing: no resources are kept."""
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
        # First, because the callback may end the pass.
        self._next = scheduler.call_later(rest_s, self._turn) if rest_s else scheduler.call_soon(self._turn)
        if isinstance(step, CleanedSegment):
            self._told.cleaned(step)

    def end(self, ended: Callable[[], None]) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        with contextlib.suppress(OSError):  # the next start removes what is left
            self._steps.close()
        self._scheduler.call_soon(ended)
