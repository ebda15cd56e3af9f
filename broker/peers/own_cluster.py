"""The cluster of a node that controls it: itself alone, or with others where they may come."""

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
    from broker.coordination.add_partitions_to_txn_manager import AskElsewhere
    from broker.coordination.latest_offsets import AskLatestOffset
    from broker.coordination.share_persister import AskShareStates
    from broker.disks.failures import DirectoryLosses
    from broker.disks.log_dirs import LogDirs
    from broker.environment.scheduler import Scheduler
    from broker.peers.controlled_shutdown import ControlledShutdown
    from broker.peers.controller_channel import ToController
    from broker.quotas.replication_quotas import ReplicationQuota
    from broker.replicas.partitions import Partitions
    from coordinator.ports import Markers
    from protocol.errors import KafkaError


class OwnCluster:
    """A `Cluster` of which this process is the controller."""

    forwarding = None
    create_automatically = None

    def __init__(
        self,
        controller: Controller,
        broker: BrokerIncarnation,
        scheduler: Scheduler,
        settings: Callable[[], OwnSettings],
        controlled_shutdown: ControlledShutdown | None = None,
    ) -> None:
        """`controlled_shutdown`: where there may be others."""
        self._others = None if controlled_shutdown is None else controlled_shutdown.others
        self._controlled_shutdown = controlled_shutdown
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
        """See `Cluster`."""
        return own if self._others is None else self._others.markers(own)

    def coordinators(self, partition_of: Callable[[str], int]) -> AskElsewhere | None:
        """See `Cluster`."""
        return None if self._others is None else self._others.coordinators(partition_of)

    def share_states(self) -> AskShareStates | None:
        """See `Cluster`."""
        return None if self._others is None else self._others.share_states()

    def latest_offsets(self) -> AskLatestOffset | None:
        """See `Cluster`."""
        return None if self._others is None else self._others.latest_offsets()

    def following(self, partitions: Partitions, quota: ReplicationQuota) -> Callable[[TopicChanges], None]:
        """See `Cluster`."""
        if self._others is None:
            return lambda changes: None
        return self._others.following(self._broker, partitions, quota)

    async def leave(self) -> None:
        """See `Cluster`. Others are told by this controller, which serves on until they know."""
        if self._controlled_shutdown is not None:
            await self._controlled_shutdown.leave()

    def stop(self) -> None:
        """Nobody is asked."""
        if self._others is not None:
            self._others.stop()
