"""One partition while it is compacted: the pass, and what becomes of the log by it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from storage.log.replaced_segments import producers_in_steps

if TYPE_CHECKING:
    from array import array

    from broker.cleaner.passes import Pass, Passes
    from broker.cleaner.throttle import Throttle
    from broker.environment.clock import Clock
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.replicas.partition import Partition
    from storage.cleaning.plan import CleanedSegment, CleaningPlan, CleaningResult
    from storage.log.partition_log import PartitionLog


class PassEndedError(Exception):
    """Somebody wanted the pass to end: the partition is deleted, moved, truncated or closed."""


Outcome = Callable[["Cleaning", "CleaningResult | Exception"], object]


class Cleaning:
    """From its plan to its outcome, which is told once: the result, or why there is none.

    While it lasts the log knows how to end it (`PartitionLog.end_cleaning`).
    """

    def __init__(
        self,
        partition: Partition,
        plan: CleaningPlan,
        clock: Clock,
        passed: Callable[[], None],
        outcome: Outcome,
    ) -> None:
        """`passed` is told once the log has been gone through: what is left to do is to put it in place."""
        self.partition = partition
        self.plan = plan
        self.begun_s = clock.monotonic_s()
        self._log = partition.log
        self._passed = passed
        self._outcome: Outcome | None = outcome
        self._pass: Pass | None = None
        self._ready: deque[CleanedSegment] = deque()
        """Not put in place yet: a log takes one after the other."""
        self._is_replacing = False
        self._result: CleaningResult | None = None

    @property
    def is_passing(self) -> bool:
        """Whether the log is being gone through still, be it by a pass that is ended and has yet to stop."""
        return self._result is None

    @property
    def name(self) -> str:
        return f"{self.plan.topic}-{self.plan.partition}"

    def begin(self, passes: Passes, throttle: Throttle, scheduler: Scheduler) -> None:
        """Raises MemoryError, and then nothing has begun."""

        def begin_pass(producers: array[int]) -> None:
            self.plan = self.plan._replace(producers=producers)
            self._pass = passes.begin(self.plan, self, throttle)

        self._log.cleaning = self.end
        self._pass = sampling = _Sampling(self._log, begin_pass, self.failed, scheduler)
        try:
            sampling.begin()
        except MemoryError:
            self._pass = None
            self._log.cleaning = None
            raise

    def end(self) -> None:
        """It comes to nothing: what was put in place stays, and so does the checkpoint."""
        self._end(PassEndedError("somebody ended it"))

    def abandon(self) -> None:
        """As `end`, and nobody is told: whoever makes the pass is stopped, and then `discard` is called."""
        self._outcome = None
        self.end()

    def discard(self) -> None:
        """Removes what is left of a pass that nobody is at any more."""
        from storage.cleaning.cleaned_files import discard_cleaned

        self._ready.clear()
        if not self._log.closed:  # else the folder may be another's by now
            discard_cleaned(self._log.files, self.plan.directory)

    def keep_checkpoint(self) -> None:
        """A pass that failed says where the next one begins, as in Kafka, where nothing says so yet: at the log start.

        What is said already stays. It is where the pass began, or less where the log was truncated meanwhile; and it
        is none of this pass's where the partition is gone, since another may have its name.
        """
        partition, key = self.partition, (self.plan.topic, self.plan.partition)
        offsets = partition.directory.cleaner_offsets
        if not partition.is_gone and not partition.log.closed and offsets.get(key) is None:
            offsets.set(key, partition.log.log_start_offset)

    # ---- told by the pass

    def cleaned(self, segment: CleanedSegment) -> None:
        try:
            self._ready.append(segment)
        except MemoryError as error:
            self._end(error)  # a pass without it would be none
        else:
            self._replace_next()

    def finished(self, result: CleaningResult) -> None:
        self._pass = None
        self._result = result
        self._replace_next()
        self._passed()

    def failed(self, error: Exception) -> None:
        self._pass = None
        self._end(error)

    # ---- what becomes of the log

    def _replace_next(self) -> None:
        if self._is_replacing:
            return
        if self._ready:
            self._is_replacing = True
            try:
                self._log.replace_segments(self._ready.popleft(), self._replaced)
            except MemoryError as error:
                self._replaced(error)
        elif self._result is not None:
            self._tell(self._result)

    def _replaced(self, failure: Exception | None) -> None:
        self._is_replacing = False
        if failure is None:
            self._replace_next()
        else:
            self._end(failure)

    def _end(self, why: Exception) -> None:
        """The pass ends here, if it hasn't by itself; the outcome is told once nothing of it is written any more."""
        if self._log.cleaning is None:
            return
        self._log.cleaning = None
        self._result = None
        self._ready.clear()

        def ended() -> None:
            if self._outcome is not None:
                self.discard()
                self._tell(why)

        under_way, self._pass = self._pass, None
        if under_way is not None:
            under_way.end(ended)
        else:
            ended()

    def _tell(self, outcome: CleaningResult | Exception) -> None:
        self._log.cleaning = None
        told, self._outcome = self._outcome, None
        if told is not None:
            told(self, outcome)


class _Sampling:
    """What comes before the pass: what each producer has written last, which takes some turns where they are many."""

    def __init__(
        self,
        log: PartitionLog,
        then: Callable[[array[int]], None],
        failed: Callable[[Exception], None],
        scheduler: Scheduler,
    ) -> None:
        self._steps = producers_in_steps(log)
        self._then = then
        self._failed = failed
        self._scheduler = scheduler
        self._next: Scheduled | None = None

    def begin(self) -> None:
        """`then` is told in this call where one turn is enough. Raises MemoryError."""
        try:
            self._steps.send(None)
        except StopIteration as ended:
            self._then(ended.value)
        else:
            self._next = self._scheduler.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._next = None
        try:
            self.begin()
        except MemoryError as error:
            self._failed(error)

    def end(self, ended: Callable[[], None]) -> None:
        if self._next is not None:
            self._next.cancel()
        ended()
