"""What a broker tells its controller of its failed directories.

Source: `ReplicaManager.handleLogDirFailure`, `BrokerLifecycleManager.propagateDirectoryFailure`; KIP-858.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.assigned_directories import directory_of
from broker.controller.directory_ids import LOST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.controller.image import ClusterImage
    from broker.disks.log_dirs import LogDirs
    from broker.environment.scheduler import Scheduler
    from broker.peers.assignments_manager import AssignedReplica
    from broker.peers.lifecycle import BrokerLifecycle
    from broker.replicas.partitions import Partitions


class ToldLosses:
    """`failures.DirectoryLosses` by heartbeats, which say it until the controller knows."""

    others_take_over = True

    def __init__(
        self,
        node_id: int,
        image: ClusterImage,
        *,
        log_dirs: LogDirs,
        partitions: Partitions,
        lifecycle: BrokerLifecycle,
        assign: Callable[[AssignedReplica, bytes], object],
        scheduler: Scheduler,
        timeout_ms: int,
        failed: Callable[[BaseException], None],
    ) -> None:
        """`timeout_ms`: `log.dir.failure.timeout.ms`. A controller that isn't told of a directory by then still has
        this broker lead what is in it: `failed` is told, and the broker has to stop."""
        self._node_id = node_id
        self._image = image
        self._log_dirs = log_dirs
        self._partitions = partitions
        self._lifecycle = lifecycle
        self._assign = assign
        self._scheduler = scheduler
        self._timeout_ms = timeout_ms
        self._failed = failed

    def lost_partitions(self) -> None:
        """Kafka takes the whole directory offline. Here a replica alone that can't be opened is said to be in none."""
        online = self._log_dirs.ids
        for topic_id, index in self._partitions.offline():
            partition = self._image.partition_of(topic_id, index)
            if partition is not None and directory_of(partition, self._node_id) in online:
                self._assign((topic_id, index), LOST)

    def lost(self, directory_id: bytes, stayed: Mapping[tuple[bytes, int], bytes]) -> None:
        for replica, its_directory_id in stayed.items():
            self._assign(replica, its_directory_id)
        self._lifecycle.lost_directory(directory_id)
        self._scheduler.call_later(self._timeout_ms / 1000, self._too_late, directory_id)

    def record(self) -> None:
        """The next heartbeat says it."""

    def _too_late(self, directory_id: bytes) -> None:
        if not self._lifecycle.is_over and not self._lifecycle.knows_lost(directory_id):
            self._failed(
                TimeoutError(
                    f"the controller couldn't be told of a failed log directory for {self._timeout_ms} ms "
                    "(log.dir.failure.timeout.ms)"
                )
            )
