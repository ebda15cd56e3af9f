"""Compaction of all partitions: choosing the next one, starting its pass, and handling failures.

Each of Kafka's threads chooses, cleans, runs retention for the compacted partitions, and begins again. With
nothing to clean it waits. Here the loop chooses, for as many passes at a time as there would be threads, and
`passes` makes them. Source: org.apache.kafka.storage.internals.log LogCleaner, LogCleanerManager,
CleanerConfig.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from broker.cleaner.choice import Cleanable, LogToJudge, Resting, is_wanted, judge, times_to_read
from broker.cleaner.passes import PassLostError, SlicedPasses, Throttle
from broker.environment.scheduler import Waker
from protocol.errors import Error, KafkaError
from protocol.waiting import Later, Waiting, carry_on, step, turn
from storage.cleaning.plan import CleaningResult, UncleanableError
from storage.files import is_out_of_descriptors
from storage.log.removal import MOST_DELETED_AT_ONCE
from storage.log.replaced_segments import ReplacedMeanwhileError, producers_in_steps

if TYPE_CHECKING:
    from broker.cleaner.passes import Pass, Passes
    from broker.config.broker_config import BrokerConfig
    from broker.environment.environment import Environment
    from broker.environment.scheduler import Clock, Scheduled, Scheduler
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from storage.cleaning.plan import CleanedSegment, CleaningPlan
    from storage.log.log_config import LogConfig

log = logging.getLogger("barnabas.cleaner")


class CleanerSettings(NamedTuple):
    """The cleaner's settings. As in Kafka, any change ends the current passes and starts afresh."""

    threads: int
    """How many passes run at a time, besides as many that are being put in place. 0 turns the cleaner off."""
    backoff_s: float
    max_keys: int
    """How many keys the offset map of a pass takes."""
    bytes_per_s: float

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerSettings:
        from storage.cleaning.offset_map import keys_for

        threads = config.get_int("log.cleaner.threads") if config.get_boolean("log.cleaner.enable") else 0
        load_factor = config.get("log.cleaner.io.buffer.load.factor")
        bytes_per_s = config.get("log.cleaner.io.max.bytes.per.second")
        assert isinstance(load_factor, float)
        assert isinstance(bytes_per_s, float)
        map_bytes = config.get_int("log.cleaner.dedupe.buffer.size") // max(threads, 1)
        return cls(
            threads=threads,
            backoff_s=config.get_int("log.cleaner.backoff.ms") / 1000,
            max_keys=keys_for(map_bytes, load_factor),
            bytes_per_s=bytes_per_s,
        )


# --- The compaction of one partition: the pass, and its effect on the log -----------------------------------


class PassEndedError(Exception):
    """The pass was ended on purpose: the partition is deleted, moved, truncated or closed."""


Outcome = Callable[["Cleaning", "CleaningResult | Exception"], object]


