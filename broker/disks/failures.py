"""The failure of a log directory while others remain: it goes offline, and the node goes on (KIP-112).

Kafka stops if the metadata's directory or the last directory fails. So does a broker here if another node is
its controller: other brokers take over its partitions. If nobody could take over, the refused operation is
answered with an error, and the directory stays. Such a node stops only if somebody has deleted the directory.

Source: kafka.server.ReplicaManager.LogDirFailureHandler, handleLogDirFailure;
kafka.log.LogManager.handleLogDirFailure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker.controller.controller import ControllerResult
from broker.controller.image import LOST
from broker.controller.partition_changes import BrokerChange, updates_of
from broker.controller.replica_directories import assignment, directory_of, is_online
from protocol.errors import KafkaError
from protocol.messages.metadata_records import BrokerRegistrationChangeRecord

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from broker.controller.broker_records import BrokerIncarnation
    from broker.controller.controller import Controller
    from broker.controller.image import ClusterImage
    from broker.controller.partition_changes import OwnSettings, SomeOf
    from broker.disks.log_dirs import LogDirs
    from broker.disks.moves import LogDirMoves
    from broker.environment.scheduler import Scheduler
    from broker.peers.lifecycle import BrokerLifecycle
    from broker.replicas.partitions import Partitions


log = logging.getLogger("barnabas.directories")


class DirectoryLosses(Protocol):
    """Reports to the controller: `RecordedLosses` if it is on this node, `ToldLosses` if it is on another
    one."""

    @property
    def others_take_over(self) -> bool:
        """True if a controller outlives this node, and lets other brokers take over."""
        ...

    @property
    def is_recorded(self) -> bool:
        """True if there is nothing to `record`."""
        ...

    def lost_partitions(self) -> None:
        """Note that the start couldn't open some partitions although their directories can be used."""
        ...

    def lost(self, directory_id: bytes, stayed: Mapping[tuple[bytes, int], bytes]) -> None:
        """Note that a directory has failed. `stayed` says where partitions are that were about to move, by
        topic id and number: their records may already name another directory."""
        ...

    def record(self) -> None:
        """Have the controller record the offline directories and partitions that it doesn't know yet. If it
        refuses, that is tried again (Kafka: `BrokerLifecycleManager` reports them with each heartbeat until
        they are known)."""
        ...


class LogDirFailures:
    """Takes failed directories offline, and has the controller record that."""

    def __init__(
        self, log_dirs: LogDirs, partitions: Partitions, moves: LogDirMoves, losses: DirectoryLosses
    ) -> None:
        self._log_dirs = log_dirs
        self._partitions = partitions
        self._moves = moves
        self.losses = losses

    def start(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        stop_on_failure: Callable[[BaseException], None],
    ) -> None:
        """Take offline what failed during the start. From now on, do so for each failure, in a turn of its
        own."""

        def later() -> None:
            call_soon(self.take_offline)

        self._log_dirs.on_failing = later
        self._log_dirs.on_lost = stop_on_failure
        self._log_dirs.stops_without = self.losses.others_take_over
        if self._partitions.any_failed_at_start:
            self.losses.lost_partitions()
        self.take_offline()

    def take_offline(self) -> None:
        """Let go of the failed directories, and record that."""
        failing = self._log_dirs.failing
        while failing:
            directory = failing[0]
            directory_id = self._log_dirs.id_of(directory)
            stayed = self._moves.directory_failed(directory)
            self._partitions.take_offline(directory)
            self._log_dirs.lose(directory)
            self.losses.lost(directory_id, stayed)
        self.record()

    def record(self) -> None:
        """See `DirectoryLosses`."""
        self.losses.record()


# --- Reporting failed directories to a controller on another node -------------------------------------------
#
# Source: `ReplicaManager.handleLogDirFailure`, `BrokerLifecycleManager.propagateDirectoryFailure`; KIP-858.


