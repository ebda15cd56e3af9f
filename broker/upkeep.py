"""What every node does by the clock alone, whatever it is in its cluster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.periodic import Periodic
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.config.broker_config import BrokerConfig
    from broker.controller.snapshots import MetadataSnapshots
    from broker.disks.log_dirs import LogDirs
    from broker.environment.scheduler import Clock, Scheduler
    from broker.network.listener import Listener
    from storage.directory.log_directory import LogDirectory
    from storage.log.partition_log import PartitionLog

log = logging.getLogger("barnabas.housekeeping")


class Upkeep(Periodic):
    """The tasks; when they are due is said by who has them."""

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
    ) -> None:
        super().__init__(scheduler)
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
        """metadata.max.retention.bytes and .ms: old snapshots go, and the log below the oldest that stays."""
        self._snapshots.clean(self._clock.now_ms())

    def close_idle_connections(self) -> None:
        max_idle_ms = self._config.get_int("connections.max.idle.ms")
        before_s = self._scheduler.time() - max_idle_ms / 1000
        for listener in self._listeners:
            listener.close_idle(before_s, max_idle_ms)

    def _begin_closing_idle(self) -> None:
        max_idle_ms = self._config.get_int("connections.max.idle.ms")
        if max_idle_ms > 0:
            self._every("idle connections", max(max_idle_ms // 4, 100), self.close_idle_connections)
