"""The controller's listeners of a node, and what is served there (Kafka: `ControllerServer`, `ControllerApis`).

The metadata log, the decisions and what handlers need of the rest are the node's (`ControlPlane`), whether it is a
broker, too, or nothing else. Handlers that brokers have as well decide here for what brokers hand on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from broker.controller.broker_registration import register_controller
from broker.controller.observer import LeaderEndpoint
from broker.controller.quorum_requests import QuorumRequests
from broker.controller.registration import advertised_listeners, feature_ranges
from broker.handlers import CONTROLLER_HANDLERS
from broker.network.dispatch import Dispatcher
from broker.network.listener import Admission, Listener
from broker.quorum.cluster_control import ClusterControl
from broker.quorum.delayed_metadata_fetches import DelayedMetadataFetches
from protocol.errors import KafkaError
from protocol.messages.broker_to_controller import ControllerRegistrationRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.config.broker_config import BrokerConfig
    from broker.controller.controller import Controller
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.partition_updates import OwnSettings
    from broker.controller.registration import BrokerIncarnation
    from broker.controller.topic_requests import TopicRequests
    from broker.environment.environment import Chance
    from broker.environment.scheduler import Clock, Scheduler, Watchdog
    from broker.network.endpoints import Endpoints, HostNames
    from broker.network.memory import Memory
    from broker.network.turns import Turns
    from broker.quotas.client_quotas import ClientQuotas
    from broker.security.authorizer import Authorizer

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

    def own_settings(self) -> OwnSettings:
        """What counts where neither a topic nor the cluster says anything."""

    def stop_on_failure(self, failure: BaseException) -> None:
        """A broken invariant."""


class ControllerServer:
    """Attributes are the ports of `CONTROLLER_HANDLERS`."""

    handlers = CONTROLLER_HANDLERS
    forwarding = None

    def __init__(self, node: ControlPlane, endpoints: Endpoints, own: BrokerIncarnation | None) -> None:
        """`endpoints`: the controller's. `own`: the broker in the same process."""
        self.config = node.config
        self.clock = node.clock
        self.scheduler = node.scheduler
        self.node_id = node.node_id
        self.cluster_id = node.cluster_id
        self.metadata = node.metadata
        self.controller = node.controller
        self.topics = node.topics
        self.quotas = node.quotas
        self.authorizer = node.authorizer
        self.host_names = node.host_names
        self.turns = node.turns
        self.own_settings: Callable[[], OwnSettings] = node.own_settings
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
            endpoint.name: Listener(endpoint, self.dispatcher, node.admission, node.scheduler, node.memory)
            for endpoint in endpoints
        }

    async def serve(self) -> None:
        """Returns once brokers can connect."""
        host, port = self.endpoints.first_advertised
        self.quorum.lead(LeaderEndpoint(self.node_id, host, port))
        self.metadata.on_progress = self.metadata_fetches.progress
        # Brokers are heard and fenced by what is gone then; they do without a controller until there is one again.
        self.metadata.on_lost = self._stop_on_failure
        self.cluster_control.start()
        self._register()
        for listener in self.listeners.values():
            await listener.listen()

    def _register(self) -> None:
        """Of this controller. (Kafka's sends itself the request, by its own listener.)"""
        request = ControllerRegistrationRequest(
            controller_id=self.node_id,
            incarnation_id=self._incarnation_id,
            listeners=advertised_listeners(self.endpoints.all_advertised()),
            features=feature_ranges(),
        )

        def reply(failure: KafkaError | None) -> None:
            if failure is not None:
                log.warning("this controller can't be registered: %s", failure)

        self.controller.submit_own(
            lambda image: register_controller(image, request),
            reply,
            lambda error: log.error("this controller can't be registered", exc_info=error),
        )

    def fall_silent(self) -> None:
        """Nobody is served any more."""
        for listener in self.listeners.values():
            listener.stop_accepting()
        self.cluster_control.stop()
        self.metadata_fetches.stop()
        self.metadata.on_progress = lambda: None
        self.metadata.on_lost = lambda failure: None
        for listener in self.listeners.values():
            listener.close_connections()
