"""The node: broker and controller in one process, like Kafka's combined mode, built from its opened parts.

`broker.starting` opens the parts. Only the code that runs a node imports this module. Handlers get the ports
that their signatures name, which are attributes of `Server`; other parts get what they need.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.cleaner.log_cleaner import LogCleaner
from broker.config.topic_config import log_config_by_name
from broker.controller.cluster_control import end_run
from broker.controller.controller import Controller
from broker.controller.image import is_internal
from broker.controller.partition_changes import OwnSettings, leader_and_isr_updates
from broker.controller.replica_placer import StripedReplicaPlacer
from broker.controller.token_expiry import TokenExpiry
from broker.controller.topic_requests import TopicRequests
from broker.coordination.coordinators import Coordinators
from broker.coordination.hosted_shards import PartitionRuntime
from broker.disks.failures import LogDirFailures
from broker.disks.moves import LogDirMoves, ReplicaDirectories
from broker.early_requests import EarlyRequests
from broker.environment.scheduler import LoopTimers, Watchdog
from broker.handlers import HANDLERS, TELEMETRY_HANDLERS
from broker.housekeeping import Housekeeping
from broker.metadata_publisher import BrokerMetadataPublisher, MetadataSubscribers
from broker.network.dispatch import Dispatcher
from broker.network.endpoints import HostNames
from broker.network.key_stores import NO_KEY_STORES, KeyStores
from broker.network.listener import Admission, Listener
from broker.network.listener_security import ListenerSecurity
from broker.network.memory import Memory
from broker.network.turns import Turns
from broker.peers.opening import OPEN, Entrance
from broker.peers.own_cluster import ControlledShutdown, OwnCluster
from broker.quotas import ClientQuotas, ReplicationQuotas
from broker.replicas.current_leaders import CurrentLeaders
from broker.replicas.fetch_sessions import FetchSessions
from broker.replicas.in_sync_replicas import IsrChanges, Replication
from broker.replicas.partition import Partition
from broker.replicas.partitions import Partitions
from broker.replicas.replica_selector import selector_maker
from broker.security.node_authorizer import authorizer_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from broker.config.broker_config import BrokerConfig
    from broker.controller.broker_records import BrokerIncarnation
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.quorum_requests import ReplicaProgress
    from broker.controller.replica_placer import Placement
    from broker.disks.log_dirs import LogDirs
    from broker.environment.environment import Environment
    from broker.fault_handler import FaultHandler
    from broker.metrics.client_telemetry import ClientTelemetry
    from broker.metrics.metrics_listener import MetricsListener
    from broker.metrics.request_metrics import RequestMetrics
    from broker.network.connection_limits import ConnectionLimits
    from broker.network.endpoints import Endpoints
    from broker.network.tls_gate import Encryption
    from broker.peers.alter_partition_manager import AlterPartitionManager
    from broker.peers.joined_cluster import JoinedCluster
    from broker.peers.own_cluster import Cluster
    from broker.quorum.controller_server import ControllerServer
    from broker.replicas.in_sync_replicas import LeaderAndIsr, PartitionKey, WantedIsr
    from broker.security.authorizer import Authorizer
    from broker.security.token_source import TokenSource
    from protocol.waiting import Later, Waiting


class Opened(NamedTuple):
    """The opened parts of a node: bound, locked, replayed and registered."""

    config: BrokerConfig
    environment: Environment
    faults: FaultHandler
    connection_limits: ConnectionLimits
    endpoints: Endpoints
    log_dirs: LogDirs
    metadata: MetadataLog
    placement: Placement
    incarnation: BrokerIncarnation
    folders: Mapping[tuple[bytes, int], bytes]
    """The directory id of each replica with a folder, by topic id and number."""
    controller_endpoints: Endpoints
    """The listeners for controlled nodes. None if there can't be any."""
    metrics_endpoints: Endpoints
    """The listener for metrics over HTTP, if there is one."""
    encryption: Mapping[str, Encryption] = {}
    """By the names of its encrypted listeners."""
    key_stores: KeyStores = NO_KEY_STORES
    to_brokers: Entrance = OPEN
    """How it connects to other brokers."""
    tokens: Mapping[str, TokenSource] = {}
    """By the names of its listeners with OAUTHBEARER."""
    joined: JoinedCluster | None = None
    """None if this node is the cluster's controller."""