class ToldLosses:
    """`failures.DirectoryLosses` through heartbeats, which report them until the controller knows."""

    others_take_over = True
    is_recorded = True  # each heartbeat reports the rest

    def __init__(
        self,
        node_id: int,
        image: ClusterImage,
        *,
        log_dirs: LogDirs,
        partitions: Partitions,
        lifecycle: BrokerLifecycle,
        assign: Callable[[tuple[bytes, int], bytes], object],
        scheduler: Scheduler,
        timeout_ms: int,
        failed: Callable[[BaseException], None],
    ) -> None:
        """`timeout_ms` is `log.dir.failure.timeout.ms`. If the controller doesn't know of a failed directory
        by then, it still has this broker lead the partitions in it. So the broker has to stop: `failed` is
        called."""
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
        """Report the partitions that couldn't be opened. Kafka takes their whole directory offline. Here only
        the replica counts as lost."""
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
        """Do nothing: each heartbeat reports the failures until they are known."""

    def _too_late(self, directory_id: bytes) -> None:
        if not self._lifecycle.is_over and not self._lifecycle.knows_lost(directory_id):
            self._failed(
                TimeoutError(
                    f"the controller couldn't be told of a failed log directory within {self._timeout_ms} ms "
                    "(log.dir.failure.timeout.ms)"
                )
            )


# --- Recording failed directories in a node's own controller ------------------------------------------------


class RecordedLosses:
    """`failures.DirectoryLosses` through decisions of the node's own controller."""

    others_take_over = False

    def __init__(
        self,
        broker: BrokerIncarnation,
        log_dirs: LogDirs,
        partitions: Partitions,
        controller: Controller,
        own_settings: OwnSettings,
    ) -> None:
        self._broker = broker
        self._log_dirs = log_dirs
        self._partitions = partitions
        self._controller = controller
        self._own_settings = own_settings
        self.is_recorded = True
        # Where partitions are that were about to move, until that is recorded. Meanwhile they can't be moved
        # (`alter_replica_log_dirs._move`), so it stays true.
        self._stayed: dict[tuple[bytes, int], bytes] = {}

    def lost_partitions(self) -> None:
        self.is_recorded = False

    def lost(self, directory_id: bytes, stayed: Mapping[tuple[bytes, int], bytes]) -> None:
        self._stayed |= stayed
        self.is_recorded = False

    def record(self) -> None:
        """See `DirectoryLosses`."""
        if self.is_recorded:
            return
        self.is_recorded = True  # first, since followers of the metadata may call this again
        stayed, self._stayed = self._stayed, {}

        async def record() -> None:
            error = await self._controller.submit_own(
                lambda image: self._decide(image, stayed),
                log,
                "can't decide about the partitions of a failed log directory",
            )
            if error is not None:
                self.is_recorded = False
                self._stayed = stayed | self._stayed
                log.error("can't record yet that a log directory has failed: %s", error)

        self._controller.begin(record())

    async def _decide(
        self, image: ClusterImage, stayed: dict[tuple[bytes, int], bytes]
    ) -> ControllerResult[KafkaError | None]:
        reverts = (
            assignment(image, topic_id, index, self._broker.node_id, directory_id)
            for (topic_id, index), directory_id in stayed.items()
            if topic_id in image.topics_by_id
        )
        decided = [record for record in reverts if record is not None]
        node_id, broker_epoch = self._broker
        lost = self._partitions.offline() | self._lost_before_followed(image)
        change = BrokerChange(removed=node_id)
        decided += await updates_of(image, change, _named(image, lost), own=self._own_settings)
        decided.append(
            BrokerRegistrationChangeRecord(
                broker_id=node_id, broker_epoch=broker_epoch, log_dirs=sorted(self._log_dirs.ids)
            )
        )
        return ControllerResult(decided, lambda error: error, may_split=True)

    def _lost_before_followed(self, image: ClusterImage) -> set[tuple[bytes, int]]:
        """Partitions, by topic id and number, that were placed in a directory which failed before this was
        committed. They never got a log."""
        node_id, online = self._broker.node_id, self._log_dirs.ids
        return {
            (topic.topic_id, index)
            for topic in image.topics.values()
            for index, partition in topic.partitions.items()
            if node_id in partition.replicas
            and not is_online(partition, node_id, online)
            and self._partitions.find(topic.name, index) is None
        }


def _named(image: ClusterImage, lost: Container[tuple[bytes, int]]) -> Iterator[SomeOf]:
    """Those of the given partitions, by topic id and number, that exist."""
    for topic in image.topics.values():
        yield topic, [each for each in topic.partitions.items() if (topic.topic_id, each[0]) in lost]
