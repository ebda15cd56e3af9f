"""The cluster's other brokers, as one broker speaks to them: leaders that it follows, those that markers go to, and the
coordinators of transactions."""

from __future__ import annotations

from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from broker.peers.broker_channels import BrokerChannels
from broker.peers.latest_offset_channels import LatestOffsetChannels
from broker.peers.marker_channels import MarkerChannels
from broker.peers.peer import PeerSettings
from broker.peers.replica_fetchers import ReplicaFetchers
from broker.peers.share_state_channels import ShareStateChannels
from broker.peers.transaction_channels import TransactionChannels
from broker.replicas.fetch_settings import FetchSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import ClusterImage, TopicChanges
    from broker.controller.registration import BrokerIncarnation
    from broker.coordination.add_partitions_to_txn_manager import AskElsewhere
    from broker.coordination.latest_offsets import AskLatestOffset
    from broker.coordination.share_persister import AskShareStates
    from broker.environment.environment import Environment
    from broker.fault_handler import FaultHandler
    from broker.quotas.replication_quotas import ReplicationQuota
    from broker.replicas.partitions import Partitions
    from coordinator.ports import Markers


class OtherBrokers:
    """As the image says where they are, by the inter-broker listener. What they are for is said in `Cluster`."""

    def __init__(
        self, config: BrokerConfig, environment: Environment, image: ClusterImage, faults: FaultHandler
    ) -> None:
        self._node_id = config.node_id
        self._listener_name = config.inter_broker_listener
        self._fetch_settings = FetchSettings.of(config)
        self._software_version = software_version()
        self._environment = environment
        self._image = image
        self._faults = faults
        self._to_stop: list[Callable[[], None]] = []

    def markers(self, own: Markers) -> Markers:
        channels = MarkerChannels(self._node_id, self._image, own, self._channels("txn-marker-sender"))
        self._to_stop.append(channels.stop)
        return channels

    def coordinators(self, partition_of: Callable[[str], int]) -> AskElsewhere:
        channels = TransactionChannels(
            self._node_id, self._image, partition_of, self._channels("add-partitions-manager")
        )
        self._to_stop.append(channels.stop)
        return channels.ask

    def share_states(self) -> AskShareStates:
        channels = ShareStateChannels(self._channels("share-state-persister"))
        self._to_stop.append(channels.stop)
        return channels.ask

    def latest_offsets(self) -> AskLatestOffset:
        channels = LatestOffsetChannels(self._channels("latest-offsets"))
        self._to_stop.append(channels.stop)
        return channels.ask

    def following(
        self, incarnation: BrokerIncarnation, partitions: Partitions, quota: ReplicationQuota
    ) -> Callable[[TopicChanges], None]:
        """What follows partitions elsewhere from now on, to be told of each change of the image."""
        fetchers = ReplicaFetchers(
            incarnation,
            self._image,
            partitions,
            listener_name=self._listener_name,
            software_version=self._software_version,
            environment=self._environment,
            settings=self._fetch_settings,
            quota=quota,
            failed=self._faults.stop_on_failure,
        )
        self._to_stop.append(fetchers.stop)
        return fetchers.follow

    def stop(self) -> None:
        """Nothing more is said or asked."""
        for stop in self._to_stop:
            stop()

    def _channels(self, purpose: str) -> Callable[..., BrokerChannels[Any]]:
        return partial(
            BrokerChannels,
            self._image,
            self._listener_name,
            PeerSettings(f"broker-{self._node_id}-{purpose}", self._software_version),
            self._environment.network,
            self._environment.scheduler,
        )


def software_version() -> str:
    """Of what is installed: others count by it who asks them (KIP-511)."""
    try:
        return version("barnabas")
    except PackageNotFoundError:
        return "unknown"
