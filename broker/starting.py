"""How a node starts: bind the ports, lock the folders, replay the metadata log, register and be elected leader of the
partitions, open their logs, and only then listen. What fails on the way lets go of all that came before."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.config.errors import StartError
from broker.controller import assigned_directories, registration
from broker.controller.own_broker import begin_run, end_session
from broker.controller.partition_updates import leader_and_isr_updates
from broker.controller.replica_placer import Placement
from broker.disks import opening
from broker.disks.opening import find_folders, say_missing, settle_moves
from broker.fault_handler import FaultHandler
from broker.network.endpoints import bind_all
from broker.opened import Opened
from broker.opening import (
    connection_limits,
    lead,
    let_go,
    listened,
    open_directories,
    read_metadata,
    settled,
)
from broker.own_settings import own_settings
from broker.process.descriptors import shares
from broker.registration_request import registration_request
from broker.server import Server
from protocol.errors import BrokenInvariantError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.config.broker_config import BrokerConfig
    from broker.config.listeners import ListenerConfig
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.registration import BrokerIncarnation
    from broker.disks.log_dirs import LogDirs
    from broker.environment.environment import Environment
    from broker.network.endpoints import Endpoints
    from broker.peers.joined_cluster import JoinedCluster

log = logging.getLogger("barnabas.server")

FoldersFound = dict[tuple[bytes, int], bytes]
"""Directory ids, by topic id and number."""
MovesFound = list[tuple[str, int, bytes]]
"""By topic, partition and directory id."""


async def start(config: BrokerConfig, environment: Environment) -> Server:
    """Returns when clients can connect. Raises StartError with one line that says what is wrong and where."""
    backlog = config.get_int("socket.listen.backlog.size")
    listeners = [*config.listeners, *config.controller_listeners]
    descriptors = shares(backlog * len(listeners), len(config.log_dirs))
    limits = connection_limits(config, environment, descriptors.connections)
    endpoints = bind_all(config.listeners, environment.network, backlog)
    controller_endpoints = _bind_also(config.controller_listeners, endpoints, environment, backlog)
    faults = FaultHandler(environment.scheduler)
    log_dirs: LogDirs | None = None
    server: Server | None = None
    found: _Entered | None = None
    try:
        log_dirs = open_directories(config, environment, descriptors)
        enter = _join if config.joins else _control
        found = await enter(config, environment, log_dirs, _Bound(endpoints, controller_endpoints), faults)
        server = Server(
            Opened(
                config=config,
                environment=environment,
                faults=faults,
                connection_limits=limits,
                endpoints=endpoints,
                controller_endpoints=controller_endpoints,
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
        await listened(server.serve())
    except BaseException as error:
        if server is not None:
            server.fall_silent()
        elif found is not None and found.joined is not None:
            found.joined.stop()
        await let_go(error, environment, faults, [endpoints, controller_endpoints], log_dirs)
        raise
    return server


def _bind_also(
    listeners: Sequence[ListenerConfig], bound: Endpoints, environment: Environment, backlog: int
) -> Endpoints:
    """Those of the controller, beside the broker's."""
    try:
        return bind_all(listeners, environment.network, backlog)
    except BaseException:
        bound.close()
        raise


class _Bound(NamedTuple):
    """Where the node is to be reached, as a broker and as a controller."""

    brokers: Endpoints
    controllers: Endpoints


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
    bound: _Bound,
    _: FaultHandler,
) -> _Entered:
    """This node is the controller."""
    metadata = read_metadata(config, environment, log_dirs, only_voter=True)
    opening.begin_run(log_dirs)
    lead(config, environment, metadata, log_dirs=log_dirs, endpoints=bound.controllers)
    placement = Placement(config.node_id, log_dirs.ids, log_dirs.is_cordoned)
    folders, moves = _find_replicas(config.node_id, environment, log_dirs, metadata)
    any_failed = bool(log_dirs.offline_paths)
    corrected = assigned_directories.corrections(
        metadata.image, placement.node_id, folders, log_dirs.ids, any_failed, placement.directory
    )
    if corrected:
        metadata.append(corrected, may_split=True)
    incarnation = _register(config, environment, metadata, bound=bound, log_dirs=log_dirs)
    return _Entered(metadata, placement, incarnation, folders, moves)


