"""Periodic work: checkpoints, flushes, expiry, retention, idle connections.

Each task has Kafka's interval. Tasks are plain functions over the state; tests move the clock and call them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from broker.environment.scheduler import TURN_S
from broker.replicas.leader import Leader
from protocol.errors import KafkaError
from storage.log.log_config import LONG_MAX
from storage.log.removal import MOST_DELETED_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.config.broker_config import BrokerConfig
    from broker.controller.snapshots import MetadataSnapshots
    from broker.disks.failures import LogDirFailures
    from broker.disks.log_dirs import LogDirs
    from broker.environment.scheduler import Clock, Scheduled, Scheduler
    from broker.network.listener import Listener
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from storage.directory.log_directory import LogDirectory
    from storage.log.partition_log import PartitionLog


# --- Periodic tasks, each with its own interval -------------------------------------------------------------

log = logging.getLogger("barnabas.housekeeping")


class Periodic:
    """Runs periodic tasks. If the disk or the controller refuses something, that is logged, and tried again
    at the next interval."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._periodic: dict[str, tuple[float, Callable[[], None]]] = {}
        """Each task's interval in seconds, and its callback."""
        self._timers: dict[str, Scheduled] = {}

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._periodic.clear()

    def _every(
        self, name: str, interval_ms: int, task: Callable[[], None], first_ms: int | None = None
    ) -> None:
        def due() -> None:
            self._timers.pop(name, None)
            self._schedule()
            try:
                task()
            except (OSError, KafkaError) as error:
                log.error("%s: %s", name, error)

        delay_ms = interval_ms if first_ms is None else first_ms
        self._timers[name] = self._scheduler.call_later(max(delay_ms, 0) / 1000, due)
        if interval_ms > 0:  # otherwise it runs once, as in Kafka's scheduler
            self._periodic[name] = interval_ms / 1000, due

    def _schedule(self) -> None:
        """Set the missing timers: for the task that is due now, and for those that there was too little
        memory for."""
        for name, (interval_s, due) in self._periodic.items():
            if name not in self._timers:
                with suppress(MemoryError):  # the next task that is due tries again
                    self._timers[name] = self._scheduler.call_later(interval_s, due)


# --- Periodic work of every node, whatever its role in the cluster ------------------------------------------


