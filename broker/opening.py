"""What every start opens, whatever the node is in its cluster: the metadata log above all."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.config.broker_config import CONNECTIONS_PER_HOST, VOTERS
from broker.config.errors import StartError
from broker.config.topic_config import log_config_of_metadata
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
from broker.controller.snapshots import SnapshotPolicy, bootstrap_records
from broker.disks.opening import open_log_dirs
from broker.network.connection_limits import ConnectionLimits
from broker.network.endpoints import HostNames
from broker.replicas.partitions import FAULTS as LOG_FAULTS
from protocol.errors import CodecError
from protocol.messages.raft import Endpoint, KRaftVersionFeature, Voter
from protocol.wire.primitives import uuid_to_text
from storage.background import Lane
from storage.checkpoints import META_PROPERTIES_FILE
from storage.directory.log_directory import METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from broker.config.broker_config import BrokerConfig
    from broker.disks.log_dirs import LogDirs
    from broker.environment.environment import Environment
    from broker.fault_handler import FaultHandler
    from broker.network.endpoints import Endpoints
    from broker.process.descriptors import DescriptorShares

log = logging.getLogger("barnabas.server")

# What a folder may be found with; a fault of ours is none of these and keeps its stack trace.
_FOLDER_ERRORS = (*LOG_FAULTS, CodecError, MetadataContradictionError)

REMEDY = (
    "put the folder back from a copy. To go on with what stands before it, and have all that was made later set aside, "
    "cut the file there and remove .kafka_cleanshutdown beside the folder"
)


def connection_limits(config: BrokerConfig, environment: Environment, descriptors: int) -> ConnectionLimits:
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


def read_metadata(
    config: BrokerConfig, environment: Environment, log_dirs: LogDirs, *, only_voter: bool
) -> MetadataLog:
    """The cluster's metadata as the last run left it; nothing of a new cluster. Where it can't be used nothing is
    written: StartError says what is wrong, and what to do."""
    clock, directory = environment.clock, log_dirs.metadata
    path = f"{directory.path}/{METADATA_TOPIC}-0"
    # Another's log goes on. Who only copies it doesn't sync what it fetches, so that a power loss may leave holes in
    # it, beside a mark that stays in a start that comes to nothing (`broker.starting`). What lies behind is fetched
    # again.
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
        # this run begins where the found log ends: from here on no power loss takes that back, or the cut of a torn end
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
    """What several vote on may not be here to its end, and going on alone takes it from those that have more."""
    voters = metadata.quorum.voters
    others = [] if voters is None else [each for each in voters.voters if each.voter_id != config.node_id]
    if others:
        raise StartError(
            f"{metadata.log.directory} names another controller that votes (node {others[0].voter_id}), and a quorum "
            "of several isn't built yet: have the quorum let go of all but this one (kafka-metadata-quorum "
            "remove-controller), or start from another folder"
        )


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


def lead(
    config: BrokerConfig,
    environment: Environment,
    metadata: MetadataLog,
    *,
    log_dirs: LogDirs,
    endpoints: Endpoints,
) -> None:
    """Begin an epoch of ours; with a new cluster's first records, where there is none yet. `endpoints`: the
    controller's."""
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
    in_log = metadata.quorum.kraft_version > 0 or beginning is not None
    has_voters = in_log and [*endpoints] and not config.get_list(VOTERS)
    metadata.become_leader(config.node_id, _voter(config, log_dirs, endpoints) if has_voters else None)
    if beginning is not None:
        metadata.append_transaction("Bootstrap records", beginning)


def _voter(config: BrokerConfig, log_dirs: LogDirs, endpoints: Endpoints) -> Voter:
    low, high = KRAFT_VERSION_RANGE
    return Voter(
        voter_id=config.node_id,
        voter_directory_id=log_dirs.metadata_id,
        endpoints=[
            Endpoint(name=name, host=host, port=port) for name, host, port in endpoints.all_advertised()
        ],
        kraft_version_feature=KRaftVersionFeature(min_supported_version=low, max_supported_version=high),
    )


def open_directories(
    config: BrokerConfig, environment: Environment, descriptors: DescriptorShares
) -> LogDirs:
    """The log directories, locked, and how many of their files may be open. Raises StartError."""
    environment.files.limit_open_files(descriptors.files)
    environment.files.limit_retired_files(descriptors.retired_files)
    return open_log_dirs(config, environment.files, environment.background, environment.chance.uuid)


async def listened(serve: Awaitable[None]) -> None:
    """Returns when `serve` does. Raises StartError."""
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
    """The start comes to nothing, and nobody uses any of it any more. Raises StartError where the error is one of
    folders."""
    await environment.background.finish()
    faults.forget()
    for each in endpoints:
        each.close()
    if log_dirs is not None:
        log_dirs.close(clean=False)
    if isinstance(error, _FOLDER_ERRORS):
        raise StartError(f"the data can't be opened: {error}") from error


async def settled(environment: Environment, metadata: MetadataLog) -> None:
    """Returns once what the start has written is on the disk: before that nobody is told of it. Raises StartError."""
    written = metadata.next_offset
    metadata.flush()
    metadata.commit_when_synced()
    await environment.background.passed(Lane.FLUSHING)
    if metadata.log.failure is not None:
        raise metadata.log.failure
    if metadata.log.recovery_point < written:
        raise StartError(f"{metadata.log.directory} can't be synced: too many files are open")
