"""The controller's listeners of a node, and what they serve (Kafka: `ControllerServer`, `ControllerApis`).

The metadata log, the decisions, and the other parts that handlers need belong to the node (`ControlPlane`),
whether it is also a broker or not. Handlers that brokers have, too, decide here about forwarded requests.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from broker.controller.broker_records import BrokerIncarnation, advertised_listeners, feature_ranges
from broker.controller.cluster_control import (
    ClusterControl,
    register_controller,
)
from broker.controller.controller import Controller
from broker.controller.observer import LeaderEndpoint
from broker.controller.partition_changes import OwnSettings
from broker.controller.quorum_requests import DelayedMetadataFetches, QuorumRequests
from broker.controller.replica_placer import StripedReplicaPlacer
from broker.controller.token_expiry import TokenExpiry
from broker.controller.topic_requests import TopicRequests
from broker.environment.scheduler import LoopTimers, Watchdog
from broker.handlers import CONTROLLER_HANDLERS
from broker.housekeeping import DELETED_CHECK_MS, MAKE_UP_MS, METADATA_CLEANING_MS, Upkeep
from broker.metadata_publisher import ControllerMetadataPublisher, SettingsPublisher
from broker.network.dispatch import Dispatcher
from broker.network.endpoints import HostNames
from broker.network.key_stores import NO_KEY_STORES, KeyStores
from broker.network.listener import Admission, Listener
from broker.network.listener_security import ListenerSecurity
from broker.network.memory import Memory
from broker.network.turns import Turns
from broker.quotas import ClientQuotas
from broker.security.node_authorizer import authorizer_of
from protocol.messages.broker_to_controller import ControllerRegistrationRequest

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from broker.config.broker_config import BrokerConfig
    from broker.controller.metadata_log import MetadataLog
    from broker.disks.log_dirs import LogDirs
    from broker.environment.environment import Environment
    from broker.environment.scheduler import Chance, Clock, Scheduler
    from broker.fault_handler import FaultHandler
    from broker.metrics.metrics_listener import MetricsListener
    from broker.metrics.request_metrics import RequestMetrics
    from broker.network.connection_limits import ConnectionLimits
    from broker.network.endpoints import Endpoints
    from broker.network.tls_gate import Encryption
    from broker.security.authorizer import Authorizer
    from broker.security.token_source import TokenSource


log = logging.getLogger("barnabas.controller")


class ControlPlane(Protocol):
    """The parts of a node that its controller's listeners need."""

    config: BrokerConfig
    clock: Clock
    scheduler: Scheduler
    chance: Chance
    node_id: int
    cluster_id: str
    metadata: MetadataLog
    controller: Controller
    topics: TopicRequests
    quotas: ClientQuotas
    authorizer: Authorizer
    host_names: HostNames
    turns: Turns
    watchdog: Watchdog
    admission: Admission
    memory: Memory
    listener_security: ListenerSecurity
    own_settings: OwnSettings
    """The settings that count if neither the topic nor the cluster sets one."""

    def stop_on_failure(self, failure: BaseException) -> None:
        """Stop the node because of a broken invariant."""


