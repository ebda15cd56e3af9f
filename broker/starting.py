"""Starting a node: bind the ports, lock the folders, replay the metadata log, register and be elected leader
of the partitions, open their logs, and only then listen. If a step fails, everything before it is
released."""

from __future__ import annotations

import logging
import resource
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.config.assembly import usage_error
from broker.config.broker_config import CONNECTIONS_PER_HOST, VOTERS
from broker.config.broker_definitions import METRICS_LISTENER
from broker.config.definitions import ConfigError, StartError
from broker.config.listeners import ENCRYPTED, PLAINTEXT, SASL
from broker.config.topic_config import log_config_of_metadata
from broker.controller import broker_records, replica_directories
from broker.controller.cluster_control import begin_run, end_session
from broker.controller.image import ClusterImage, MetadataContradictionError
from broker.controller.log_damage import find_damage
from broker.controller.metadata_log import METADATA_TOPIC_ID, MetadataLog
from broker.controller.metadata_versions import (
    KRAFT_VERSION_RANGE,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    metadata_version_of,
    release_of,
)
from broker.controller.partition_changes import OwnSettings, leader_and_isr_updates
from broker.controller.replica_placer import Placement
from broker.controller.snapshots import SnapshotPolicy, bootstrap_records
from broker.disks import opening
from broker.disks.opening import find_folders, open_log_dirs, say_missing, settle_moves
from broker.fault_handler import FaultHandler
from broker.network.connection_limits import ConnectionLimits
from broker.network.endpoints import HostNames, bind_all
from broker.network.key_stores import KeyStores
from broker.peers.lifecycle import registration_request
from broker.peers.opening import OPEN, Entrance
from broker.replicas.partitions import FAULTS as LOG_FAULTS
from broker.server import Opened, Server
from protocol.errors import BrokenInvariantError, CodecError
from protocol.messages.raft import Endpoint, KRaftVersionFeature, Voter
from protocol.wire.primitives import uuid_to_text
from storage.background import Lane
from storage.checkpoints import META_PROPERTIES_FILE
from storage.directory.log_directory import METADATA_TOPIC
from storage.files import MOST_RETIRED_FILES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from broker.config.broker_config import BrokerConfig, Outgoing
    from broker.config.listeners import ListenerConfig
    from broker.controller.broker_records import BrokerIncarnation
    from broker.disks.log_dirs import LogDirs
    from broker.environment.environment import Environment
    from broker.network.endpoints import Endpoints
    from broker.network.key_stores import Renewable
    from broker.network.tls import OutgoingTls, Tls
    from broker.peers.joined_cluster import JoinedCluster
    from broker.quorum.controller_server import ControllerNode
    from broker.security.token_source import TokenSource


# --------------------------------------------------------------------------------------------------------------
# How many descriptors the process may have, and how they are divided: files of logs, clients, and the rest.
#
# Otherwise clients could take them all, and a disk that can't be synced for lack of a descriptor is useless.

LEAST_DESCRIPTORS = 512

WANTED_DESCRIPTORS = 100_000
"""Kafka's documentation recommends this."""

MOST_OPEN_FILES = 900
"""For logs. 5,000 partitions need no more, since files that weren't used lately are closed."""

OTHER_DESCRIPTORS = 64
"""For the loop, for processes beside this one, and for files opened briefly to sync them."""

UNBOUNDED = (1 << 31) - 1


class DescriptorShares(NamedTuple):
    """How many descriptors each may have open."""

    files: int
    retired_files: int
    """Files out of use that answers still have to be read from."""
    connections: int


