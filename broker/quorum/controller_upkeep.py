"""What happens by the clock alone at a node that is only a controller."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from broker.housekeeping import DELETED_CHECK_MS, MAKE_UP_MS, METADATA_CLEANING_MS
from broker.periodic import Periodic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.config.broker_config import BrokerConfig
    from broker.controller.metadata_log import MetadataLog
    from broker.disks.log_dirs import LogDirs
    from broker.environment.clock import Clock
    from broker.environment.scheduler import Scheduler
    from broker.network.listener import Listener


class ControllerUpkeep(Periodic):
    """Runs the periodic tasks."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        scheduler: Scheduler,
        *,
        log_dirs: LogDirs,
        metadata: MetadataLog,
        listeners: Sequence[Listener],
    ) -> None:
        super().__init__(scheduler)
        self._config = config
        self._clock = clock
        self._log_dirs = log_dirs
        self._metadata = metadata
        self._listeners = listeners

    def start(self) -> None:
        """Begins all of it, at the intervals of the settings."""
        config = self._config
        checkpoint_ms = config.get_int("log.flush.offset.checkpoint.interval.ms")
        self._every("recovery points", checkpoint_ms, self._checkpoint)
        self._every("metadata cleaning", METADATA_CLEANING_MS, self._clean)
        self._every("deleted directories", DELETED_CHECK_MS, self._log_dirs.find_deleted)
        self._every("made up", MAKE_UP_MS, self._make_up)
        max_idle_ms = config.get_int("connections.max.idle.ms")
        if max_idle_ms > 0:
            self._every("idle connections", max(max_idle_ms // 4, 100), self._close_idle)

    def _checkpoint(self) -> None:
        for directory in self._log_dirs.all():
            directory.checkpoint_recovery_points()

    def _clean(self) -> None:
        self._metadata.snapshots.clean(self._clock.now_ms())

    def _make_up(self) -> None:
        with suppress(MemoryError):
            self._metadata.log.go_on_flushing()

    def _close_idle(self) -> None:
        max_idle_ms = self._config.get_int("connections.max.idle.ms")
        before_s = self._scheduler.time() - max_idle_ms / 1000
        for listener in self._listeners:
            listener.close_idle(before_s, max_idle_ms)