class ControllerServer:
    """Serves the controller's listeners. Its attributes are the ports of `CONTROLLER_HANDLERS`."""

    handlers = CONTROLLER_HANDLERS
    forwarding = None

    def __init__(self, node: ControlPlane, endpoints: Endpoints, own: BrokerIncarnation | None) -> None:
        """`endpoints` are the controller's. `own` is the broker in the same process, if any."""
        self.config = node.config
        self.clock = node.clock
        self.scheduler = node.scheduler
        self.chance = node.chance
        self.node_id = node.node_id
        self.cluster_id = node.cluster_id
        self.metadata = node.metadata
        self.controller = node.controller
        self.topics = node.topics
        self.quotas = node.quotas
        self.authorizer = node.authorizer
        self.host_names = node.host_names
        self.turns = node.turns
        self.own_settings = node.own_settings
        self.endpoints = endpoints
        self._stop_on_failure = node.stop_on_failure
        self._incarnation_id = node.chance.uuid()
        self.quorum = QuorumRequests(node.metadata, node.cluster_id)
        self.metadata_replicas = self.quorum.replicas
        self.metadata_fetches = DelayedMetadataFetches(self.quorum, node.clock, node.scheduler)
        self.cluster_control = ClusterControl(
            node.config,
            node.metadata,
            node.controller,
            cluster_id=node.cluster_id,
            clock=node.clock,
            scheduler=node.scheduler,
            own_settings=node.own_settings,
            own=own,
        )
        self.dispatcher = Dispatcher(
            self,
            node.quotas,
            node.clock,
            node.turns,
            node.watchdog,
            node.stop_on_failure,
            None,
            None,
            CONTROLLER_HANDLERS,
        )
        self.listeners = {
            endpoint.name: Listener(
                endpoint,
                self.dispatcher,
                node.admission,
                node.scheduler,
                node.memory,
                node.listener_security.of(endpoint.name),
            )
            for endpoint in endpoints
        }

    async def serve(self) -> None:
        """Begin to serve. Returns once brokers can connect."""
        host, port = self.endpoints.first_advertised
        self.quorum.lead(LeaderEndpoint(self.node_id, host, port))
        self.metadata.on_progress = self.metadata_fetches.progress
        # Without its log, the controller can't track and fence brokers. They do without one until it is back.
        self.metadata.on_lost = self._stop_on_failure
        self.cluster_control.start()
        self.controller.begin(self._register())
        for listener in self.listeners.values():
            await listener.listen()

    async def _register(self) -> None:
        """Register this controller. (Kafka's sends itself the request, through its own listener.)"""
        request = ControllerRegistrationRequest(
            controller_id=self.node_id,
            incarnation_id=self._incarnation_id,
            listeners=advertised_listeners(self.endpoints.all_advertised()),
            features=feature_ranges(),
        )
        failure = await self.controller.submit_own(
            lambda image: register_controller(image, request), log, "can't register this controller"
        )
        if failure is not None:
            log.warning("can't register this controller: %s", failure)

    def fall_silent(self) -> None:
        """Stop serving."""
        for listener in self.listeners.values():
            listener.stop_accepting()
        self.cluster_control.stop()
        self.metadata_fetches.stop()
        self.metadata.on_progress = lambda: None
        self.metadata.on_lost = lambda failure: None
        for listener in self.listeners.values():
            listener.close_connections()


# --- A node that is the cluster's controller and not a broker (Kafka: `process.roles=controller`) -----------
# `broker.starting` opens it.


class ControllerUpkeep(Upkeep):
    """Runs the periodic tasks."""

    def start(self) -> None:
        """Start all tasks, at the intervals in the settings."""
        checkpoint_ms = self._config.get_int("log.flush.offset.checkpoint.interval.ms")
        self._every("recovery points", checkpoint_ms, self.checkpoint_recovery_points)
        self._every("metadata cleaning", METADATA_CLEANING_MS, self.clean_metadata)
        self._every("deleted directories", DELETED_CHECK_MS, self._log_dirs.find_deleted)
        self._every("made up", MAKE_UP_MS, self._make_up)
        self._begin_expiring_tokens()
        self._begin_closing_idle()

    def _make_up(self) -> None:
        with suppress(MemoryError):
            self._metadata_log.go_on_flushing()


# --- The node -----------------------------------------------------------------------------------------------


class OpenedController(NamedTuple):
    """The parts of such a node: bound, locked, replayed."""

    config: BrokerConfig
    environment: Environment
    faults: FaultHandler
    connection_limits: ConnectionLimits
    endpoints: Endpoints
    metrics_endpoints: Endpoints
    log_dirs: LogDirs
    metadata: MetadataLog
    encryption: Mapping[str, Encryption] = {}
    """By the names of its encrypted listeners."""
    key_stores: KeyStores = NO_KEY_STORES
    tokens: Mapping[str, TokenSource] = {}
    """By the names of its listeners with OAUTHBEARER."""