async def _join(
    config: BrokerConfig,
    environment: Environment,
    log_dirs: LogDirs,
    bound: _Bound,
    faults: FaultHandler,
) -> _Entered:
    """Another node is the controller: returns once it has registered this one."""
    # Here, so that no start of a node alone waits for it.
    from broker.peers.joined_cluster import JoinedCluster

    metadata = read_metadata(config, environment, log_dirs, only_voter=False)
    joined = JoinedCluster(
        config, environment, metadata, endpoints=bound.brokers, log_dirs=log_dirs, faults=faults
    )
    try:
        # That may take a session's time, or for ever, and clients have others to go to. Kafka's listens as late.
        bound.brokers.refuse()
        incarnation = await joined.join()
        bound.brokers.listen()
        # Not before: where no controller is found the partitions' logs are as the last run closed them, and the next
        # registration may say so. As in Kafka, whose `LogManager` takes the mark away as it loads the logs.
        registered = [*log_dirs.ids]
        opening.begin_run(log_dirs)
        joined.lost_directories(each for each in registered if each not in log_dirs.ids)
        folders, moves = _find_replicas(config.node_id, environment, log_dirs, metadata)
    except BaseException as error:
        joined.stop()
        if isinstance(error, BrokenInvariantError):  # by what the controller says
            raise StartError(f"the cluster can't be joined: {error}") from error
        raise
    placement = Placement(config.node_id, log_dirs.ids, log_dirs.is_cordoned)
    return _Entered(metadata, placement, incarnation, folders, moves, joined)


async def _settle(environment: Environment, entered: _Entered) -> None:
    """The partitions are in their roles: returns when clients may be told of it."""
    if entered.joined is not None:
        await entered.joined.unfenced()
        return
    await settled(environment, entered.metadata)


def _find_replicas(
    node_id: int, environment: Environment, log_dirs: LogDirs, metadata: MetadataLog
) -> tuple[FoldersFound, MovesFound]:
    """Where a partition's folder is, counts; what is no partition of ours is set aside. Returns with them the moves
    between directories that were under way."""
    image, new_name = metadata.image, environment.chance.folder_name
    found = find_folders(image, node_id, log_dirs.online, new_name)
    moves = settle_moves(image, log_dirs.online, found, bool(log_dirs.offline_paths), new_name)
    if not log_dirs.offline_paths:  # else they may be in one of these
        say_missing(image, node_id, log_dirs.ids, found)
    by_id = {
        (image.topics[topic].topic_id, index): directory_id for (topic, index), directory_id in found.items()
    }
    return by_id, moves


def _register(
    config: BrokerConfig,
    environment: Environment,
    metadata: MetadataLog,
    *,
    bound: _Bound,
    log_dirs: LogDirs,
) -> BrokerIncarnation:
    """Register anew, be unfenced and be elected: what a controller does when a broker comes back."""
    node_id = config.node_id
    updates = partial(leader_and_isr_updates, own=own_settings(config))
    if not [*bound.controllers]:
        # Nobody else can come: no other broker's session goes on.
        for other in [each for each, broker in metadata.written.brokers.items() if not broker.fenced]:
            if other != node_id:
                end_session(metadata, other, updates)
    request = registration_request(config, bound.brokers, log_dirs, environment.chance.uuid())
    incarnation = begin_run(metadata, request, updates)
    metadata.flush()  # the new leader epochs: before anything is synced that says them
    left = registration.without_leader(metadata.written, node_id, log_dirs.ids)
    if left:
        log.warning(
            "partitions in folders here that have no leader: %d, the first %s-%d. This node may lack records of theirs"
            " that were acknowledged; an unclean election (kafka-leader-election) has it lead them all the same",
            len(left),
            *left[0],
        )
    return incarnation
