"""A node that is the cluster's controller, and no broker (Kafka: `process.roles=controller`).

How it is opened stands in `broker.starting_controller`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.controller import Controller
from broker.controller.replica_placer import StripedReplicaPlacer
from broker.controller.topic_requests import TopicRequests
from broker.environment.scheduler import Watchdog
from broker.housekeeping import DELETED_CHECK_MS, MAKE_UP_MS, METADATA_CLEANING_MS, Upkeep
from broker.metadata_publisher import SettingsPublisher
from broker.network.endpoints import HostNames
from broker.network.listener import Admission, Listener
from broker.network.memory import Memory
from broker.network.turns import Turns
from broker.own_settings import own_settings
from broker.quorum.controller_server import ControllerServer
from broker.quotas.client_quotas import ClientQuotas
from broker.security.authorizer import AllowEverything
from protocol.waiting import Waiting, at_once

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from broker.config.broker_config import BrokerConfig
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.partition_updates import OwnSettings
    from broker.disks.log_dirs import LogDirs
    from broker.environment.environment import Environment
    from broker.fault_handler import FaultHandler
    from broker.network.connection_limits import ConnectionLimits
    from broker.network.endpoints import Endpoints
    from broker.security.authorizer import Authorizer


class ControllerUpkeep(Upkeep):
    """Runs the periodic tasks."""

    def start(self) -> None:
        """Begins all of it, at the intervals of the settings."""
        checkpoint_ms = self._config.get_int("log.flush.offset.checkpoint.interval.ms")
        self._every("recovery points", checkpoint_ms, self.checkpoint_recovery_points)
        self._every("metadata cleaning", METADATA_CLEANING_MS, self.clean_metadata)
        self._every("deleted directories", DELETED_CHECK_MS, self._log_dirs.find_deleted)
        self._every("made up", MAKE_UP_MS, self._make_up)
        self._begin_closing_idle()

    def _make_up(self) -> None:
        with suppress(MemoryError):
            self._metadata_log.go_on_flushing()


# --- The node -----------------------------------------------------------------------------------------------


class OpenedController(NamedTuple):
    """What it is made of: bound, locked, replayed."""

    config: BrokerConfig
    environment: Environment
    faults: FaultHandler
    connection_limits: ConnectionLimits
    endpoints: Endpoints
    log_dirs: LogDirs
    metadata: MetadataLog


class ControllerNode:
    """A `ControlPlane`, and what keeps it going."""

    def __init__(self, opened: OpenedController) -> None:
        config, environment = opened.config, opened.environment
        self.config = config
        self.clock = environment.clock
        self.scheduler = environment.scheduler
        self.chance = environment.chance
        self.background = environment.background
        self.faults = opened.faults
        self.node_id = config.node_id
        self.cluster_id = opened.log_dirs.cluster_id
        self.log_dirs = opened.log_dirs
        self.endpoints = opened.endpoints
        self.watchdog = Watchdog(self.clock.monotonic_s)
        self.authorizer: Authorizer = AllowEverything()
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
        self.metadata.carry_out = self._carry_out
        self.controller = Controller(self.metadata)
        self.topics = TopicRequests(
            self.controller, config, StripedReplicaPlacer(self.chance.randrange), self.chance.uuid
        )
        self.controller_server = ControllerServer(self, self.endpoints, None)
        self._settings = SettingsPublisher(self.node_id, config, self.quotas, opened.connection_limits)
        self.upkeep = ControllerUpkeep(
            config,
            self.clock,
            self.scheduler,
            log_dirs=self.log_dirs,
            snapshots=self.metadata.snapshots,
            metadata_log=self.metadata.log,
            listeners=[*self.controller_server.listeners.values()],
        )

    def own_settings(self) -> OwnSettings:
        """What counts where neither a topic nor the cluster says anything."""
        return own_settings(self.config)

    def _carry_out(self, steps: Waiting[None]) -> None:
        self.turns.carry_out(steps, self.stop_on_failure)

    async def _publish(self) -> None:
        await self._settings.publish(self.metadata.image)
        self.metadata.image.take_changes()

    @property
    def listeners(self) -> Mapping[str, Listener]:
        """By name."""
        return self.controller_server.listeners

    @property
    def bootstrap(self) -> str:
        """host:port of the first of its listeners."""
        return self.endpoints.bootstrap

    async def serve(self) -> None:
        """Returns when brokers can connect."""
        self.log_dirs.on_lost = self.stop_on_failure
        at_once(self._publish())
        self.metadata.on_change = self._publish
        await self.controller_server.serve()
        self.upkeep.start()

    # --- the end --------------------------------------------------------------------------------------------

    @property
    def stopped(self) -> asyncio.Event:
        """Set where the node has to stop, and when it has."""
        return self.faults.stopped

    @property
    def failure(self) -> BaseException | None:
        """What the node had to stop for, or what its stop failed with."""
        return self.faults.failure

    def stop_on_failure(self, failure: BaseException) -> None:
        """A broken invariant: go down without marking the folder clean, so that the next start checks everything."""
        self.faults.stop_on_failure(failure)

    def fall_silent(self) -> None:
        """Nobody is served any more, and nothing goes on by itself."""
        self.controller_server.fall_silent()
        self.upkeep.stop()
        self.log_dirs.forget_failures()
        self.turns.stop()
        self.controller.stop()

    async def stop(self, *, leave: bool = True) -> None:
        """Stop cleanly. Brokers go on without a controller until there is one again: there is nothing to `leave`."""
        faults = self.faults
        self.fall_silent()
        self.metadata.on_change = lambda: None
        self.metadata.commit_at_once()
        await self.background.finish()
        unclean = self.log_dirs.close(clean=faults.failure is None, run_all=self.background.run_all)
        faults.end(unclean)
