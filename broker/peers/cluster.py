"""The cluster as one of its brokers meets it, whether the broker controls it by itself or another node does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.controller.auto_topic_creation import Create
    from broker.controller.image import TopicChanges
    from broker.controller.own_assignments import AnsweredLater
    from broker.coordination.add_partitions_to_txn_manager import AskElsewhere
    from broker.coordination.latest_offsets import AskLatestOffset
    from broker.coordination.share_persister import AskShareStates
    from broker.disks.failures import DirectoryLosses
    from broker.disks.log_dirs import LogDirs
    from broker.peers.controller_channel import ToController
    from broker.peers.forwarding import Forwarding
    from broker.quotas.replication_quotas import ReplicationQuota
    from broker.replicas.partitions import Partitions
    from coordinator.ports import Markers
    from protocol.errors import KafkaError


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
