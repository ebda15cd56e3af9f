"""This broker in a cluster with a controller on another node: it follows the metadata, registers, and leaves.

Source: `BrokerServer.startup`, `shutdown`; KIP-631.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from broker.config.definitions import StartError
from broker.controller.broker_records import BrokerIncarnation
from broker.controller.metadata_versions import CORDONED_SINCE, DIRECTORIES_SINCE, METADATA_VERSION
from broker.controller.observer import AfterAnswer, Observer, ObserverIdentity
from broker.controller.replica_directories import directory_of
from broker.coordination.producer_id_blocks import ProducerIdBlocks
from broker.disks.failures import ToldLosses
from broker.environment.scheduler import Waker
from broker.fault_handler import Milestone
from broker.peers.assignments_manager import AssignmentsManager
from broker.peers.controller_channel import (
    ControllerChannel,
    TopicCreationRequests,
)
from broker.peers.forwarding import Forwarding
from broker.peers.lifecycle import BrokerLifecycle, Listening, registration_request
from broker.peers.opening import OPEN, Entrance
from broker.peers.other_brokers import OtherBrokers, software_version
from broker.peers.peer import OnePeer, PeerSettings
from protocol.errors import KafkaError
from protocol.waiting import Later, carry_on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import TopicChanges
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.topic_requests import Create
    from broker.coordination.latest_offsets import AskLatestOffset
    from broker.coordination.produce_verification import AskElsewhere
    from broker.coordination.share_persister import AskShareStates
    from broker.disks.failures import DirectoryLosses
    from broker.disks.log_dirs import LogDirs
    from broker.environment.environment import Environment
    from broker.environment.network import Network
    from broker.environment.scheduler import Scheduler
    from broker.fault_handler import FaultHandler
    from broker.network.endpoints import Address, Endpoints
    from broker.quotas import ReplicationQuota
    from broker.replicas.partitions import Partitions
    from broker.shares.dead_letters import ProduceElsewhere
    from coordinator.ports import Markers
    from protocol.wire.schema import Message


BACK_OFF_S = 0.02
"""`controller.quorum.retry.backoff.ms`."""
REQUEST_TIMEOUT_MS = 2_000
"""`controller.quorum.request.timeout.ms`."""


class MetadataFetcher:
    """Fetches the metadata from the leader, if it is known, otherwise from the quorum's bootstrap addresses
    in turn."""

    def __init__(
        self,
        observer: Observer,
        bootstrap: Sequence[Address],
        *,
        settings: PeerSettings,
        network: Network,
        scheduler: Scheduler,
        failed: Callable[[Exception], None],
    ) -> None:
        """`failed` gets the error that ends the fetching: a broken invariant, or a failed disk."""
        self._observer = observer
        self._bootstrap = [*bootstrap]
        self._next = 0
        self._failed = failed
        self._asked = OnePeer(settings, network, scheduler)
        self._waker = Waker(scheduler)
        self._is_stopped = False
        self._unreachable = ""  # after the last request

    def start(self) -> None:
        """Send the first request."""
        carry_on(self._fetch_on())

    def stop(self) -> None:
        """Send nothing more."""
        self._is_stopped = True
        self._observer.stop()
        self._waker.stop()
        self._asked.stop()

    @property
    def trouble(self) -> str:
        """What keeps the metadata from coming, with the address that was asked last. Empty if all is well, or
        nothing has been asked yet."""
        if self._unreachable or not self._observer.complaint:
            return self._unreachable
        host, port = self._address()
        return f"{host}:{port}: {self._observer.complaint}"

    async def _fetch_on(self) -> None:
        try:
            while not self._is_stopped:
                if await self._fetch() is AfterAnswer.BACK_OFF and not self._is_stopped:
                    await self._waker.wait(BACK_OFF_S)
        except Exception as error:
            self.stop()
            self._failed(error)

    async def _fetch(self) -> AfterAnswer:
        """Send one request and handle its answer. Raises as `Observer.answered`."""
        peer, request = self._asked.at(*self._address()), self._observer.request()
        answer: Message | KafkaError
        try:
            answer = await peer.ask(request, timeout_ms=REQUEST_TIMEOUT_MS)
            self._unreachable = ""
        except KafkaError as error:
            answer = error
            self._unreachable = error.message or error.error.name
            self._observer.lost()
            self._next += 1
        then = self._observer.answered(answer)  # type: ignore[arg-type]
        return await then if isinstance(then, Later) else then

    def _address(self) -> Address:
        leader = self._observer.leader
        if leader is not None and leader.host and not self._observer.is_leader_lost:
            return leader.host, leader.port
        return self._bootstrap[self._next % len(self._bootstrap)]


# --- Keeping the registration up to date --------------------------------------------------------------------


class RegistrationTracker:
    """Registers again if the registration lacks directories. It does if the cluster's metadata.version didn't
    have them when it was written (`BrokerRegistrationTracker`)."""

    def __init__(self, node_id: int, metadata: MetadataLog, lifecycle: BrokerLifecycle) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._lifecycle = lifecycle
        self._made_again = -1
        """The epoch of the last registration that was made again."""
        metadata.following.told.append(self._look)

    def _look(self) -> None:
        """Check the registration: the metadata was followed."""
        image = self._metadata.image
        broker = image.brokers.get(self._node_id)
        if broker is None or broker.log_dirs or image.features.get(METADATA_VERSION, 0) < DIRECTORIES_SINCE:
            return
        if broker.broker_epoch == self._lifecycle.broker_epoch != self._made_again:
            self._made_again = broker.broker_epoch
            self._lifecycle.register_again()


# --- The whole ----------------------------------------------------------------------------------------------


class JoinedCluster:
    """A `Cluster` of several nodes, during one run of this one."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        metadata: MetadataLog,
        *,
        endpoints: Endpoints,
        log_dirs: LogDirs,
        faults: FaultHandler,
        to_brokers: Entrance = OPEN,
        to_controllers: Entrance = OPEN,
    ) -> None:
        """`to_brokers` and `to_controllers` say how this broker connects to them."""
        self._to_controllers = to_controllers
        self._environment = environment
        self._metadata = metadata
        self._image = metadata.image
        self._node_id = config.node_id
        self._software_version = software_version()
        self._others = OtherBrokers(config, environment, self._image, faults, to_brokers)
        self._registration_timeout_ms = config.get_int("initial.broker.registration.timeout.ms")
        self._log_dir_failure_timeout_ms = config.get_int("log.dir.failure.timeout.ms")
        self._faults = faults
        self._to_stop: list[Callable[[], None]] = []
        self._is_registered = Milestone(faults)
        self._is_unfenced = Milestone(faults)
        self._has_left = Milestone(faults)
        self._refusal: str | None = None
        identity = ObserverIdentity(config.node_id, log_dirs.cluster_id, log_dirs.metadata_id)
        self._observer = Observer(metadata, identity, environment.clock)
        self._fetcher = MetadataFetcher(
            self._observer,
            config.controllers,
            settings=PeerSettings(
                f"raft-client-{config.node_id}",
                self._software_version,
                reconnect_backoff_max_ms=500,
                entrance=to_controllers,
            ),
            network=environment.network,
            scheduler=environment.scheduler,
            failed=faults.stop_on_failure,
        )
        self._lifecycle = BrokerLifecycle(
            registration_request(config, endpoints, log_dirs, environment.chance.uuid()),
            self.to_controller(),
            environment.scheduler,
            lambda: metadata.last_applied_offset,
            Listening(
                caught_up=self._is_registered.reached,
                unfenced=self._is_unfenced.reached,
                let_go=self._has_left.reached,
                not_registered=self._not_registered,
            ),
            heartbeat_interval_ms=config.get_int("broker.heartbeat.interval.ms"),
            registration_timeout_ms=self._registration_timeout_ms,
            is_controlled=config.get_boolean("controlled.shutdown.enable"),
            cordoned=lambda: log_dirs.cordoned_ids if self._knows_cordoned() else None,
        )
        log_dirs.on_cordoned = self._cordoned_changed

    # --- with the controller --------------------------------------------------------------------------------

    def to_controller(self) -> ControllerChannel:
        """See `Cluster`."""
        channel = ControllerChannel(
            lambda: self._observer.leader,
            PeerSettings(str(self._node_id), self._software_version, entrance=self._to_controllers),
            self._environment.network,
            self._environment.scheduler,
            why_unknown=lambda: self._fetcher.trouble,
        )
        self._to_stop.append(channel.stop)
        return channel

    @cached_property
    def forwarding(self) -> Forwarding:
        return Forwarding(self.to_controller(), self._environment.scheduler)

    @cached_property
    def create_automatically(self) -> Create:
        creations = TopicCreationRequests(self.to_controller(), self._metadata, self._environment.scheduler)
        self._to_stop.append(creations.stop)
        return creations.create

    def allocate_producer_ids(self, size: int) -> Later[int | KafkaError]:
        return self._producer_ids.allocate(size)

    @cached_property
    def _producer_ids(self) -> ProducerIdBlocks:
        return ProducerIdBlocks(self.to_controller(), self.incarnation)

    @property
    def incarnation(self) -> BrokerIncarnation:
        """This run of the broker, once it is registered."""
        return BrokerIncarnation(self._node_id, self._lifecycle.broker_epoch)

    def assign(self, replica: tuple[bytes, int], directory_id: bytes) -> Later[None]:
        """See `AssignDirectory`. An assignment in flight may differ from the metadata; the assignment
        counts."""
        if not self._assignments.is_on_its_way(replica) and self._is_known(replica, directory_id):
            known: Later[None] = Later()
            known.reply(None)
            return known
        return self._assignments.assign(replica, directory_id)

    def _is_known(self, replica: tuple[bytes, int], directory_id: bytes) -> bool:
        partition = self._image.partition_of(*replica)
        return (
            partition is not None
            and self._node_id in partition.replicas
            and directory_of(partition, self._node_id) == directory_id
        )

    @cached_property
    def _assignments(self) -> AssignmentsManager:
        manager = AssignmentsManager(
            lambda: self.incarnation, self._image, self.to_controller(), self._environment.scheduler
        )
        self._to_stop.append(manager.stop)
        return manager

    def losses(self, log_dirs: LogDirs, partitions: Partitions) -> DirectoryLosses:
        """See `Cluster`."""
        return ToldLosses(
            self._node_id,
            self._image,
            log_dirs=log_dirs,
            partitions=partitions,
            lifecycle=self._lifecycle,
            assign=self.assign,
            scheduler=self._environment.scheduler,
            timeout_ms=self._log_dir_failure_timeout_ms,
            failed=self._faults.stop_on_failure,
        )

    # --- with other brokers ---------------------------------------------------------------------------------

    def markers(self, own: Markers) -> Markers:
        """See `Cluster`."""
        return self._others.markers(own)

    def coordinators(self, partition_of: Callable[[str], int]) -> AskElsewhere:
        """See `Cluster`."""
        return self._others.coordinators(partition_of)

    def share_states(self) -> AskShareStates:
        """See `Cluster`."""
        return self._others.share_states()

    def dead_letters(self) -> ProduceElsewhere:
        """See `Cluster`."""
        return self._others.dead_letters()

    def latest_offsets(self) -> AskLatestOffset:
        """See `Cluster`."""
        return self._others.latest_offsets()

    def following(self, partitions: Partitions, quota: ReplicationQuota) -> Callable[[TopicChanges], None]:
        """See `Cluster`."""
        return self._others.following(self.incarnation, partitions, quota)

    # --- joining and leaving --------------------------------------------------------------------------------

    async def join(self) -> BrokerIncarnation:
        """Return once the metadata includes this broker's registration. Raises StartError if no controller
        registers it in time."""
        RegistrationTracker(self._node_id, self._metadata, self._lifecycle)
        self._fetcher.start()
        self._lifecycle.start()
        await self._is_registered.wait()
        if self._refusal is not None:
            raise StartError(self._refusal)
        return self.incarnation

    def lost_directories(self, directory_ids: Iterable[bytes]) -> None:
        """Report directories that were registered but can't be used."""
        for directory_id in directory_ids:
            self._lifecycle.lost_directory(directory_id)

    async def unfenced(self) -> None:
        """Report that the partitions are in their roles. Returns once the controller has unfenced this
        broker, so clients may come."""
        self._lifecycle.ready()
        await self._is_unfenced.wait()

    async def leave(self) -> None:
        """Return once other brokers lead this broker's partitions, or the wait is over. It takes up to five
        minutes, as in Kafka. If `controlled.shutdown.enable` is false, there is no wait."""
        self._lifecycle.begin_controlled_shutdown()
        await self._has_left.wait()

    def stop(self) -> None:
        """Send nothing more."""
        self._lifecycle.stop()
        self._fetcher.stop()
        self._others.stop()
        for stop in self._to_stop:
            stop()

    def _knows_cordoned(self) -> bool:
        return self._image.features.get(METADATA_VERSION, 0) >= CORDONED_SINCE

    def _cordoned_changed(self) -> None:
        if self._knows_cordoned():
            self._lifecycle.cordoned_changed()

    def _not_registered(self, reason: str) -> None:
        self._refusal = (
            f"no controller has registered this broker within {self._registration_timeout_ms} ms "
            f"(initial.broker.registration.timeout.ms): {reason}"
        )
        self._is_registered.reached()
