"""How a node starts: bind the ports, lock the folders, replay the metadata log, register and be elected leader of the
partitions, open their logs, and only then listen. What fails on the way lets go of all that came before."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from broker.config.connections_per_host import CONNECTIONS_PER_HOST
from broker.config.topic_config import log_config_of_metadata
from broker.controller import assigned_directories, registration
from broker.controller.bootstrap import bootstrap_records
from broker.controller.image import ClusterImage, MetadataContradictionError
from broker.controller.log_damage import find_damage
from broker.controller.metadata_log import METADATA_TOPIC_ID, MetadataLog
from broker.controller.placement import Placement
from broker.controller.registration import BrokerIncarnation
from broker.controller.snapshots import SnapshotPolicy
from broker.disks.found_folders import find_folders, settle_moves
from broker.disks.opening import begin_run, open_log_dirs
from broker.fault_handler import FaultHandler
from broker.network.addresses import HostNames
from broker.network.connection_limits import ConnectionLimits
from broker.network.endpoints import bind_all
from broker.process.descriptors import shares
from broker.process.start_error import StartError
from broker.replicas.partitions import FAULTS as LOG_FAULTS
from broker.server import Opened, Server
from protocol.errors import CodecError
from protocol.wire.primitives import uuid_to_text
from storage.background import Lane
from storage.checkpoints import META_PROPERTIES_FILE
from storage.directory.log_directory import METADATA_TOPIC

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.disks.log_dirs import LogDirs
    from broker.environment.environment import Environment
    from broker.network.endpoints import Endpoints
    from broker.peers.joined_cluster import JoinedCluster

log = logging.getLogger("barnabas.server")

# What a folder may be found with; a fault of ours is none of these and keeps its stack trace.
_FOLDER_ERRORS = (*LOG_FAULTS, CodecError, MetadataContradictionError)

REMEDY = (
    "put the folder back from a copy. To go on with what stands before it, and have all that was made later set aside, "
    "cut the file there and remove .kafka_cleanshutdown beside the folder"
)

FoldersFound = dict[tuple[bytes, int], bytes]
"""Directory ids, by topic id and number."""
MovesFound = list[tuple[str, int, bytes]]
"""By topic, partition and directory id."""


async def start(config: BrokerConfig, environment: Environment) -> Server:
    """Returns when clients can connect. Raises StartError with one line that says what is wrong and where."""
    backlog = config.get_int("socket.listen.backlog.size")
    descriptors = shares(backlog * len(config.listeners), len(config.log_dirs))
    limits = _connection_limits(config, environment, descriptors.connections)
    endpoints = bind_all(config.listeners, environment.network, backlog)
    faults = FaultHandler(environment.scheduler)
    log_dirs: LogDirs | None = None
    server: Server | None = None
    found: _Entered | None = None
    try:
        environment.files.limit_open_files(descriptors.files)
        environment.files.limit_retired_files(descriptors.retired_files)
        log_dirs = open_log_dirs(config, environment.files, environment.background, environment.chance.uuid)
        enter = _join if config.joins else _control
        found = await enter(config, environment, log_dirs, endpoints, faults)
        server = Server(
            Opened(
                config=config,
                environment=environment,
                faults=faults,
                connection_limits=limits,
                endpoints=endpoints,
                log_dirs=log_dirs,
                metadata=found.metadata,
                placement=found.placement,
                incarnation=found.incarnation,
                folders=found.folders,
                joined=found.joined,
            )
        )
        server.open_partitions(found.moves)
        await _settle(environment, found)
        await _listen(server)
    except BaseException as error:
        if server is not None:
            server.fall_silent()
        elif found is not None and found.joined is not None:
            found.joined.stop()
        await environment.background.finish()
        faults.forget()
        endpoints.close()
        if log_dirs is not None:
            log_dirs.close(clean=False)
        if isinstance(error, _FOLDER_ERRORS):
            raise StartError(f"the data can't be opened: {error}") from error
        raise
    return server


class _Entered(NamedTuple):
    """What this run has of its cluster once it is one of it."""

    metadata: MetadataLog
    placement: Placement
    incarnation: BrokerIncarnation
    folders: FoldersFound
    moves: MovesFound
    joined: JoinedCluster | None = None


async def _control(
    config: BrokerConfig,
    environment: Environment,
    log_dirs: LogDirs,
    endpoints: Endpoints,
    _: FaultHandler,
) -> _Entered:
    """This node is the controller."""
    metadata = _read_metadata(config, environment, log_dirs, only_voter=True)
    begin_run(log_dirs)
    _lead(config, environment, metadata)
    placement = Placement(config.node_id, log_dirs.ids, log_dirs.is_cordoned)
    folders, moves = _find_replicas(environment, log_dirs, metadata)
    any_failed = bool(log_dirs.offline_paths)
    corrected = assigned_directories.corrections(
        metadata.image, placement.node_id, folders, log_dirs.ids, any_failed, placement.directory
    )
    if corrected:
        metadata.append(corrected, may_split=True)
    incarnation = _register(config, environment, metadata, endpoints=endpoints, log_dirs=log_dirs)
    return _Entered(metadata, placement, incarnation, folders, moves)


async def _join(
    config: BrokerConfig,
    environment: Environment,
    log_dirs: LogDirs,
    endpoints: Endpoints,
    faults: FaultHandler,
) -> _Entered:
    """Another node is the controller: returns once it has registered this one."""
    # Here, so that no start of a node alone waits for it.
    from broker.peers.joined_cluster import JoinedCluster

    metadata = _read_metadata(config, environment, log_dirs, only_voter=False)
    begin_run(log_dirs)
    joined = JoinedCluster(
        config, environment, metadata, endpoints=endpoints, log_dirs=log_dirs, faults=faults
    )
    try:
        incarnation = await joined.join()
        folders, moves = _find_replicas(environment, log_dirs, metadata)
    except BaseException:
        joined.stop()
        raise
    placement = Placement(config.node_id, log_dirs.ids, log_dirs.is_cordoned)
    return _Entered(metadata, placement, incarnation, folders, moves, joined)


async def _settle(environment: Environment, entered: _Entered) -> None:
    """The partitions are in their roles: returns when clients may be told of it."""
    if entered.joined is not None:
        await entered.joined.unfenced()
        return
    # what the start has written is on the disk before anybody is told of it
    metadata = entered.metadata
    written = metadata.next_offset
    metadata.flush()
    metadata.commit_when_synced()
    await environment.background.passed(Lane.FLUSHING)
    if metadata.log.failure is not None:
        raise metadata.log.failure
    if metadata.log.recovery_point < written:
        raise StartError(f"{metadata.log.directory} can't be synced: too many files are open")


async def _listen(server: Server) -> None:
    try:
        await server.serve()
    except OSError as error:
        raise StartError(f"the ports are bound, but can't be listened on: {error}") from error


def _connection_limits(config: BrokerConfig, environment: Environment, descriptors: int) -> ConnectionLimits:
    """What a file says now has to hold; what a record of the past says is passed over."""
    limits = ConnectionLimits(
        config.get_int("max.connections"),
        config.get_int("max.connections.per.ip"),
        config.max_connections_per_host,
        HostNames(environment.names, environment.computing),
        descriptors,
    )
    for host in limits.unresolved:
        setting = config.static[CONNECTIONS_PER_HOST]
        raise StartError(f"{setting.origin}: {CONNECTIONS_PER_HOST}: {host} can't be resolved")
    return limits


def _read_metadata(
    config: BrokerConfig, environment: Environment, log_dirs: LogDirs, *, only_voter: bool
) -> MetadataLog:
    """The cluster's metadata as the last run left it; nothing of a new cluster. Where it can't be used nothing is
    written: StartError says what is wrong, and what to do."""
    clock, directory = environment.clock, log_dirs.metadata
    path = f"{directory.path}/{METADATA_TOPIC}-0"
    damage = find_damage(environment.files, path, clean=directory.clean)
    if damage is not None:
        raise StartError(f"{damage}; {REMEDY}")
    opened = directory.open_log(
        METADATA_TOPIC,
        0,
        log_config_of_metadata(config),
        now_ms=clock.now_ms(),
        topic_id=uuid_to_text(METADATA_TOPIC_ID),
    )
    if not directory.clean and opened.created:
        # this run begins where the found log ends: from here on no power loss takes that back, or the cut of a torn end
        opened.sync()
        environment.files.sync(opened.segments.active.log.path)
    metadata = MetadataLog(opened, ClusterImage(), clock, SnapshotPolicy.of(config))
    metadata.replay(only_voter=only_voter)
    if only_voter and not metadata.image.features:
        _check_is_new(path, log_dirs)
    return metadata


def _check_is_new(path: str, log_dirs: LogDirs) -> None:
    """Where the metadata log says nothing, nobody's partitions may be here. Without `meta.properties` the folder isn't
    formatted, and a new cluster is what is asked for."""
    if not log_dirs.metadata.was_formatted:
        return
    folders = [
        folder.path
        for directory in log_dirs.all()
        for folder in directory.folders()
        if folder.topic != METADATA_TOPIC
    ]
    if folders:
        raise StartError(
            f"{path} is missing or empty, and there are the folders of {len(folders)} partitions ({folders[0]}): put "
            f"it back from a copy; or remove {log_dirs.metadata.path}/{META_PROPERTIES_FILE} as well, for a new "
            "cluster that sets them aside"
        )


def _lead(config: BrokerConfig, environment: Environment, metadata: MetadataLog) -> None:
    """Begin an epoch of ours; with a new cluster's first records, where there is none yet."""
    beginning = None
    if not metadata.image.features:
        min_in_sync = config.get_int("min.insync.replicas")
        directory = metadata.log.directory.rpartition("/")[0]
        beginning = bootstrap_records(environment.files, directory, min_in_sync, environment.clock.now_ms())
    metadata.become_leader(config.node_id)
    if beginning is not None:
        metadata.append_transaction("Bootstrap records", beginning)


