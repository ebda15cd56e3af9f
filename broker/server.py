"""The broker: what it is made of, how it starts and how it stops.

Start: bind the ports, lock the folders, replay the metadata log, register and be elected leader of the partitions,
open their logs, then listen. Stop: the same way back; the mark of a clean shutdown is written last of all.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import TYPE_CHECKING

from broker.broken_invariant import stops_the_broker
from broker.config.connections_per_host import CONNECTIONS_PER_HOST
from broker.config.dynamic_settings import set_dynamic
from broker.config.topic_config import log_config_of_metadata, log_config_of_topic
from broker.controller import assigned_directories, registration
from broker.controller.bootstrap import bootstrap_records
from broker.controller.controller import Controller
from broker.controller.image import BROKER_RESOURCE, ClusterImage, MetadataContradictionError
from broker.controller.metadata_log import METADATA_TOPIC_ID, MetadataLog
from broker.controller.placement import Placement
from broker.controller.snapshots import SnapshotPolicy
from broker.controller.topic_names import is_internal
from broker.controller.topic_requests import TopicRequests
from broker.coordination.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from broker.coordination.groups import Groups
from broker.coordination.hosted_shard import PartitionRuntime
from broker.coordination.markers import TxnMarkers
from broker.coordination.produce_verification import ProduceVerification
from broker.coordination.transactions import Transactions
from broker.disks.failures import LogDirFailures
from broker.disks.folders import find_folders, settle_moves
from broker.disks.moves import LogDirMoves
from broker.disks.opening import open_log_dirs
from broker.environment.timers import LoopTimers
from broker.housekeeping import Housekeeping
from broker.network.dispatch import Dispatcher
from broker.network.endpoints import Endpoints
from broker.network.listener import ConnectionLimits, Listener
from broker.process.start_error import StartError
from broker.quotas.client_quotas import ClientQuotas
from broker.replicas.current_leaders import CurrentLeaders
from broker.replicas.fetch_sessions import FetchSessions
from broker.replicas.partitions import FAULTS as LOG_FAULTS
from broker.replicas.partitions import Partition, Partitions
from broker.security.authorizer import AllowEverything
from coordinator.transaction.producer_ids import ProducerIds
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.metadata_records import ProducerIdsRecord
from protocol.wire.primitives import uuid_to_text
from storage.directory.log_directory import METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.config.broker_config import BrokerConfig
    from broker.disks.log_dirs import LogDirs
    from broker.environment.environment import Environment
    from broker.security.authorizer import Authorizer

log = logging.getLogger("barnabas.server")

LEAST_OPEN_FILES = 64
MOST_OPEN_FILES = 900  # 5,000 partitions need no more: what isn't used lately is closed

# What a folder may be found with; a fault of ours is none of these and keeps its stack trace.
_FOLDER_ERRORS = (*LOG_FAULTS, CodecError, MetadataContradictionError)


class Server:
    """One node: broker and controller in one process, as Kafka's combined mode."""

    metadata: MetadataLog
    controller: Controller
    partitions: Partitions
    topics: TopicRequests
    producer_ids: ProducerIds
    groups: Groups
    markers: TxnMarkers
    transactions: Transactions
    placement: Placement
    moves: LogDirMoves
    log_dirs: LogDirs
    log_dir_failures: LogDirFailures
    _moves_found: list[tuple[str, int, bytes]]

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        self.config = config
        self.clock = environment.clock
        self.scheduler = environment.scheduler
        self.chance = environment.chance
        self.files = environment.files
        self.background = environment.background
        self.node_id = config.get_int("node.id")
        self.rack = config.get_string("broker.rack")
        self.cluster_id = ""
        self.broker_epoch = -1
        self.fetch_max_bytes = config.get_int("fetch.max.bytes")
        self.failure: BaseException | None = None
        self.stopped = asyncio.Event()
        self._stop_telling: Callable[[], None] = lambda: None
        self.dispatcher = Dispatcher(self)
        self.fetch_sessions = FetchSessions(
            config.get_int("max.incremental.fetch.session.cache.slots"), self.chance.randrange
        )
        self.timers = LoopTimers(self.clock, self.scheduler, self.stop_on_failure)
        self.quotas = ClientQuotas(config)
        self.authorizer: Authorizer = AllowEverything()
        self.connection_limits = ConnectionLimits(
            config.get_int("max.connections"),
            config.get_int("max.connections.per.ip"),
            config.max_connections_per_host,
        )
        self.listeners = {
            listener.name: Listener(
                listener.name,
                listener.host,
                listener.port,
                listener.advertised,
                self.dispatcher,
                self.connection_limits,
                self.quotas.connections,
                self.clock,
                self.scheduler,
                environment.network,
                config.get_int("socket.request.max.bytes"),
                config.get_int("socket.listen.backlog.size"),
            )
            for listener in config.listeners
        }
        self.endpoints = Endpoints(self.listeners)
        self.housekeeping = Housekeeping(self)

    @property
    def bootstrap(self) -> str:
        """host:port of the first listener that clients are told of."""
        return self.endpoints.bootstrap

    # --- start ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when clients can connect. Raises StartError with one line that says what is wrong and where."""
        self._check_hosts()
        self._bind()
        self._stop_telling = self.scheduler.tell_failures(self._failed_on_loop)
        try:
            self._open_directories()
            self._open_metadata()
            self._open_partitions()
        except BaseException as error:
            self._stop_telling()
            self._stop_accepting()
            if hasattr(self, "log_dirs"):
                self.log_dirs.close(clean=False)
            if isinstance(error, _FOLDER_ERRORS):
                raise StartError(f"the data can't be opened: {error}") from error
            raise
        for listener in self.listeners.values():
            await listener.listen()
        self.housekeeping.start()

    def _check_hosts(self) -> None:
        """What a file says now has to hold; what a record of the past says is passed over."""
        for host in self.connection_limits.unresolved:
            setting = self.config.static[CONNECTIONS_PER_HOST]
            raise StartError(f"{setting.origin}: {CONNECTIONS_PER_HOST}: {host} can't be resolved")

    def _bind(self) -> None:
        for name, listener in self.listeners.items():
            try:
                listener.bind()
            except OSError as error:
                self._stop_accepting()
                where = f"{listener.host or '*'}:{listener.port}"
                raise StartError(
                    f"listener {name}: can't listen on {where}: {error.strerror or error}"
                ) from error

    def _stop_accepting(self) -> None:
        for listener in self.listeners.values():
            listener.stop_accepting()

    def _open_directories(self) -> None:
        self.files.limit_open_files(_open_files_limit())
        self.log_dirs = open_log_dirs(self.config, self.files, self.background, self.chance.uuid)
        self.cluster_id = self.log_dirs.cluster_id

    def _open_metadata(self) -> None:
        directory = self.log_dirs.metadata
        opened = directory.open_log(
            METADATA_TOPIC,
            0,
            log_config_of_metadata(self.config),
            now_ms=self.clock.now_ms(),
            topic_id=uuid_to_text(METADATA_TOPIC_ID),
        )
        self.metadata = MetadataLog(opened, ClusterImage(), self.clock, SnapshotPolicy.of(self.config))
        self.metadata.replay()
        self.controller = Controller(self.metadata)
        beginning = None
        if not self.metadata.image.features:
            beginning = bootstrap_records(
                self.files, directory.path, self.config.get_int("min.insync.replicas"), self.clock.now_ms()
            )
        self.metadata.become_leader(self.node_id)
        if beginning is not None:
            self.metadata.append_transaction("Bootstrap records", beginning)
        self._correct_directories()
        self._register()

    def _correct_directories(self) -> None:
        """Where a partition's folder is, counts; what is no partition of ours is set aside."""
        found = find_folders(self.metadata.image, self.log_dirs.online, self.chance.folder_name)
        any_failed = bool(self.log_dirs.offline_paths)
        self._moves_found = settle_moves(
            self.metadata.image, self.log_dirs.online, found, any_failed, self.chance.folder_name
        )
        corrected = assigned_directories.corrections(
            self.metadata.image,
            self.node_id,
            found,
            self.log_dirs.ids,
            any_failed,
            self._placement().directory,
        )
        if corrected:
            self.metadata.append(corrected, may_split=True)

    def _placement(self) -> Placement:
        return Placement(self.node_id, self.log_dirs.ids, self.log_dirs.is_cordoned)

    def _register(self) -> None:
        """Register anew and be elected: what the controller does when a broker comes back."""
        image = self.metadata.image
        previous = image.brokers.get(self.node_id)
        lost = registration.take_leadership_away(image, self.node_id)
        if lost:
            # The last run was killed: it is fenced now, as its session's end would have fenced it.
            if previous is not None:
                lost.append(registration.fence(self.node_id, previous.broker_epoch))
            self.metadata.append(lost, may_split=True)
        self.broker_epoch = self.metadata.next_offset
        self.metadata.append(
            [
                registration.register_broker(
                    self.node_id,
                    self.chance.token_bytes(16),
                    self.broker_epoch,
                    [*self.endpoints.all_advertised()],
                    [*self.log_dirs.ids],
                    self.rack,
                )
            ]
        )
        self.metadata.append(
            [
                registration.unfence(self.node_id, self.broker_epoch),
                *registration.elect(image, self.node_id, self.log_dirs.ids),
            ],
            may_split=True,
        )

    def _open_partitions(self) -> None:
        image = self.metadata.image
        self.partitions = Partitions(
            self.node_id,
            self.log_dirs.online,
            self.clock,
            lambda name: log_config_of_topic(self.config, image.config_of_topic(name)),
            is_internal,
            self.chance.folder_name,
            self.chance.randrange,
            self.stop_on_failure,
        )
        self.current_leaders = CurrentLeaders(self.partitions, image)
        self.moves = LogDirMoves(
            self.node_id,
            self.log_dirs,
            self.partitions,
            self.controller,
            self.clock,
            self.scheduler,
            self.chance.folder_name,
            self.chance.randrange,
            lambda: self.config.get_int("replica.alter.log.dirs.io.max.bytes.per.second"),
        )
        self.log_dir_failures = LogDirFailures(
            registration.BrokerIncarnation(self.node_id, self.broker_epoch),
            log_dirs=self.log_dirs,
            partitions=self.partitions,
            moves=self.moves,
            controller=self.controller,
        )
        self.placement = self._placement()
        self.topics = TopicRequests(
            self.controller,
            self.config,
            self.placement,
            self.chance.uuid,
        )
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self.groups = Groups(self.config, self.partitions, self._runtime_of, self.metadata)
        self.markers = TxnMarkers(
            image, self.partitions, self.groups, clock=self.clock, scheduler=self.scheduler
        )
        self.transactions = Transactions(
            self.config,
            self.partitions,
            self._runtime_of,
            markers=self.markers,
            next_producer_id=self.producer_ids.next,
            transaction_version=lambda: image.features.get(registration.TRANSACTION_VERSION, 0),
        )
        self.add_partitions_manager = AddPartitionsToTxnManager(self.config, self.clock, self.transactions)
        self.produce_verification = ProduceVerification(
            self.add_partitions_manager, self.config, self.clock, self.timers
        )
        self._follow_settings()
        self.groups.follow(self.partitions.open_all(image))
        self.transactions.follow()  # after the groups: it may end transactions, and their offsets
        self.metadata.on_change = self._follow_metadata
        self.moves.resume(self._moves_found)
        self.log_dir_failures.start(self.scheduler.call_soon)

    def _runtime_of(self, partition: Partition) -> PartitionRuntime:
        return PartitionRuntime(partition, self.clock, self.timers, self.chance.uuid)

    def _follow_metadata(self) -> None:
        """Make the settings and the partitions what the metadata says."""
        self._follow_settings()
        self.groups.follow(self.partitions.follow(self.metadata.image))
        self.transactions.follow()

    def _follow_settings(self) -> None:
        image = self.metadata.image
        if image.kept.take_quota_change():
            self.quotas.follow(image)
        if image.take_broker_config_change():
            complaints = set_dynamic(
                self.config,
                broker=image.configs.get((BROKER_RESOURCE, str(self.node_id)), {}),
                cluster=image.configs.get((BROKER_RESOURCE, ""), {}),
            )
            for complaint in complaints:
                log.warning("%s", complaint)
            self._apply_settings()
            self.partitions.configure_all()

    def _apply_settings(self) -> None:
        """Hand on what can be altered while we run, and isn't asked for each time."""
        config = self.config
        self.connection_limits.configure(
            config.get_int("max.connections"),
            config.get_int("max.connections.per.ip"),
            config.max_connections_per_host,
        )
        self.log_dirs.cordon(config.get_list("cordoned.log.dirs"))

    def _allocate_producer_ids(self, size: int) -> int:
        """Record a block of producer ids in the metadata log (Kafka: `ProducerIdControlManager`); its first id.

        Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) where that isn't possible now, as Kafka without a block does.
        """
        first = self.metadata.image.next_producer_id
        record = ProducerIdsRecord(
            broker_id=self.node_id, broker_epoch=self.broker_epoch, next_producer_id=first + size
        )
        try:
            self.metadata.append([record])
        except KafkaError as error:
            log.error("no producer ids can be recorded in the metadata log: %s", error)
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS) from error
        return first

    # --- stop -----------------------------------------------------------------------------------------------

    def stop_on_failure(self, failure: BaseException) -> None:
        """A broken invariant: go down without marking the folder clean, so that the next start checks everything."""
        if self.failure is None:
            self.failure = failure
            log.critical("stopping, since going on would be wrong: %s", failure)
            self.stopped.set()

    def _failed_on_loop(self, error: BaseException, of_a_callback: bool) -> None:
        """Told by the scheduler. A callback of ours is a timer or the end of background work; connections that break
        off, and requests whose client has gone, come here too, and are no failures."""
        of_ours = of_a_callback and not isinstance(error, OSError | KafkaError | MemoryError)
        if of_ours or stops_the_broker(error):
            self.stop_on_failure(error)

    async def stop(self) -> None:
        """Stop cleanly: nothing that was acknowledged needs recovery at the next start.

        Whatever fails on the way is logged, is the server's `failure`, and keeps the mark from being written.
        """
        self._stop_accepting()
        self.housekeeping.stop()
        self.moves.stop()
        self.log_dirs.forget_failures()
        self.timers.stop()
        self.markers.stop()
        for listener in self.listeners.values():
            listener.close_connections()
        if self.failure is None:
            try:
                self._give_up_leadership()
            except Exception as error:
                self._failed_to_stop("the end can't be recorded in the metadata log", error)
        await self.background.finish()
        unclean = self.log_dirs.close(
            clean=self.failure is None, broker_epoch=self.broker_epoch, run_all=self.background.run_all
        )
        if unclean and self.failure is None:
            self.failure = unclean[0]
        self._stop_telling()
        self.stopped.set()

    def _give_up_leadership(self) -> None:
        image = self.metadata.image
        self.metadata.on_change = lambda: None
        self.log_dir_failures.record()
        self.metadata.append(
            [
                registration.begin_controlled_shutdown(self.node_id, self.broker_epoch),
                *registration.take_leadership_away(image, self.node_id),
            ],
            may_split=True,
        )
        self.metadata.append([registration.fence(self.node_id, self.broker_epoch)])

    def _failed_to_stop(self, what: str, error: Exception) -> None:
        log.error("%s: %s", what, error, exc_info=not isinstance(error, OSError | KafkaError))
        if self.failure is None:
            self.failure = error


def _open_files_limit() -> int:
    """Half of what the process may have open goes to logs, the rest to connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_OPEN_FILES
    return min(MOST_OPEN_FILES, max(LEAST_OPEN_FILES, soft // 2))