class ControllerNode:
    """A node that is a controller only: a `ControlPlane`, and what keeps it going."""

    def __init__(self, opened: OpenedController) -> None:
        config, environment = opened.config, opened.environment
        self.config = config
        self.clock = environment.clock
        self.scheduler = environment.scheduler
        self.chance = environment.chance
        self.files = environment.files
        self.background = environment.background
        self.faults = opened.faults
        self.node_id = config.node_id
        self.cluster_id = opened.log_dirs.cluster_id
        self.own_settings = OwnSettings.of(config)
        self.key_stores = opened.key_stores
        self.log_dirs = opened.log_dirs
        self.endpoints = opened.endpoints
        self.watchdog = Watchdog(self.clock.monotonic_s)
        self.authorizer: Authorizer = authorizer_of(config.authorizer, config.closed_to_brokers)
        self.host_names = HostNames(environment.names, environment.computing)
        self.quotas = ClientQuotas(config, self.host_names)
        self.turns = Turns(self.scheduler, environment.computing, self.watchdog)
        self.admission = Admission(opened.connection_limits, self.quotas.connections, self.clock)
        self.memory = Memory.of(
            self.scheduler,
            config.get_int("socket.request.max.bytes"),
            config.get_int("queued.max.request.bytes"),
        )
        self.metadata = opened.metadata
        self.metadata.carry_out = partial(self.turns.carry_out, failed=self.stop_on_failure)
        self.timers = LoopTimers(self.clock, self.scheduler, self.stop_on_failure, self.watchdog)
        self.listener_security = ListenerSecurity(
            config,
            self.metadata.image,
            self.chance,
            self.clock,
            opened.encryption,
            opened.tokens,
            self.timers,
        )
        self.controller = Controller(self.metadata)
        self.topics = TopicRequests(
            self.controller, config, StripedReplicaPlacer(self.chance.randrange), self.chance.uuid
        )
        self.controller_server = ControllerServer(self, self.endpoints, None)
        limits = opened.connection_limits
        settings = SettingsPublisher(
            self.node_id, config, self.quotas, limits, self.authorizer, self.key_stores
        )
        self.publisher = ControllerMetadataPublisher(self.metadata, settings)
        self.upkeep = ControllerUpkeep(
            config,
            self.clock,
            self.scheduler,
            log_dirs=self.log_dirs,
            snapshots=self.metadata.snapshots,
            metadata_log=self.metadata.log,
            listeners=[*self.controller_server.listeners.values()],
            expire_tokens=TokenExpiry(self.metadata, self.controller, self.clock),
        )
        self._watch(opened)

    def _watch(self, opened: OpenedController) -> None:
        self.metrics: MetricsListener | None = None
        for endpoint in opened.metrics_endpoints:
            # Imported here, so that nodes without metrics don't load it.
            from broker.metrics.metrics_listener import MetricsListener

            self.metrics = MetricsListener(
                endpoint, self, [self.controller_server.dispatcher], self._collect_metrics, lambda: ""
            )

    async def _collect_metrics(self, requests: RequestMetrics) -> Sequence[Any]:
        from broker.metrics.node_metrics import controller_metrics  # with the first scrape

        return await controller_metrics(self, requests)

    @property
    def listeners(self) -> Mapping[str, Listener]:
        """The listeners by name."""
        return self.controller_server.listeners

    @property
    def bootstrap(self) -> str:
        """host:port of its first listener."""
        return self.endpoints.bootstrap

    async def serve(self) -> None:
        """Begin to serve. Returns once brokers can connect."""
        self.log_dirs.on_lost = self.stop_on_failure
        self.publisher.start()
        await self.controller_server.serve()
        if self.metrics is not None:
            await self.metrics.listen()
        self.upkeep.start()

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
        """Stop because of a broken invariant, without marking the folder clean: the next start then checks
        everything."""
        self.faults.stop_on_failure(failure)

    def fall_silent(self) -> None:
        """Stop serving, and all periodic work."""
        self.controller_server.fall_silent()
        if self.metrics is not None:
            self.metrics.close()
        self.upkeep.stop()
        self.timers.stop()
        self.log_dirs.forget_failures()
        self.turns.stop()
        self.controller.stop()

    async def stop(self, *, leave: bool = True) -> None:
        """Stop cleanly. There is nothing to `leave`: brokers go on without a controller until it is back."""
        faults = self.faults
        self.fall_silent()
        self.publisher.stop()
        self.metadata.commit_at_once()
        await self.background.finish()
        unclean = self.log_dirs.close(clean=faults.failure is None, run_all=self.background.run_all)
        faults.end(unclean)