class Upkeep(Periodic):
    """The tasks. Subclasses decide when they run."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        scheduler: Scheduler,
        *,
        log_dirs: LogDirs,
        snapshots: MetadataSnapshots,
        metadata_log: PartitionLog,
        listeners: Sequence[Listener],
        expire_tokens: Callable[[], None] | None = None,
    ) -> None:
        """`expire_tokens` is for the node that decides about delegation tokens."""
        super().__init__(scheduler)
        self._expire_tokens = expire_tokens
        self._config = config
        self._clock = clock
        self._log_dirs = log_dirs
        self._snapshots = snapshots
        self._metadata_log = metadata_log
        self._listeners = listeners

    def _each_directory(self, what: str, task: Callable[[LogDirectory], object]) -> None:
        for directory in self._log_dirs.all():
            try:
                task(directory)
            except (OSError, KafkaError) as error:
                log.error("%s of %s: %s", what, directory.path, error)

    def checkpoint_recovery_points(self) -> None:
        self._each_directory("recovery points", lambda directory: directory.checkpoint_recovery_points())

    def clean_metadata(self) -> None:
        """metadata.max.retention.bytes and .ms: delete old snapshots, and the log below the oldest one
        left."""
        self._snapshots.clean(self._clock.now_ms())

    def close_idle_connections(self) -> None:
        max_idle_ms = self._config.get_int("connections.max.idle.ms")
        before_s = self._scheduler.time() - max_idle_ms / 1000
        for listener in self._listeners:
            listener.close_idle(before_s, max_idle_ms)

    def _begin_expiring_tokens(self) -> None:
        if self._expire_tokens is not None:
            interval_ms = self._config.get_int("delegation.token.expiry.check.interval.ms")
            self._every("delegation tokens", interval_ms, self._expire_tokens)

    def _begin_closing_idle(self) -> None:
        max_idle_ms = self._config.get_int("connections.max.idle.ms")
        if max_idle_ms > 0:
            self._every("idle connections", max(max_idle_ms // 4, 100), self.close_idle_connections)


# --------------------------------------------------------------------------------------------------------------


T = TypeVar("T")

# Used if log.flush.scheduler.interval.ms isn't set. In that case Kafka never checks, and a topic's flush.ms
# has no effect.
FLUSH_CHECK_MS = 1_000
DELETED_CHECK_MS = 1_000  # Kafka notices when it can't write its checkpoint of high watermarks, every 5 s
MOST_LOGS_AT_ONCE = 1_000  # in one turn of the loop, or fewer if they take 10 ms
METADATA_CLEANING_MS = 60_000  # KafkaRaftClient.RaftMetadataLogCleanerManager
MAKE_UP_MS = 5_000
"""How often to check all logs for syncs and notifications that too little memory has prevented."""
GO_ON_MS = 60_000
"""How often to wake parts that run by themselves, unless too little memory has stopped them."""


class Housekeeping(Upkeep):
    """Runs a broker's periodic tasks."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        scheduler: Scheduler,
        *,
        log_dirs: LogDirs,
        log_dir_failures: LogDirFailures,
        partitions: Partitions,
        snapshots: MetadataSnapshots,
        metadata_log: PartitionLog,
        listeners: Sequence[Listener],
        to_wake: Sequence[Callable[[], None]],
        expire_tokens: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(
            config,
            clock,
            scheduler,
            log_dirs=log_dirs,
            snapshots=snapshots,
            metadata_log=metadata_log,
            listeners=listeners,
            expire_tokens=expire_tokens,
        )
        self._log_dir_failures = log_dir_failures
        self._partitions = partitions
        self._to_wake = to_wake
        self._under_way: set[str] = set()
        """The tasks that haven't reached the end of all logs yet."""

    def start(self) -> None:
        """Begin all periodic work, at the intervals in the settings."""
        config = self._config
        checkpoint_ms = config.get_int("log.flush.offset.checkpoint.interval.ms")
        start_offset_ms = config.get_int("log.flush.start.offset.checkpoint.interval.ms")
        high_watermark_ms = config.get_int("replica.high.watermark.checkpoint.interval.ms")
        flush_check_ms = config.get_int("log.flush.scheduler.interval.ms")
        self._every("high watermarks", high_watermark_ms, self.checkpoint_high_watermarks)
        self._every("recovery points", checkpoint_ms, self.checkpoint_recovery_points)
        self._every("log start offsets", start_offset_ms, self.checkpoint_log_start_offsets)
        self._every(
            "flush", FLUSH_CHECK_MS if flush_check_ms == LONG_MAX else flush_check_ms, self.flush_due_logs
        )
        self._every(
            "retention",
            config.get_int("log.retention.check.interval.ms"),
            self.enforce_retention,
            first_ms=config.get_int("log.initial.task.delay.ms"),
        )
        self._every(
            "producer expiry",
            config.get_int("producer.id.expiration.check.interval.ms"),
            self.expire_producers,
        )
        self._every("isr", config.get_int("replica.lag.time.max.ms") // 2, self.shrink_isrs)
        self._every("metadata cleaning", METADATA_CLEANING_MS, self.clean_metadata)
        self._every(
            "failed directories",
            config.get_int("broker.heartbeat.interval.ms"),
            self.record_failed_directories,
        )
        self._every("deleted directories", DELETED_CHECK_MS, self._log_dirs.find_deleted)
        self._every("made up", MAKE_UP_MS, self.make_up)
        self._every("going on", GO_ON_MS, self.wake)
        self._begin_expiring_tokens()
        self._begin_closing_idle()

    def _each_log(
        self, what: str, task: Callable[[PartitionLog], object], logs: Sequence[PartitionLog]
    ) -> None:
        """Run a task for each log. If the disk refuses one, the others still get their turn. With many logs,
        it continues in later turns of the loop. A task that is still running isn't started again."""
        if what not in self._under_way:

            def do(log: PartitionLog) -> None:
                if not log.closed:  # closed meanwhile
                    self._of_log(what, task, log)

            self._under_way.add(what)
            self._go_on(what, do, logs, 0)

    def _go_on(self, what: str, do: Callable[[T], object], these: Sequence[T], at: int) -> None:
        """Continue from this place on."""
        end = min(len(these), at + MOST_LOGS_AT_ONCE)
        until_s = self._clock.monotonic_s() + TURN_S
        try:
            while at < end and self._clock.monotonic_s() < until_s:
                each = these[at]
                at += 1
                do(each)
            if at < len(these):
                self._timers[f"the rest of {what}"] = self._scheduler.call_soon(
                    self._go_on, what, do, these, at
                )
                return
        except BaseException:
            self._under_way.discard(what)
            raise
        self._timers.pop(f"the rest of {what}", None)
        self._under_way.discard(what)

    @staticmethod
    def _of_log(what: str, task: Callable[[PartitionLog], object], each: PartitionLog) -> None:
        try:
            task(each)
        except (OSError, KafkaError) as error:
            log.error("%s of %s: %s", what, each.directory, error)

    def checkpoint_high_watermarks(self) -> None:
        self._each_directory("high watermarks", lambda directory: directory.checkpoint_high_watermarks())

    def checkpoint_log_start_offsets(self) -> None:
        self._each_directory("log start offsets", lambda directory: directory.checkpoint_log_starts())

    def flush_due_logs(self) -> None:
        """flush.ms: sync the logs with records that have waited so long."""
        now_ms = self._clock.now_ms()
        logs = _logs_of(self._partitions.all_flushed_by_time())
        self._each_log("flush", lambda log: log.flush_if_due(now_ms), logs)

    def make_up(self) -> None:
        """Make up for work that too little memory or too few descriptors have prevented: sync logs as far as
        wanted, and advance high watermarks."""
        with suppress(MemoryError):
            self._metadata_log.go_on_flushing()
        logs = _logs_of(self._partitions.all())
        self._each_log("made up", _go_on_flushing, [log for log in logs if log.awaits_flush])
        if "high watermarks behind" not in self._under_way:
            roles = [each.role for each in self._partitions.all()]
            behind = [role for role in roles if isinstance(role, Leader) and role.is_behind]
            self._under_way.add("high watermarks behind")
            self._go_on("high watermarks behind", _catch_up, behind, 0)

    def enforce_retention(self) -> None:
        """Delete old segments of logs that aren't compacted. The cleaner does it for compacted ones, and for
        logs with an unfinished pass (Kafka: `LogManager.cleanupLogs`)."""
        self._each_log("retention", self._retain, _logs_of(self._partitions.all()))

    def retain_now(self, logs: Sequence[PartitionLog]) -> None:
        """Run retention for these logs now."""
        for each in logs:
            self._of_log("retention", self._retain, each)

    def _retain(self, log: PartitionLog) -> None:
        """Delete segments. If there are many, continue in later turns of the loop."""
        if log.config.compacts or log.cleaning is not None:
            return
        if log.apply_retention(self._clock.now_ms(), MOST_DELETED_AT_ONCE) < MOST_DELETED_AT_ONCE:
            return
        timer = f"retention of {log.directory}"

        def due() -> None:
            del self._timers[timer]
            self._of_log("retention", self._retain, log)

        if timer not in self._timers:
            self._timers[timer] = self._scheduler.call_soon(due)

    def shrink_isrs(self) -> None:
        """Ask for replicas to leave their ISRs that have lagged for longer than replica.lag.time.max.ms."""
        if "isr" not in self._under_way:
            replicated = self._partitions.replicated()
            self._under_way.add("isr")
            self._go_on("isr", _shrink_isr, replicated, 0)

    def expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        self._each_log(
            "producer expiry", lambda log: log.expire_producers(now_ms), _logs_of(self._partitions.all())
        )

    def wake(self) -> None:
        for wake in self._to_wake:
            with suppress(MemoryError):
                wake()

    def record_failed_directories(self) -> None:
        """Record failed directories that the metadata log refused when it happened."""
        if not self._log_dir_failures.losses.is_recorded:
            self._log_dir_failures.record()


def _logs_of(partitions: Sequence[Partition]) -> list[PartitionLog]:
    """The partitions' logs. If a partition is being moved, both its logs."""
    logs = [partition.log for partition in partitions]
    logs += [partition.move.log for partition in partitions if partition.move is not None]
    return logs


def _go_on_flushing(log: PartitionLog) -> None:
    with suppress(MemoryError):  # the other logs get their turn, too
        log.go_on_flushing()


def _catch_up(leader: Leader) -> None:
    with suppress(MemoryError):  # it is tried again
        leader.catch_up()


def _shrink_isr(partition: Partition) -> None:
    role = partition.role
    if isinstance(role, Leader):
        role.shrink_isr()
