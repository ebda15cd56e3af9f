"""The ports by which handlers see a node, by family: attributes of `broker.server.Server` or `ControllerServer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from broker.config.broker_config import BrokerConfig
    from broker.controller.cluster_control import ClusterControl
    from broker.controller.controller import Controller
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.partition_changes import OwnSettings
    from broker.controller.quorum_requests import DelayedMetadataFetches, QuorumRequests, ReplicaProgress
    from broker.controller.replica_placer import Placement
    from broker.controller.topic_requests import TopicRequests
    from broker.coordination.groups import Groups
    from broker.coordination.internal_topics import InternalTopics
    from broker.coordination.latest_offsets import LatestOffsets
    from broker.coordination.produce_verification import AddPartitionsToTxnManager, ProduceVerification
    from broker.coordination.share_states import ShareStates
    from broker.coordination.transactions import Transactions
    from broker.disks.log_dirs import LogDirs
    from broker.disks.moves import LogDirMoves
    from broker.environment.scheduler import Chance, Clock, Scheduler
    from broker.metrics.client_telemetry import ClientTelemetry
    from broker.network.answers import Answer, PendingAnswer
    from broker.network.connection import Connection
    from broker.network.context import RequestContext
    from broker.network.endpoints import Endpoints, HostNames
    from broker.network.key_stores import KeyStores
    from broker.network.turns import Turns
    from broker.peers.forwarding import Forwarding, Sender
    from broker.peers.own_cluster import Cluster
    from broker.quotas import ClientQuotas, ReplicationQuotas
    from broker.replicas.current_leaders import CurrentLeaders
    from broker.replicas.fetch_sessions import FetchSessions
    from broker.replicas.partitions import Partitions
    from broker.replicas.replica_selector import RackAwareReplicaSelector
    from broker.security.authorizer import Authorizer
    from broker.shares.share_partition_manager import SharePartitionManager
    from coordinator.persister import Persister
    from coordinator.ports import Markers
    from coordinator.transaction.producer_ids import ProducerIds


class ServesForwarded(Protocol):
    """The part of the dispatcher that handlers use."""

    def serve_forwarded(
        self, sender: Sender, data: memoryview, admitted: Container[int]
    ) -> Answer | PendingAnswer: ...

    def failed(self, connection: Connection, error: BaseException) -> None: ...

    def log_levels_altered(self) -> None: ...


class NodePorts(Protocol):
    """The parts of every node, brokers and controllers alike."""

    @property
    def authorizer(self) -> Authorizer: ...

    @property
    def turns(self) -> Turns: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def metadata(self) -> MetadataLog: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def node_id(self) -> int: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def quotas(self) -> ClientQuotas: ...

    @property
    def endpoints(self) -> Endpoints: ...

    @property
    def dispatcher(self) -> ServesForwarded: ...

    @property
    def host_names(self) -> HostNames: ...

    @property
    def chance(self) -> Chance: ...

    @property
    def cluster(self) -> Cluster: ...

    @property
    def forwarding(self) -> Forwarding | None: ...

    @property
    def handlers(self) -> Iterable[int]: ...


class ControllerPorts(NodePorts, Protocol):
    """The controller, and what it needs to decide on the metadata."""

    @property
    def controller(self) -> Controller: ...

    @property
    def own_settings(self) -> OwnSettings: ...

    @property
    def topics(self) -> TopicRequests: ...

    @property
    def key_stores(self) -> KeyStores: ...

    @property
    def cluster_control(self) -> ClusterControl: ...

    @property
    def quorum(self) -> QuorumRequests: ...

    @property
    def metadata_fetches(self) -> DelayedMetadataFetches: ...

    @property
    def metadata_replicas(self) -> Mapping[tuple[int, bytes], ReplicaProgress]: ...

    @property
    def placement(self) -> Placement: ...


class GroupPorts(NodePorts, Protocol):
    """The group coordinator."""

    @property
    def groups(self) -> Groups: ...

    @property
    def internal_topics(self) -> InternalTopics: ...


class TransactionPorts(NodePorts, Protocol):
    """The transaction coordinator."""

    @property
    def transactions(self) -> Transactions: ...

    @property
    def producer_ids(self) -> ProducerIds: ...

    @property
    def markers(self) -> Markers: ...

    @property
    def add_partitions_manager(self) -> AddPartitionsToTxnManager: ...


class ReplicaPorts(NodePorts, Protocol):
    """The partitions that have a replica here, and the parts that read and write them."""

    @property
    def partitions(self) -> Partitions: ...

    @property
    def current_leaders(self) -> CurrentLeaders: ...

    @property
    def fetch_sessions(self) -> FetchSessions: ...

    @property
    def produce_verification(self) -> ProduceVerification: ...

    @property
    def replication_quotas(self) -> ReplicationQuotas: ...

    @property
    def replica_selector(self) -> Callable[[RequestContext, str], RackAwareReplicaSelector] | None: ...

    @property
    def fetch_max_bytes(self) -> int: ...

    @property
    def log_dirs(self) -> LogDirs: ...

    @property
    def moves(self) -> LogDirMoves: ...

    @property
    def latest_offsets(self) -> LatestOffsets: ...


class ShareGroupPorts(NodePorts, Protocol):
    """The share partitions and sessions of share groups, and the share coordinator."""

    @property
    def shares(self) -> SharePartitionManager: ...

    @property
    def share_states(self) -> ShareStates: ...

    @property
    def share_persister(self) -> Persister: ...


class TelemetryPorts(NodePorts, Protocol):
    """The metrics that clients push, on a broker with a listener for metrics."""

    @property
    def telemetry(self) -> ClientTelemetry: ...


class BrokerPorts(ControllerPorts, GroupPorts, TransactionPorts, ReplicaPorts, ShareGroupPorts, Protocol):
    """All parts of a broker."""
