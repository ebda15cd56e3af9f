"""A cluster of one node, which controls it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.own_assignments import OwnAssignments
from broker.coordination.producer_id_blocks import ProducerIdBlocks
from broker.disks.recorded_losses import RecordedLosses

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.controller.controller import Controller
    from broker.controller.image import TopicChanges
    from broker.controller.own_assignments import AnsweredLater
    from broker.controller.partition_terms import OwnSettings
    from broker.controller.registration import BrokerIncarnation
    from broker.disks.failures import DirectoryLosses
    from broker.disks.log_dirs import LogDirs
    from broker.environment.scheduler import Scheduler
    from broker.peers.controller_channel import ToController
    from broker.replicas.partitions import Partitions
    from coordinator.ports import Markers
    from protocol.errors import KafkaError


class OwnCluster:
    """A `Cluster` without anybody else."""

    forwarding = None
    create_automatically = None

    def __init__(
        self,
        controller: Controller,
        broker: BrokerIncarnation,
        scheduler: Scheduler,
        settings: Callable[[], OwnSettings],
    ) -> None:
        self._controller = controller
        self._scheduler = scheduler
        self._settings = settings
        self._broker = broker
        self._assignments = OwnAssignments(controller, broker.node_id)
        self._producer_ids = ProducerIdBlocks(controller, broker)

    def allocate_producer_ids(self, size: int, then: Callable[[int | KafkaError], None]) -> None:
        """See `Cluster`."""
        self._producer_ids.allocate(size, then)

    def assign(self, replica: tuple[bytes, int], directory_id: bytes, answered_later: AnsweredLater) -> bool:
        """See `AssignDirectory`."""
        return self._assignments.assign(replica, directory_id, answered_later)

    def losses(self, log_dirs: LogDirs, partitions: Partitions) -> DirectoryLosses:
        return RecordedLosses(self._broker, log_dirs, partitions, self._controller, self._settings)

    def to_controller(self) -> ToController:
        # Here, so that no start waits for it: it isn't asked before a replica elsewhere comes or goes.
        from broker.peers.own_controller import OwnController

        return OwnController(self._controller, self._scheduler, self._settings)

    def markers(self, own: Markers) -> Markers:
        return own

    def coordinators(self, partition_of: Callable[[str], int]) -> None:
        return None

    def following(self, partitions: Partitions) -> Callable[[TopicChanges], None]:
        return lambda changes: None

    async def leave(self) -> None:
        """Nobody is left to take over."""

    def stop(self) -> None:
        """Nobody is asked."""