def _find_replicas(
    environment: Environment, log_dirs: LogDirs, metadata: MetadataLog
) -> tuple[FoldersFound, MovesFound]:
    """Where a partition's folder is, counts; what is no partition of ours is set aside. Returns with them the moves
    between directories that were under way."""
    image, new_name = metadata.image, environment.chance.folder_name
    found = find_folders(image, log_dirs.online, new_name)
    moves = settle_moves(image, log_dirs.online, found, bool(log_dirs.offline_paths), new_name)
    by_id = {
        (image.topics[topic].topic_id, index): directory_id for (topic, index), directory_id in found.items()
    }
    return by_id, moves


def _register(
    config: BrokerConfig,
    environment: Environment,
    metadata: MetadataLog,
    *,
    endpoints: Endpoints,
    log_dirs: LogDirs,
) -> BrokerIncarnation:
    """Register anew and be elected: what the controller does when a broker comes back."""
    image, node_id = metadata.image, config.node_id
    previous = image.brokers.get(node_id)
    lost = registration.take_leadership_away(image, node_id)
    if lost:
        # The last run was killed: it is fenced now, as its session's end would have fenced it.
        if previous is not None:
            lost.append(registration.fence(node_id, previous.broker_epoch))
        metadata.append(lost, may_split=True)
    broker_epoch = metadata.next_offset
    metadata.append(
        [
            registration.register_broker(
                node_id,
                environment.chance.token_bytes(16),
                broker_epoch,
                [*endpoints.all_advertised()],
                [*log_dirs.ids],
                config.get_string("broker.rack"),
            )
        ]
    )
    metadata.append(
        [
            registration.unfence(node_id, broker_epoch),
            *registration.elect(image, node_id, log_dirs.ids),
        ],
        may_split=True,
    )
    metadata.flush()  # the new leader epochs: before anything is synced that says them
    left = registration.without_leader(image, node_id, log_dirs.ids)
    if left:
        log.warning(
            "partitions in folders here that have no leader: %d, the first %s-%d. This node may lack records of theirs"
            " that were acknowledged; an unclean election (kafka-leader-election) has it lead them all the same",
            len(left),
            *left[0],
        )
    return BrokerIncarnation(node_id, broker_epoch)