class Cleaning:
    """A compaction from its plan to its outcome, which is reported once: the result, or an error.

    Meanwhile the log can end it (`PartitionLog.end_cleaning`).
    """

    def __init__(
        self,
        partition: Partition,
        plan: CleaningPlan,
        clock: Clock,
        passed: Callable[[], None],
        outcome: Outcome,
    ) -> None:
        """`passed` is called once the log has been gone through. Then the new segments only have to be put in
        place."""
        self.partition = partition
        self.plan = plan
        self.begun_s = clock.monotonic_s()
        self._log = partition.log
        self._passed = passed
        self._outcome: Outcome | None = outcome
        self._sampling: Waker | None = None
        self._pass: Pass | None = None
        self._ready: deque[CleanedSegment] = deque()
        """Segments that aren't in place yet: a log takes one after the other."""
        self._is_replacing = False
        self._result: CleaningResult | None = None

    @property
    def is_passing(self) -> bool:
        """True while the pass goes through the log, even if it has been told to end."""
        return self._result is None

    @property
    def name(self) -> str:
        return f"{self.plan.topic}-{self.plan.partition}"

    def begin(self, passes: Passes, throttle: Throttle, scheduler: Scheduler) -> None:
        """Begin. If this raises MemoryError, nothing has begun."""

        self._log.cleaning = self.end
        try:
            carry_on(self._begin(passes, throttle, Waker(scheduler)))
        except MemoryError:
            self._pass = None
            self._log.cleaning = None
            raise

    async def _begin(self, passes: Passes, throttle: Throttle, sampling: Waker) -> None:
        """First take each producer's last record, in several turns if there are many producers. Then begin
        the pass."""
        steps = self._take_sample()
        if step(steps):
            self._pass = passes.begin(self.plan, self, throttle)
            return
        self._sampling = sampling
        try:
            await sampling.turn()
            while not step(steps):
                await sampling.turn()
            self._sampling = None
            self._pass = passes.begin(self.plan, self, throttle)
        except MemoryError as error:
            self.failed(error)

    async def _take_sample(self) -> None:
        self.plan = self.plan._replace(producers=await producers_in_steps(self._log))

    def end(self) -> None:
        """End without a result. Whatever was put in place stays, and so does the checkpoint."""
        self._end(PassEndedError("it was ended"))

    def abandon(self) -> None:
        """Do the same as `end`, but without reporting it. The caller stops the passes, and then calls
        `discard`."""
        self._outcome = None
        self.end()

    def discard(self) -> None:
        """Remove what is left of a pass that has stopped."""
        from storage.cleaning.cleaned_files import discard_cleaned

        self._ready.clear()
        if not self._log.closed:  # otherwise the folder may belong to another partition by now
            discard_cleaned(self._log.files, self.plan.directory)

    def keep_checkpoint(self) -> None:
        """Record where the next pass begins after a failed one: at the log start, as in Kafka, unless a
        checkpoint exists.

        An existing checkpoint stays. It is where this pass began, or earlier if the log was truncated
        meanwhile. If the partition is gone, nothing is recorded, since another may have its name.
        """
        partition, key = self.partition, (self.plan.topic, self.plan.partition)
        offsets = partition.directory.cleaner_offsets
        if not partition.is_gone and not partition.log.closed and offsets.get(key) is None:
            offsets.set(key, partition.log.log_start_offset)

    # --- called by the pass ---------------------------------------------------------------------------------

    def cleaned(self, segment: CleanedSegment) -> None:
        try:
            self._ready.append(segment)
        except MemoryError as error:
            self._end(error)  # the pass is useless without it
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

    # --- the effect on the log ------------------------------------------------------------------------------

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
        """End the pass, if it hasn't ended by itself. The outcome is reported once nothing is written any
        more."""
        if self._log.cleaning is None:
            return
        self._log.cleaning = None
        self._result = None
        self._ready.clear()

        def ended() -> None:
            if self._outcome is not None:
                self.discard()
                self._tell(why)

        if self._sampling is not None:
            self._sampling.stop()
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


# --- All partitions -----------------------------------------------------------------------------------------


TURN_S = 0.002
BACKOFF_OF_ZERO_S = 0.05  # log.cleaner.backoff.ms may be 0


