"""What follows when a log directory fails while others remain: it goes offline, and the node goes on (KIP-112).

Kafka stops where the metadata's directory fails, or the last one. So does a broker here that another node controls: the
other brokers lead what it led. Where nobody could take over, what was refused is answered with an error, and the
directory stays; that node stops where somebody has deleted it.
Source: kafka.server.ReplicaManager.LogDirFailureHandler, handleLogDirFailure; kafka.log.LogManager.handleLogDirFailure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.disks.log_dirs import LogDirs
    from broker.disks.moves import LogDirMoves
    from broker.replicas.partitions import Partitions


class DirectoryLosses(Protocol):
    """The way to the controller: `RecordedLosses` to that of this node, `ToldLosses` to another's."""

    @property
    def others_take_over(self) -> bool:
        """Whether a controller outlives this node, and has others lead what it led."""
        ...

    def lost_partitions(self) -> None:
        """Some couldn't be opened by the start, though their directories can be used."""
        ...

    def lost(self, directory_id: bytes, stayed: Mapping[tuple[bytes, int], bytes]) -> None:
        """A directory has failed. `stayed`: where partitions are, by topic id and number, that were to move: a record
        may already say otherwise."""
        ...

    def record(self) -> None:
        """Have the controller record which directories and partitions are offline, as far as it hasn't yet: what it
        refuses is tried again (Kafka: `BrokerLifecycleManager` says it with each heartbeat until it is known)."""
        ...


class LogDirFailures:
    """Takes directories offline that the register says have failed, and has the controller record it."""

    def __init__(
        self, log_dirs: LogDirs, partitions: Partitions, moves: LogDirMoves, losses: DirectoryLosses
    ) -> None:
        self._log_dirs = log_dirs
        self._partitions = partitions
        self._moves = moves
        self._losses = losses

    def start(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        stop_on_failure: Callable[[BaseException], None],
    ) -> None:
        """Take offline what has failed during the start, and from now on whatever fails, in a turn of its own."""

        def later() -> None:
            call_soon(self.take_offline)

        self._log_dirs.on_failing = later
        self._log_dirs.on_lost = stop_on_failure
        self._log_dirs.stops_without = self._losses.others_take_over
        if self._partitions.any_failed_at_start:
            self._losses.lost_partitions()
        self.take_offline()

    def take_offline(self) -> None:
        """Let go of the directories that have failed, and record it."""
        failing = self._log_dirs.failing
        while failing:
            directory = failing[0]
            directory_id = self._log_dirs.id_of(directory)
            stayed = self._moves.directory_failed(directory)
            self._partitions.take_offline(directory)
            self._log_dirs.lose(directory)
            self._losses.lost(directory_id, stayed)
        self.record()

    def record(self) -> None:
        """See `DirectoryLosses`."""
        self._losses.record()
