"""The cluster as one of its brokers meets it (`Cluster`), and that of a node that controls it: itself alone, or with
others where they may come. The other is `JoinedCluster`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from broker.controller.controller import ControllerResult
from broker.controller.own_broker import OwnAssignments
from broker.controller.partition_changes import BrokerChange, updates_of
from broker.controller.registration import assignment, is_online
from broker.coordination.producer_id_blocks import ProducerIdBlocks
from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import BrokerRegistrationChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    from broker.controller.controller import Controller
    from broker.controller.image import ClusterImage, TopicChanges
    from broker.controller.own_broker import AnsweredLater
    from broker.controller.partition_changes import OwnSettings, SomeOf
    from broker.controller.registration import BrokerIncarnation
    from broker.controller.topic_requests import Create
    from broker.coordination.latest_offsets import AskLatestOffset
    from broker.coordination.produce_verification import AskElsewhere
    from broker.coordination.share_persister import AskShareStates
    from broker.disks.failures import DirectoryLosses
    from broker.disks.log_dirs import LogDirs
    from broker.environment.scheduler import Scheduler
    from broker.peers.controller_channel import Forwarding, ToController
    from broker.peers.own_controller import ControlledShutdown
    from broker.quotas import ReplicationQuota
    from broker.replicas.partitions import Partitions
    from coordinator.ports import Markers

log = logging.getLogger("barnabas.directories")


class Cluster(Protocol):
    """`OwnCluster`, or `JoinedCluster`."""

    @property
    def forwarding(self) -> Forwarding | None:
        """By which clients' requests go to the controller; None where they are decided here."""

    @property
    def create_automatically(self) -> Create | None:
        """Asks the controller for topics that are used and aren't there; None where they are created here."""

    def allocate_producer_ids(self, size: int, then: Callable[[int | KafkaError], None]) -> None:
        """See `coordinator.transaction.producer_ids.AllocateBlock`."""

    def assign(self, replica: tuple[bytes, int], directory_id: bytes, answered_later: AnsweredLater) -> bool:
        """See `AssignDirectory`."""

    def losses(self, log_dirs: LogDirs, partitions: Partitions) -> DirectoryLosses:
        """How the controller learns of directories that fail."""

    def to_controller(self) -> ToController:
        """A way of its own, until the end."""

    def markers(self, own: Markers) -> Markers:
        """The way to all partitions, `own` being that to those that are led here."""

    def coordinators(self, partition_of: Callable[[str], int]) -> AskElsewhere | None:
        """The way to the coordinators of transactions on other nodes; None where there are none. `partition_of`: the
        partition of `__transaction_state` that a transactional id is in."""

    def share_states(self) -> AskShareStates | None:
        """The way to the share coordinators on other nodes; None where there are none."""

    def latest_offsets(self) -> AskLatestOffset | None:
        """The way to leaders on other nodes; None where there are none."""

    def following(self, partitions: Partitions, quota: ReplicationQuota) -> Callable[[TopicChanges], None]:
        """What is told of each change of the partitions' roles: those that others lead are fetched, the
        throttled ones within the quota."""

    async def leave(self) -> None:
        """The node is about to stop: returns once others lead what it led, where there are others. Raises what the node
        has to stop for."""

    def stop(self) -> None:
        """Nothing is said or asked any more."""


# --- What a node that controls its cluster records of its own failed directories ----------------------------


class RecordedLosses:
    """`failures.DirectoryLosses` by decisions of the node's own controller."""

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
        self._is_recorded = True
        # Where partitions are that were to move, until that is recorded. None of them can be sent anywhere meanwhile
        # (`alter_replica_log_dirs._move`), so that it stays true.
        self._stayed: dict[tuple[bytes, int], bytes] = {}

    def lost_partitions(self) -> None:
        self._is_recorded = False

    def lost(self, directory_id: bytes, stayed: Mapping[tuple[bytes, int], bytes]) -> None:
        self._stayed |= stayed
        self._is_recorded = False

    def record(self) -> None:
        """See `DirectoryLosses`."""
        if self._is_recorded:
            return
        self._is_recorded = True  # before it is followed: who follows may come here
        stayed, self._stayed = self._stayed, {}

        def recorded(error: KafkaError | None) -> None:
            if error is not None:
                self._is_recorded = False
                self._stayed = stayed | self._stayed
                log.error("that a log directory has failed can't be recorded yet: %s", error)

        def failed(error: BaseException) -> None:
            log.error("what a failed log directory has lost can't be decided", exc_info=error)
            recorded(KafkaError(Error.UNKNOWN_SERVER_ERROR, str(error)))

        self._controller.submit_own(lambda image: self._decide(image, stayed), recorded, failed)

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
        """Those that were placed in a directory which failed before this was committed, so that no log was made of
        them; by topic id and number."""
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
    """Those of these partitions, by topic id and number, that there are."""
    for topic in image.topics.values():
        yield topic, [each for each in topic.partitions.items() if (topic.topic_id, each[0]) in lost]


# --- The cluster of such a node -----------------------------------------------------------------------------


class OwnCluster:
    """A `Cluster` of which this process is the controller."""

    forwarding = None
    create_automatically = None

    def __init__(
        self,
        controller: Controller,
        broker: BrokerIncarnation,
        scheduler: Scheduler,
        settings: OwnSettings,
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