class Server:
    """All parts of a node. Each part gets the parts that it uses, which were made before it.

    What goes the other way, such as changes of the metadata and failed directories, uses callbacks. They are
    set before anything starts.
    """

    handlers: Mapping[int, str] = HANDLERS
    telemetry: ClientTelemetry
    """Only with a listener for metrics: other nodes don't serve telemetry."""

    def __init__(self, opened: Opened) -> None:
        config, environment = opened.config, opened.environment
        self.config = config
        self.clock = environment.clock
        self.scheduler = environment.scheduler
        self.chance = environment.chance
        self.files = environment.files
        self.background = environment.background
        self.faults = opened.faults
        self._incarnation = opened.incarnation
        self.node_id = opened.incarnation.node_id
        self.broker_epoch = opened.incarnation.broker_epoch
        self.own_settings = OwnSettings.of(config)
        self.rack = config.get_string("broker.rack")
        self.cluster_id = opened.log_dirs.cluster_id
        self.fetch_max_bytes = config.get_int("fetch.max.bytes")
        self.watchdog = Watchdog(self.clock.monotonic_s)
        self.timers = LoopTimers(self.clock, self.scheduler, self.stop_on_failure, self.watchdog)
        self.authorizer: Authorizer = authorizer_of(config.authorizer, config.closed_to_brokers)
        self.key_stores = opened.key_stores
        self.host_names = HostNames(environment.names, environment.computing)
        self.quotas = ClientQuotas(config, self.host_names)
        self.replication_quotas = ReplicationQuotas(self.node_id, config, self.clock)
        self.endpoints = opened.endpoints
        self.connection_limits = opened.connection_limits
        self.turns = Turns(self.scheduler, environment.computing, self.watchdog)
        self.admission = Admission(self.connection_limits, self.quotas.connections, self.clock)
        self.memory = Memory.of(
            self.scheduler,
            config.get_int("socket.request.max.bytes"),
            config.get_int("queued.max.request.bytes"),
        )

        self._make_metadata(opened)
        self.listener_security = ListenerSecurity(
            config,
            self.metadata.image,
            self.chance,
            self.clock,
            opened.encryption,
            opened.tokens,
            self.timers,
        )
        self._make_partitions(opened)
        self._make_coordinators()
        self._make_upkeep(opened)

    def _make_metadata(self, opened: Opened) -> None:
        """Make the parts for the cluster's metadata."""
        self.metadata = opened.metadata
        self.metadata.carry_out = partial(self.turns.carry_out, failed=self.stop_on_failure)
        self.controller = Controller(self.metadata)
        self.cluster: Cluster = opened.joined or OwnCluster(
            self.controller, self.own_settings, opened.incarnation, self._controlled_shutdown(opened)
        )
        self.forwarding = self.cluster.forwarding
        decides = opened.joined is None
        self._expire_tokens = TokenExpiry(self.metadata, self.controller, self.clock) if decides else None
        self.log_dirs = opened.log_dirs
        self.placement = opened.placement
        self.topics = TopicRequests(
            self.controller,
            self.config,
            StripedReplicaPlacer(self.chance.randrange, self.placement),
            self.chance.uuid,
            self.cluster.create_automatically,
        )

    def _controlled_shutdown(self, opened: Opened) -> ControlledShutdown | None:
        if not [*opened.controller_endpoints]:
            return None
        # Imported here, so that a node which is alone in its cluster doesn't load it.
        from broker.peers.other_brokers import OtherBrokers

        return ControlledShutdown(
            opened.incarnation,
            self.controller,
            OtherBrokers(
                self.config, opened.environment, self.metadata.image, self.faults, opened.to_brokers
            ),
            self.scheduler,
            self.faults,
            self.own_settings,
            self._others_know,
        )

    def _others_know(self) -> bool:
        return self.controller_server is None or self.controller_server.cluster_control.others_know()

    def _make_partitions(self, opened: Opened) -> None:
        """Make the partitions and their disks."""
        config, image = self.config, self.metadata.image
        # None until a replica on another node joins or leaves an ISR.
        self.alter_partition_manager: AlterPartitionManager | None = None
        self.partitions = Partitions(
            self.node_id,
            self.log_dirs.online,
            ReplicaDirectories(
                image, self.log_dirs, self.placement, self.cluster.assign, opened.folders
            ).directory_of,
            replication=Replication(
                image,
                now_ms=self.clock.now_ms,
                max_lag_ms=lambda: config.get_int("replica.lag.time.max.ms"),
                own_epoch=lambda: self.broker_epoch,
                alter=self._alter_partition,
                changes=IsrChanges(),
            ),
            clock=self.clock,
            chance=self.chance,
            config_of_topic=partial(log_config_by_name, config, image.config_of_topic),
            is_internal=is_internal,
            failed=self.stop_on_failure,
        )
        self.current_leaders = CurrentLeaders(self.partitions, image)
        self.replica_selector = selector_maker(config, image)
        self.fetch_sessions = FetchSessions(
            config.get_int("max.incremental.fetch.session.cache.slots"), self.chance.randrange
        )
        self.cleaner = LogCleaner(config, self.partitions, opened.environment)
        self.moves = LogDirMoves(
            self.log_dirs,
            self.partitions,
            self.cluster.assign,
            clock=self.clock,
            scheduler=self.scheduler,
            chance=self.chance,
            quota=self.replication_quotas.alter_log_dirs,
        )
        self.log_dir_failures = LogDirFailures(
            self.log_dirs, self.partitions, self.moves, self.cluster.losses(self.log_dirs, self.partitions)
        )

    def _make_coordinators(self) -> None:
        self.coordinators = coordinators = Coordinators(
            self.node_id,
            self.config,
            self.metadata,
            self.partitions,
            self.cluster,
            self._runtime_of,
            topics=self.topics,
            clock=self.clock,
            scheduler=self.scheduler,
            timers=self.timers,
            turns=self.turns,
            failed=self.stop_on_failure,
        )
        self.producer_ids = coordinators.producer_ids
        self.share_states = coordinators.share_states
        self.latest_offsets = coordinators.latest_offsets
        self.groups = coordinators.groups
        self.internal_topics = coordinators.internal_topics
        self.markers = coordinators.markers
        self.transactions = coordinators.transactions
        self.add_partitions_manager = coordinators.add_partitions_manager
        self.produce_verification = coordinators.produce_verification

    # `Coordinators` makes these when they are first used.
    share_persister = property(attrgetter("coordinators.share_persister"))
    shares = property(attrgetter("coordinators.shares"))

    def _make_upkeep(self, opened: Opened) -> None:
        """Make what keeps the node going: following the metadata, periodic work, and finally the clients."""
        self.publisher = BrokerMetadataPublisher(
            self.node_id,
            self.metadata,
            MetadataSubscribers(
                self.config,
                self.quotas,
                self.connection_limits,
                self.authorizer,
                self.log_dirs,
                self.partitions,
                self.groups,
                self.transactions,
                self.share_states,
                self.cleaner,
                self.replication_quotas,
                self.coordinators.follow_share_version,
                self.key_stores,
                self.cluster.following(self.partitions, self.replication_quotas.follower),
            ),
        )
        self._make_listeners(opened)
        of_controller = () if self.controller_server is None else self.controller_server.listeners.values()
        self.housekeeping = Housekeeping(
            self.config,
            self.clock,
            self.scheduler,
            log_dirs=self.log_dirs,
            log_dir_failures=self.log_dir_failures,
            partitions=self.partitions,
            snapshots=self.metadata.snapshots,
            metadata_log=self.metadata.log,
            listeners=[*self.listeners.values(), *of_controller],
            to_wake=(self.cleaner.look, self.moves.go_on),
            expire_tokens=self._expire_tokens,
        )

    def _make_listeners(self, opened: Opened) -> None:
        """Make the listeners, and what they need to serve clients and other nodes."""
        metadata, hosted = self.metadata, self.coordinators.hosted
        if [*opened.metrics_endpoints]:
            # Imported here, so that nodes without metrics don't load it.
            from broker.metrics.client_telemetry import ClientTelemetry

            max_bytes = self.config.get_int("telemetry.max.bytes")
            self.telemetry = ClientTelemetry(metadata.image, max_bytes, self.clock.now_ms, self.chance)
            self.handlers = {**HANDLERS, **TELEMETRY_HANDLERS}
        self.early_requests = EarlyRequests(self.node_id, metadata, self.partitions, hosted, self.scheduler)
        self.dispatcher = Dispatcher(
            self,
            self.quotas,
            self.clock,
            self.turns,
            self.watchdog,
            self.stop_on_failure,
            self.cluster.forwarding,
            self.early_requests,
            self.handlers,
        )
        self.listeners = {
            endpoint.name: Listener(
                endpoint,
                self.dispatcher,
                self.admission,
                self.scheduler,
                self.memory,
                self.listener_security.of(endpoint.name),
            )
            for endpoint in self.endpoints
        }
        self._make_controller_server(opened)
        self._watch(opened)

    def _alter_partition(self, partition: PartitionKey, wanted: WantedIsr) -> Later[LeaderAndIsr]:
        if self.alter_partition_manager is None:
            from broker.peers.alter_partition_manager import AlterPartitionManager

            self.alter_partition_manager = AlterPartitionManager(
                lambda: self._incarnation, self.cluster.to_controller(), self.scheduler
            )
        return self.alter_partition_manager.submit(partition, wanted)

    def _runtime_of(self, partition: Partition) -> PartitionRuntime:
        return PartitionRuntime(
            partition,
            self.clock,
            self.timers,
            self.chance.uuid,
            self._carry_out_of_group,
            self._begin,
        )

    def _carry_out_of_group(self, group_id: str, steps: Waiting[None]) -> None:
        self.groups.carry_out(self.turns, group_id, steps, self.stop_on_failure)

    def _begin(self, steps: Waiting[None]) -> None:
        self.turns.carry_out(steps, self.stop_on_failure)

    def _make_controller_server(self, opened: Opened) -> None:
        self.controller_server: ControllerServer | None = None
        self.metadata_replicas: Mapping[tuple[int, bytes], ReplicaProgress] = {}
        if [*opened.controller_endpoints]:
            # Imported here, so that a node which is alone in its cluster doesn't load it.
            from broker.quorum.controller_server import ControllerServer

            self.controller_server = ControllerServer(self, opened.controller_endpoints, opened.incarnation)
            self.metadata_replicas = self.controller_server.metadata_replicas

    def _watch(self, opened: Opened) -> None:
        self.metrics: MetricsListener | None = None
        for endpoint in opened.metrics_endpoints:
            # Imported here, so that nodes without metrics don't load it.
            from broker.metrics.metrics_listener import MetricsListener

            dispatchers = [self.dispatcher]
            if self.controller_server is not None:
                dispatchers.append(self.controller_server.dispatcher)
            self.metrics = MetricsListener(
                endpoint, self, dispatchers, self._collect_metrics, self._awaited, self.telemetry
            )

    async def _collect_metrics(self, requests: RequestMetrics) -> Sequence[Any]:
        from broker.metrics.node_metrics import broker_metrics  # with the first scrape

        return await broker_metrics(self, requests)

    def _awaited(self) -> str:
        """What keeps the node from serving everything. Empty if nothing does."""
        if not all(listener.accepts for listener in self.listeners.values()):
            return "its listeners"
        loading = [topic for topic, hosted in self.coordinators.hosted.items() if hosted.is_loading]
        return f"the coordinators of {', '.join(loading)}" if loading else ""

    @property
    def bootstrap(self) -> str:
        """host:port of the first listener that clients get to know."""
        return self.endpoints.bootstrap

    def open_partitions(self, moves_found: Sequence[tuple[str, int, bytes]]) -> None:
        """Open the logs that the metadata has on this node, and begin to load their coordinators.

        `moves_found` are the moves between directories to continue, by topic, partition and directory id.
        """
        self.publisher.start()
        self.moves.resume(moves_found)
        self.log_dir_failures.start(self.scheduler.call_soon, self.stop_on_failure)

    async def serve(self) -> None:
        """Begin to serve. Returns once clients can connect."""
        if self.controller_server is not None:
            await self.controller_server.serve()
        for listener in self.listeners.values():
            await listener.listen()
        if self.metrics is not None:
            await self.metrics.listen()
        self.housekeeping.start()
        self.cleaner.start()

    # --- the end --------------------------------------------------------------------------------------------

    @property
    def stopped(self) -> asyncio.Event:
        """Set when the node has to stop, and when it has stopped."""
        return self.faults.stopped

    @property
    def failure(self) -> BaseException | None:
        """Why the node had to stop, or the error of its stop."""
        return self.faults.failure

    def stop_on_failure(self, failure: BaseException) -> None:
        """Stop because of a broken invariant, without marking the folders clean: the next start then checks
        everything."""
        self.faults.stop_on_failure(failure)

    def fall_silent(self) -> None:
        """Stop serving, and all work in the background. For a stop, or a start that failed half-way."""
        for listener in self.listeners.values():
            listener.stop_accepting()
        if self.metrics is not None:
            self.metrics.close()
        if self.controller_server is not None:
            self.controller_server.fall_silent()
        self.housekeeping.stop()
        self.cleaner.stop()
        self.moves.stop()
        self.log_dirs.forget_failures()
        for part in (self.timers, self.turns, self.early_requests, self.controller, self.cluster):
            part.stop()
        if self.alter_partition_manager is not None:
            self.alter_partition_manager.stop()
        self.coordinators.fall_silent()
        for listener in self.listeners.values():
            listener.close_connections()

    async def stop(self, *, leave: bool = True, keeps: bool = True) -> None:
        """Stop cleanly: the next start needs no recovery for what was acknowledged.

        With `leave`, first let other brokers, if any, take over. Without `keeps`, nobody needs the folder any
        more, so nothing is synced.

        Errors on the way are logged. They become the node's `failure`, and keep it from writing the mark of a
        clean shutdown.
        """
        faults = self.faults
        if faults.failure is None and leave:
            try:
                await self.cluster.leave()
            except Exception as error:
                faults.failed_to_stop("can't let other brokers take over", error)
        self.fall_silent()
        try:
            # Before the background ends, so that a last sync doesn't advance transactions any more.
            self.coordinators.unload()
        except Exception as error:
            faults.failed_to_stop("can't unload the coordinators", error)
        if keeps and faults.failure is None:
            try:
                self._give_up_leadership()
            except Exception as error:
                faults.failed_to_stop("can't record the end in the metadata log", error)
        await self.background.finish()
        unclean = self.log_dirs.close(
            clean=keeps and faults.failure is None,
            broker_epoch=self.broker_epoch,
            run_all=self.background.run_all,
        )
        faults.end(unclean)

    def _give_up_leadership(self) -> None:
        self.publisher.stop()
        if not self.metadata.is_leader:
            return  # another node leads by now
        self.metadata.commit_at_once()
        self.log_dir_failures.record()
        updates = partial(leader_and_isr_updates, own=self.own_settings)
        end_run(self.metadata, self._incarnation, updates)