def raise_limit() -> None:
    """Raise the limit as far as the system allows, up to the wanted number. (The JVM raises it to the
    maximum.)

    A system may have a limit that it doesn't report (macOS: 10,240). Then half as many are tried, and so on.
    Raises StartError if the result is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, WANTED_DESCRIPTORS)
    while soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):
            wanted //= 2
    if soft != resource.RLIM_INFINITY and soft < LEAST_DESCRIPTORS:
        raise StartError(
            f"this process may have {soft} files and connections open, but a broker needs at least "
            f"{LEAST_DESCRIPTORS}: see ulimit -n"
        )


def shares(backlogs: int, locks: int) -> DescriptorShares:
    """Divide the descriptors. Half of them are for logs and an eighth for files out of use, but no more than
    needed. The rest is for clients.

    `backlogs` is how many clients all listeners together may accept before refusing them; an eighth at most
    is kept for these. `locks` is the number of log directories.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return DescriptorShares(MOST_OPEN_FILES, MOST_RETIRED_FILES, UNBOUNDED)
    files, retired = min(MOST_OPEN_FILES, soft // 2), min(MOST_RETIRED_FILES, soft // 8)
    others = OTHER_DESCRIPTORS + min(backlogs, soft // 8) + locks
    return DescriptorShares(files, retired, max(soft - files - retired - others, 1))


# --- What every start opens, whatever the node's role, above all the metadata log ---------------------------

log = logging.getLogger("barnabas.server")

# Errors that a folder may cause. Our own faults aren't among these, and keep their stack traces.
_FOLDER_ERRORS = (*LOG_FAULTS, CodecError, MetadataContradictionError)

REMEDY = (
    "put the folder back from a copy. To go on with what is before it, and have everything created later set aside, "
    "cut the file there and remove .kafka_cleanshutdown beside the folder"
)


def connection_limits(config: BrokerConfig, environment: Environment, descriptors: int) -> ConnectionLimits:
    """Return the limits. A host in the file has to resolve; one in an old record is ignored if it doesn't."""
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


def read_metadata(
    config: BrokerConfig, environment: Environment, log_dirs: LogDirs, *, only_voter: bool
) -> MetadataLog:
    """Return the cluster's metadata as the last run left it, empty for a new cluster.

    If it can't be used, nothing is written. StartError then says what is wrong and what to do.
    """
    clock, directory = environment.clock, log_dirs.metadata
    path = f"{directory.path}/{METADATA_TOPIC}-0"
    # A controller on another node goes on writing its log. A node that only copies it doesn't sync what it
    # fetches. So a power loss may leave holes, although a start that fails keeps the mark of a clean
    # shutdown. Everything behind a hole is fetched again.
    as_synced = directory.clean and only_voter
    begins_at = 0
    if only_voter:
        damage, begins_at = find_damage(environment.files, path, clean=as_synced)
        if damage is not None:
            raise StartError(f"{damage}; {REMEDY}")
    opened = directory.open_log(
        METADATA_TOPIC,
        0,
        log_config_of_metadata(config),
        now_ms=clock.now_ms(),
        topic_id=uuid_to_text(METADATA_TOPIC_ID),
        begins_at=begins_at,
    )
    if not only_voter and opened.hole is not None:
        opened.truncate_to(opened.hole, clock.now_ms())
    if not as_synced and opened.created:
        # This run begins at the end of the log: sync it, so that no power loss takes that back, or the cut of
        # a torn end.
        opened.sync()
        environment.files.sync(opened.segments.active.log.path)
    metadata = MetadataLog(opened, ClusterImage(), clock, SnapshotPolicy.of(config))
    metadata.replay(only_voter=only_voter)
    if only_voter:
        _check_is_only_voter(config, metadata)
    if only_voter and not metadata.image.features:
        _check_is_new(path, log_dirs)
    return metadata


def _check_is_only_voter(config: BrokerConfig, metadata: MetadataLog) -> None:
    """Raises StartError if the log names other voters. It may not be complete here, and going on alone would
    take the cluster away from those that have more."""
    voters = metadata.quorum.voters
    others = [] if voters is None else [each for each in voters.voters if each.voter_id != config.node_id]
    if others:
        raise StartError(
            f"{metadata.log.directory} names another controller that votes (node {others[0].voter_id}), but a quorum "
            "of several isn't supported yet: remove all others from the quorum (kafka-metadata-quorum "
            "remove-controller), or start from another folder"
        )


def _check_is_new(path: str, log_dirs: LogDirs) -> None:
    """Raises StartError if the metadata log is empty but there are partitions. Without `meta.properties` the
    folder isn't formatted, and a new cluster is intended."""
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
            f"{path} is missing or empty, but there are folders of {len(folders)} partitions ({folders[0]}): put "
            f"it back from a copy; or remove {log_dirs.metadata.path}/{META_PROPERTIES_FILE} as well, for a new "
            "cluster, which sets them aside"
        )


def lead(
    config: BrokerConfig,
    environment: Environment,
    metadata: MetadataLog,
    *,
    log_dirs: LogDirs,
    endpoints: Endpoints,
) -> None:
    """Begin an epoch of our own, and write a new cluster's first records if there are none yet. `endpoints`
    are the controller's."""
    beginning = None
    wished = config.release_version
    metadata_version = LATEST_METADATA_VERSION if wished is None else metadata_version_of(wished)
    found = metadata.image.features.get(METADATA_VERSION, metadata_version)
    if wished is not None and found != metadata_version:
        log.warning("--release-version %s: the cluster is at %s already", wished, release_of(found))
    if not metadata.image.features:
        min_in_sync = config.get_int("min.insync.replicas")
        beginning = bootstrap_records(
            environment.files,
            metadata.log.directory,
            metadata_version,
            min_in_sync,
            environment.clock.now_ms(),
        )
    is_named = metadata.quorum.kraft_version > 0 or (beginning is not None and not config.get_list(VOTERS))
    metadata.own_voter = _voter(config, log_dirs, endpoints)
    metadata.become_leader(config.node_id, metadata.own_voter if is_named and [*endpoints] else None)
    if beginning is not None:
        metadata.append_transaction("Bootstrap records", beginning)


def _voter(config: BrokerConfig, log_dirs: LogDirs, endpoints: Endpoints) -> Voter:
    low, high = KRAFT_VERSION_RANGE
    return Voter(
        voter_id=config.node_id,
        voter_directory_id=log_dirs.metadata_id,
        endpoints=[
            Endpoint(name=name, host=host, port=port) for name, host, port, _ in endpoints.all_advertised()
        ],
        kraft_version_feature=KRaftVersionFeature(min_supported_version=low, max_supported_version=high),
    )


def open_directories(
    config: BrokerConfig, environment: Environment, descriptors: DescriptorShares
) -> LogDirs:
    """Open and lock the log directories, and limit how many of their files may be open. Raises StartError."""
    environment.files.limit_open_files(descriptors.files)
    environment.files.limit_retired_files(descriptors.retired_files)
    return open_log_dirs(config, environment.files, environment.background, environment.chance.uuid)


async def listened(serve: Awaitable[None]) -> None:
    """Return when `serve` does. Raises StartError."""
    try:
        await serve
    except OSError as error:
        raise StartError(f"the ports are bound, but can't be listened on: {error}") from error


async def let_go(
    error: BaseException,
    environment: Environment,
    faults: FaultHandler,
    endpoints: Sequence[Endpoints],
    log_dirs: LogDirs | None,
) -> None:
    """Release everything after a failed start. Raises StartError if the folders caused the error."""
    await environment.background.finish()
    faults.forget()
    for each in endpoints:
        each.close()
    if log_dirs is not None:
        log_dirs.close(clean=False)
    if isinstance(error, _FOLDER_ERRORS):
        raise StartError(f"can't open the data: {error}") from error


async def settled(environment: Environment, metadata: MetadataLog) -> None:
    """Return once the disk has everything that the start has written. Before that, nobody learns of it.
    Raises StartError."""
    written = metadata.next_offset
    metadata.flush()
    metadata.commit_when_synced()
    await environment.background.passed(Lane.FLUSHING)
    if metadata.log.failure is not None:
        raise metadata.log.failure
    if metadata.log.recovery_point < written:
        raise StartError(f"can't sync {metadata.log.directory}: too many files are open")


# --------------------------------------------------------------------------------------------------------------


FoldersFound = dict[tuple[bytes, int], bytes]
"""Directory ids, by topic id and number."""
MovesFound = list[tuple[str, int, bytes]]
"""By topic, partition and directory id."""


async def start(config: BrokerConfig, environment: Environment) -> Server:
    """Start a node. Returns once clients can connect. Raises StartError with one line that says what is wrong
    and where."""
    backlog = config.get_int("socket.listen.backlog.size")
    encryption, tokens = _encryption(config), await _tokens(config, environment)
    entrances = _entrances(config, environment, encryption)
    listeners = [*config.listeners, *config.controller_listeners]
    descriptors = shares(backlog * len(listeners), len(config.log_dirs))
    limits = connection_limits(config, environment, descriptors.connections)
    endpoints = bind_all(config.listeners, environment.network, backlog)
    controller_endpoints = _bind_also(config.controller_listeners, [endpoints], environment, backlog)
    bound = [endpoints, controller_endpoints]
    metrics_endpoints = bind_metrics(config, bound, environment, backlog)
    bound.append(metrics_endpoints)
    faults = FaultHandler(environment.scheduler)
    log_dirs: LogDirs | None = None
    server: Server | None = None
    found: _Entered | None = None
    try:
        log_dirs = open_directories(config, environment, descriptors)
        enter = _join if config.joins else _control
        addresses = _Bound(endpoints, controller_endpoints)
        found = await enter(config, environment, log_dirs, addresses, faults, entrances)
        server = Server(
            Opened(
                config=config,
                environment=environment,
                faults=faults,
                connection_limits=limits,
                endpoints=endpoints,
                controller_endpoints=controller_endpoints,
                metrics_endpoints=metrics_endpoints,
                log_dirs=log_dirs,
                metadata=found.metadata,
                placement=found.placement,
                incarnation=found.incarnation,
                folders=found.folders,
                encryption=encryption,
                key_stores=entrances.key_stores,
                to_brokers=entrances.brokers,
                tokens=tokens,
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
        await let_go(error, environment, faults, bound, log_dirs)
        raise
    return server


def _encryption(config: BrokerConfig) -> Mapping[str, Tls]:
    """Return the encrypted listeners' encryption by name. Raises StartError for an invalid key or
    certificate."""
    listeners = (*config.listeners, *config.controller_listeners)
    encrypted = [each for each in listeners if each.security_protocol in ENCRYPTED]
    if not encrypted:
        return {}
    # Imported here, so that a start without encryption doesn't load it.
    from broker.config.tls_config import TlsConfig
    from broker.network.tls import Tls

    try:
        return {
            each.name: Tls(
                TlsConfig(config, each.name, is_sasl=each.security_protocol in SASL),
                is_for_principals=each.security_protocol not in SASL,
            )
            for each in encrypted
        }
    except ConfigError as error:
        raise StartError(str(usage_error(error, config.static)), exit_status=2) from None


class _Entrances(NamedTuple):
    """How this node connects to others. `key_stores` are all those of the node."""

    brokers: Entrance
    controllers: Entrance
    key_stores: KeyStores


def _entrances(config: BrokerConfig, environment: Environment, encryption: Mapping[str, Tls]) -> _Entrances:
    """Return the entrances. `encryption` is that of this node's listeners. Raises StartError for an invalid
    key or certificate."""
    others: dict[str, Renewable] = {}
    try:
        to_brokers = _outgoing_tls(config, config.to_brokers)
        to_controllers = _outgoing_tls(config, config.to_controllers)
        if config.to_brokers is not None and to_brokers is not None:
            encryption[config.to_brokers.listener_name].meet(to_brokers)
        if to_controllers is not None:
            others["connections to controllers"] = to_controllers
    except ConfigError as error:
        raise StartError(str(usage_error(error, config.static)), exit_status=2) from None
    return _Entrances(
        _entrance(config.to_brokers, to_brokers, environment),
        _entrance(config.to_controllers, to_controllers, environment),
        KeyStores(encryption, others),
    )


def _outgoing_tls(config: BrokerConfig, to: Outgoing | None) -> OutgoingTls | None:
    """Return the encryption, or None if there is none. Raises ConfigError."""
    if to is None or to.security_protocol not in ENCRYPTED:
        return None
    # Imported here, so that a start without encryption doesn't load it.
    from broker.config.tls_config import TlsConfig
    from broker.network.tls import OutgoingTls

    is_sasl = to.security_protocol in SASL
    return OutgoingTls(TlsConfig(config, to.listener_name, is_sasl=is_sasl, is_outgoing=True))


def _entrance(to: Outgoing | None, tls: OutgoingTls | None, environment: Environment) -> Entrance:
    if to is None or to.security_protocol == PLAINTEXT:
        return OPEN
    encrypt = None if tls is None else tls.begin
    return Entrance(to.listener_name, to.credentials, encrypt, environment.chance)


async def _tokens(config: BrokerConfig, environment: Environment) -> Mapping[str, TokenSource]:
    """Return the token sources of listeners with OAUTHBEARER by name. Raises StartError if the keys of signed
    tokens aren't available."""
    found = {name: each.tokens for name, each in config.sasl.items() if each.tokens is not None}
    if not found:
        return {}
    from broker.security.token_source import TokenSource, TokenSourceError

    try:
        monotonic_s = environment.clock.monotonic_s
        return {name: await TokenSource.opened(name, each, monotonic_s) for name, each in found.items()}
    except TokenSourceError as error:
        raise StartError(str(error), exit_status=2) from None


def _bind_also(
    listeners: Sequence[ListenerConfig], bound: Sequence[Endpoints], environment: Environment, backlog: int
) -> Endpoints:
    """Bind more listeners. If that fails, release those that are already bound."""
    try:
        return bind_all(listeners, environment.network, backlog)
    except BaseException:
        for each in bound:
            each.close()
        raise


def bind_metrics(
    config: BrokerConfig, bound: Sequence[Endpoints], environment: Environment, backlog: int
) -> Endpoints:
    """Bind the listener for metrics, if there is one. Raises StartError, also if its packages are missing."""
    if config.metrics_listener:
        from importlib.util import find_spec

        lacking = [each for each in ("h11", "prometheus_client") if find_spec(each) is None]
        if lacking:
            for each in bound:
                each.close()
            raise StartError(
                f"{METRICS_LISTENER} needs packages that aren't installed ({', '.join(lacking)}): "
                "pip install 'barnabas[metrics]'",
                exit_status=2,
            )
    return _bind_also(config.metrics_listener, bound, environment, backlog)


class _Bound(NamedTuple):
    """The node's addresses as a broker and as a controller."""

    brokers: Endpoints
    controllers: Endpoints


class _Entered(NamedTuple):
    """What this run knows of its cluster once it is part of it."""

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
    __: _Entrances,
) -> _Entered:
    """Enter a cluster whose controller is this node."""
    metadata = read_metadata(config, environment, log_dirs, only_voter=True)
    opening.begin_run(log_dirs)
    lead(config, environment, metadata, log_dirs=log_dirs, endpoints=bound.controllers)
    placement = Placement(config.node_id, log_dirs.ids, log_dirs.is_cordoned)
    folders, moves = _find_replicas(config.node_id, environment, log_dirs, metadata)
    any_failed = bool(log_dirs.offline_paths)
    corrected = replica_directories.corrections(
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
    entrances: _Entrances,
) -> _Entered:
    """Enter a cluster whose controller is another node. Returns once that has registered this one."""
    # Imported here, so that a node without others doesn't load it.
    from broker.peers.joined_cluster import JoinedCluster

    metadata = read_metadata(config, environment, log_dirs, only_voter=False)
    joined = JoinedCluster(
        config,
        environment,
        metadata,
        endpoints=bound.brokers,
        log_dirs=log_dirs,
        faults=faults,
        to_brokers=entrances.brokers,
        to_controllers=entrances.controllers,
    )
    try:
        # Registering may take a session's time, or forever, and clients can go to other brokers. Kafka
        # listens as late.
        bound.brokers.refuse()
        incarnation = await joined.join()
        bound.brokers.listen()
        # Not before: if no controller is found, the partitions' logs stay as the last run closed them, and
        # the next registration may say so. As in Kafka, whose `LogManager` removes the mark when it loads the
        # logs.
        registered = [*log_dirs.ids]
        opening.begin_run(log_dirs)
        joined.lost_directories(each for each in registered if each not in log_dirs.ids)
        folders, moves = _find_replicas(config.node_id, environment, log_dirs, metadata)
    except BaseException as error:
        joined.stop()
        if isinstance(error, BrokenInvariantError):  # caused by the controller's answers
            raise StartError(f"the cluster can't be joined: {error}") from error
        raise
    placement = Placement(config.node_id, log_dirs.ids, log_dirs.is_cordoned)
    return _Entered(metadata, placement, incarnation, folders, moves, joined)


async def _settle(environment: Environment, entered: _Entered) -> None:
    """Return once clients may learn that the partitions are in their roles."""
    if entered.joined is not None:
        await entered.joined.unfenced()
        return
    await settled(environment, entered.metadata)


def _find_replicas(
    node_id: int, environment: Environment, log_dirs: LogDirs, metadata: MetadataLog
) -> tuple[FoldersFound, MovesFound]:
    """Find the replicas by their folders, and set stray folders aside. Returns them with the moves that were
    in progress."""
    image, new_name = metadata.image, environment.chance.folder_name
    found = find_folders(image, node_id, log_dirs.online, new_name)
    moves = settle_moves(image, log_dirs.online, found, bool(log_dirs.offline_paths), new_name)
    if not log_dirs.offline_paths:  # otherwise they may be in one of these
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
    """Register again, be unfenced and be elected, as by a controller when a broker comes back."""
    node_id = config.node_id
    updates = partial(leader_and_isr_updates, own=OwnSettings.of(config))
    if not [*bound.controllers]:
        # No other broker can come, so no other session goes on.
        for other in [each for each, broker in metadata.written.brokers.items() if not broker.fenced]:
            if other != node_id:
                end_session(metadata, other, updates)
    request = registration_request(config, bound.brokers, log_dirs, environment.chance.uuid())
    incarnation = begin_run(metadata, request, updates)
    metadata.flush()  # the new leader epochs have to be on the disk before anything that refers to them
    left = broker_records.without_leader(metadata.written, node_id, log_dirs.ids)
    if left:
        log.warning(
            "partitions in folders here without a leader: %d, the first %s-%d. This node may lack acknowledged records"
            " of these. An unclean election (kafka-leader-election) makes it lead them nevertheless",
            len(left),
            *left[0],
        )
    return incarnation


# --------------------------------------------------------------------------------------------------------------
# Starting a node that is a controller and not a broker: bind the ports, lock the folders, replay the metadata
# log, and listen.


async def start_controller(config: BrokerConfig, environment: Environment) -> ControllerNode:
    """Start a controller. Returns once brokers can connect. Raises StartError with one line that says what is
    wrong and where."""
    # Imported here, so that a broker doesn't load it.
    from broker.quorum.controller_server import ControllerNode, OpenedController

    backlog = config.get_int("socket.listen.backlog.size")
    encryption, tokens = _encryption(config), await _tokens(config, environment)
    descriptors = shares(backlog * len(config.controller_listeners), len(config.log_dirs))
    limits = connection_limits(config, environment, descriptors.connections)
    endpoints = bind_all(config.controller_listeners, environment.network, backlog)
    metrics_endpoints = bind_metrics(config, [endpoints], environment, backlog)
    faults = FaultHandler(environment.scheduler)
    log_dirs: LogDirs | None = None
    node: ControllerNode | None = None
    try:
        log_dirs = open_directories(config, environment, descriptors)
        metadata = read_metadata(config, environment, log_dirs, only_voter=True)
        opening.begin_run(log_dirs)
        lead(config, environment, metadata, log_dirs=log_dirs, endpoints=endpoints)
        node = ControllerNode(
            OpenedController(
                config,
                environment,
                faults,
                limits,
                endpoints,
                metrics_endpoints,
                log_dirs,
                metadata,
                encryption,
                KeyStores(encryption),
                tokens,
            )
        )
        await settled(environment, metadata)
        await listened(node.serve())
    except BaseException as error:
        if node is not None:
            node.fall_silent()
        await let_go(error, environment, faults, [endpoints, metrics_endpoints], log_dirs)
        raise
    return node