class LogCleaner:
    """All passes of a node.

    - `uncleanable`: partitions that can't be compacted, and why, until a restart or their deletion.
    """

    def __init__(self, config: BrokerConfig, partitions: Partitions, environment: Environment) -> None:
        self.uncleanable: dict[Partition, str] = {}
        self._config = config
        self._partitions = partitions
        self._clock = environment.clock
        self._scheduler = environment.scheduler
        self._settings = CleanerSettings.of(config)
        self._throttle = Throttle(self._settings.bytes_per_s, self._scheduler.time())
        self._passes: Passes = SlicedPasses(environment.files, environment.scheduler)
        if environment.workers is not None:
            from broker.cleaner.worker_passes import WorkerPasses

            self._passes = WorkerPasses(environment.workers, environment.scheduler, self._passes)
        self._under_way: dict[Partition, Cleaning] = {}
        self._resting = Resting(environment.clock)
        self._asked_for: dict[Partition, list[Later[None]]] = {}
        self._answered: dict[Partition, list[Later[None]]] = {}  # by the current pass
        self._wanted: list[Partition] = []  # from the last round, dirtiest last
        self._next: Scheduled | None = None
        self._round: Waiting[None] | None = None
        self._is_round_due = False
        self._running = False

    # --- called by the node ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the first round: the logs are loaded."""
        self._running = True
        self.look()

    def look(self) -> None:
        """Begin a round now, or after the current one."""
        if self._running and self._settings.threads:
            self._is_round_due = True
            self._soon()

    def stop(self) -> None:
        """End all passes. When this returns, nothing is written any more. If a process couldn't be ended, its
        files stay, and the next start removes them."""
        self._running = False
        self._cancel()
        under_way = [*self._under_way.values()]
        for cleaning in under_way:
            cleaning.abandon()
        if self._passes.stop():
            for cleaning in under_way:
                cleaning.discard()
        waiting = [*self._asked_for.values(), *self._answered.values()]
        self._asked_for, self._answered = {}, {}
        _tell_all(chain.from_iterable(waiting), PassEndedError("the broker stops"))

    def configure(self) -> None:
        """Apply changed settings: the current passes fail, and new ones begin."""
        settings = CleanerSettings.of(self._config)
        if settings == self._settings:
            return
        self._settings = settings
        self._throttle = Throttle(self._settings.bytes_per_s, self._scheduler.time())
        self._cancel()
        for cleaning in [*self._under_way.values()]:
            cleaning.keep_checkpoint()
            cleaning.end()
        self.look()

    def clean_now(self, partition: Partition, *, roll: bool = False) -> Later[None]:
        """Compact the partition at once, whatever its ratio and lags are, even if the cleaner is off. With
        `roll`, include the active segment.

        The reply comes in a later turn, when everything possible is done, or fails with the reason. Compacted
        parts are compacted again, because records may have become old enough to be removed.
        """
        cleaned: Later[None] = Later()
        if roll:
            try:
                partition.log.roll(self._clock.now_ms())
            except KafkaError as error:
                self._scheduler.call_soon(cleaned.fail, error)
                return cleaned
        self._asked_for.setdefault(partition, []).append(cleaned)
        if partition not in self._under_way:
            self._scheduler.call_soon(self._begin_asked, partition)
        return cleaned

    # --- rounds ---------------------------------------------------------------------------------------------

    def _soon(self, delay_s: float = 0.0) -> None:
        self._cancel()
        scheduler = self._scheduler
        self._next = scheduler.call_later(delay_s, self._turn) if delay_s else scheduler.call_soon(self._turn)

    def _cancel(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _turn(self) -> None:
        """Run some milliseconds of a round."""
        self._next = None
        if self._round is None:
            self._is_round_due, self._round = False, self._a_round()
        until_s = self._clock.monotonic_s() + TURN_S
        with suppress(MemoryError):  # the next round looks again
            while not step(self._round):
                if self._clock.monotonic_s() >= until_s:
                    self._soon()
                    return
        self._round = None
        if not self._under_way:
            self._passes.rest()
        if self._may_begin():
            self._soon(0.0 if self._is_round_due else max(self._settings.backoff_s, BACKOFF_OF_ZERO_S))

    async def _a_round(self) -> None:
        """Choose and begin passes, then run retention for the other compacted partitions. These can't wait
        for a round without passes."""
        self._resting.forget_others()
        self.uncleanable = {each: why for each, why in self.uncleanable.items() if not each.is_gone}
        wanted: list[tuple[float, Partition]] = []
        for partition in self._partitions.all_compacted():
            if partition not in self._resting:
                cleanable = await self._look_at(partition)
                if cleanable is not None:
                    wanted.append((cleanable.ratio, partition))
            await turn()
        # dirtiest last; being overdue gives no precedence
        self._wanted = [partition for _, partition in sorted(wanted, key=lambda found: found[0])]
        await self._begin_some()
        for partition in self._partitions.all_compacted():
            await self._retain(partition)

    def _may_begin(self) -> bool:
        """True if another pass may begin. Compactions that wait for the disk to be put in place don't count,
        up to as many."""
        threads = self._settings.threads
        passing = sum(cleaning.is_passing for cleaning in self._under_way.values())
        return passing < threads and len(self._under_way) < 2 * threads

    def _may_be_cleaned(self, partition: Partition) -> bool:
        is_free = partition not in self._under_way and partition not in self.uncleanable
        return is_free and partition.may_be_rewritten

    async def _look_at(self, partition: Partition) -> Cleanable | None:
        """Return what a pass would compact, or None if none is possible or wanted."""
        if self._may_be_cleaned(partition):
            await self._read_times(partition)
        config = partition.topic.config  # by now it may not be compacted any more
        cleanable = self._judge(partition) if config.compacts and self._may_be_cleaned(partition) else None
        return cleanable if cleanable is not None and is_wanted(cleanable, config) else None

    async def _read_times(self, partition: Partition) -> None:
        """Read the times of segments. `_judge` meets read errors again, and reports them."""
        opened = partition.log
        dirty = partition.directory.cleaner_offsets.get((opened.topic, opened.partition))
        row = [*opened.segments.row]
        with suppress(OSError, KafkaError):
            for segment in times_to_read(row, dirty or 0, partition.topic.config, self._clock.now_ms()):
                await turn()
                if opened.closed or not opened.segments.holds(segment):
                    return

    def _judge(self, partition: Partition, config: LogConfig | None = None) -> Cleanable | None:
        """Judge a log. None if that isn't possible now."""
        opened, offsets = partition.log, partition.directory.cleaner_offsets
        key = opened.topic, opened.partition
        to_judge = LogToJudge(
            opened.segments.row,
            opened.log_start_offset,
            opened.log_end_offset,
            opened.last_stable_offset,
            offsets.get(key),
        )
        try:
            cleanable = judge(to_judge, config or partition.topic.config, self._clock.now_ms())
        except OSError as error:
            self._disk_refused(partition, error)
            return None
        except KafkaError as error:
            self._mark_uncleanable(partition, error)
            return None
        if cleanable.is_reset:
            checkpointed = to_judge.checkpointed
            is_behind = checkpointed is not None and checkpointed < opened.log_start_offset
            if not (opened.config.deletes and is_behind):
                log.warning(
                    "%s-%d was compacted up to %s, outside of the log: compacting it again from its start %d on",
                    *key,
                    checkpointed,
                    opened.log_start_offset,
                )
            offsets.set(key, cleanable.first_dirty_offset)
        return cleanable

    async def _retain(self, partition: Partition) -> None:
        """Run retention like housekeeping does for logs that aren't compacted. Not for uncleanable ones."""
        deleted = most = MOST_DELETED_AT_ONCE
        while deleted == most and self._may_be_cleaned(partition):
            try:
                deleted = partition.log.apply_retention(self._clock.now_ms(), most)
            except KafkaError as error:
                deleted = 0
                log.error("retention of %s: %s", partition.log.directory, error)
            await turn()

    # --- passes ---------------------------------------------------------------------------------------------

    async def _begin_some(self) -> None:
        while self._wanted and self._may_begin():
            partition = self._wanted.pop()
            cleanable = await self._look_at(partition)  # as it is now
            if cleanable is not None:
                self._begin(partition, cleanable.first_dirty_offset, cleanable.first_uncleanable_offset)
            await turn()

    def _begin(self, partition: Partition, first_dirty_offset: int, first_uncleanable_offset: int) -> None:
        opened = partition.log
        try:
            plan = opened.cleaning_plan(
                first_dirty_offset=first_dirty_offset,
                first_uncleanable_offset=first_uncleanable_offset,
                now_ms=self._clock.now_ms(),
                max_keys=self._resting.keys_for(partition, self._settings.max_keys),
            )
            cleaning = Cleaning(partition, plan, self._clock, self._passed, self._outcome)
            self._under_way[partition] = cleaning
            cleaning.begin(self._passes, self._throttle, self._scheduler)
        except (KafkaError, MemoryError) as error:
            self._under_way.pop(partition, None)
            log.error("can't compact %s now: %s", opened.directory, error)
            self._resting.rest(partition)
            _tell_all(self._answered.pop(partition, ()), error)

    def _passed(self) -> None:
        """Begin more of the passes that the last round found, or a new round if none are left."""
        if self._running and self._may_begin():
            if self._round is None and self._wanted:
                self._round = self._begin_some()
            self._is_round_due = True
            self._soon()

    def _outcome(self, cleaning: Cleaning, outcome: CleaningResult | Exception) -> None:
        partition = cleaning.partition
        self._under_way.pop(partition, None)
        try:
            if isinstance(outcome, CleaningResult):
                self._finished(cleaning, outcome)
            elif not isinstance(outcome, PassEndedError):
                self._failed(cleaning, outcome)
        except MemoryError as error:
            outcome = error
        self._answer(cleaning, outcome)
        self.look()
        if not self._settings.threads and not self._under_way:
            self._passes.rest()  # no round does it

    def _finished(self, cleaning: Cleaning, result: CleaningResult) -> None:
        plan, stats, partition = cleaning.plan, result.stats, cleaning.partition
        self._resting.came_through(partition)
        key = plan.topic, plan.partition
        partition.directory.cleaner_offsets.set(key, result.first_dirty_offset)
        log.info(
            "compacted %s up to offset %d: kept %d of %d records, %d of %d bytes, in %.1f s",
            cleaning.name,
            result.first_dirty_offset,
            stats.records_written,
            stats.records_read,
            stats.bytes_written,
            stats.bytes_read,
            self._clock.monotonic_s() - cleaning.begun_s,
        )

    def _failed(self, cleaning: Cleaning, error: Exception) -> None:
        partition = cleaning.partition
        if partition.is_gone:
            return
        cleaning.keep_checkpoint()
        if isinstance(error, OSError):
            self._disk_refused(partition, error)
        elif isinstance(error, PassLostError | ReplacedMeanwhileError | MemoryError):
            is_lost = isinstance(error, PassLostError | MemoryError)
            rest_s = self._resting.rest(partition, is_lost=is_lost)
            keys = self._resting.keys_for(partition, self._settings.max_keys)
            log.error(
                "compacting %s again in %d s, %d keys at a time: %s", cleaning.name, rest_s, keys, error
            )
        else:
            self._mark_uncleanable(partition, error)

    def _disk_refused(self, partition: Partition, error: OSError) -> None:
        log.error("can't compact %s now: %s", partition.log.directory, error)
        self._resting.rest(partition)
        if error.errno != errno.ENOMEM and not is_out_of_descriptors(error):  # not the disk's fault
            partition.log.report(error)

    def _mark_uncleanable(self, partition: Partition, error: Exception) -> None:
        log.error(
            "can't compact %s, which grows until the broker is restarted: %s",
            partition.log.directory,
            error,
            exc_info=None if isinstance(error, UncleanableError | KafkaError) else error,
        )
        self.uncleanable[partition] = str(error)

    # --- requests -------------------------------------------------------------------------------------------

    def _begin_asked(self, partition: Partition) -> None:
        if partition in self._under_way or partition not in self._asked_for:
            return  # the current pass looks here when it is done
        waiting = self._asked_for.pop(partition)
        try:
            self._begin_for(partition, waiting)
        except MemoryError as error:
            _tell_all(waiting, error)

    def _begin_for(self, partition: Partition, waiting: list[Later[None]]) -> None:
        opened, config = partition.log, partition.topic.config
        if not config.compacts or partition.is_gone or partition in self.uncleanable:
            why = self.uncleanable.get(partition, "it isn't compacted, or is deleted")
            _tell_all(waiting, KafkaError(Error.POLICY_VIOLATION, why))
            return
        if not self._may_be_cleaned(partition):
            why = "its segments can't be touched now: they are moved, put in place, loaded, or offline"
            _tell_all(waiting, KafkaError(Error.KAFKA_STORAGE_ERROR, why))
            return
        cleanable = self._judge(partition, replace(config, min_compaction_lag_ms=0))
        if cleanable is None:
            _tell_all(waiting, KafkaError(Error.KAFKA_STORAGE_ERROR, "it can't be read"))
            return
        first_uncleanable_offset = cleanable.first_uncleanable_offset
        first_dirty_offset = cleanable.first_dirty_offset
        if first_dirty_offset >= first_uncleanable_offset:
            first_dirty_offset = opened.log_start_offset
        if first_dirty_offset >= first_uncleanable_offset:
            _tell_all(waiting, None)
            return
        self._answered[partition] = waiting
        self._begin(partition, first_dirty_offset, first_uncleanable_offset)

    def _answer(self, cleaning: Cleaning, outcome: CleaningResult | Exception) -> None:
        partition, bound = cleaning.partition, cleaning.plan.first_uncleanable_offset
        waiting = self._answered.pop(partition, None)
        if waiting:
            if isinstance(outcome, CleaningResult) and outcome.first_dirty_offset < bound:
                self._answered[partition] = waiting  # the map was full: go on
                self._begin(partition, outcome.first_dirty_offset, bound)
                return
            _tell_all(waiting, outcome if isinstance(outcome, Exception) else None)
        if partition in self._asked_for:
            self._scheduler.call_soon(self._begin_asked, partition)


def _tell_all(waiting: Iterable[Later[None]], error: Exception | None) -> None:
    for each in waiting:
        with suppress(MemoryError):  # the others still get theirs
            if error is None:
                each.reply(None)
            else:
                each.fail(error)
