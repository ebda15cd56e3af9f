"""AlterReplicaLogDirs (34), versions 1 to 2 (KIP-113): moves partitions to other log directories.

The answer says that the move has begun; DescribeLogDirs shows how far it is. A partition that is already in the
directory stays there, and its move to another one, if any, is cancelled. The error is UNKNOWN_TOPIC_OR_PARTITION if the
partition doesn't exist yet, and REPLICA_NOT_AVAILABLE if this broker has no replica of it. Either goes into the
directory once this broker gets a replica.
Source: ReplicaManager.alterReplicaLogDirs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from broker.network.turns import runs_to_its_end
from broker.replicas.partitions import FAULTS
from broker.security.authorizer import Operation, allows_on_cluster
from protocol.errors import Error
from protocol.messages.cluster_admin import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.controller.replica_placer import Placement
    from broker.disks.log_dirs import LogDirs
    from broker.disks.moves import LogDirMoves
    from broker.handlers.node_ports import BrokerPorts
    from broker.network.context import RequestContext
    from broker.replicas.partitions import Partitions

log = logging.getLogger("barnabas.log_dirs")

LONGEST_DIRECTORY_NAME = 255
FUTURE_SUFFIX_LENGTH = len(".0123456789abcdef0123456789abcdef-future")


@runs_to_its_end
async def handle(
    node: BrokerPorts,
    context: RequestContext,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse:
    is_allowed = allows_on_cluster(node.authorizer, context, Operation.ALTER)
    asked = _Asked(node.moves, node.log_dirs, node.partitions, node.placement)
    return await _altered(asked, request, is_allowed=is_allowed)


async def _altered(
    asked: _Asked, request: AlterReplicaLogDirsRequest, *, is_allowed: bool
) -> AlterReplicaLogDirsResponse:
    wanted: dict[str, dict[int, str]] = {}  # the last directory counts if a partition is named twice
    pause = Pause()
    for directory in request.dirs:
        if pause.is_due():
            await turn()
        for topic in directory.topics:
            if pause.is_due(1 + len(topic.partitions) // 10):
                await turn()
            places = wanted.setdefault(topic.name, {})
            places.update(dict.fromkeys(topic.partitions, directory.path))
    response = AlterReplicaLogDirsResponse()
    for name, places in wanted.items():
        if not places:
            continue
        result = AlterReplicaLogDirTopicResult(topic_name=name)
        response.results.append(result)
        for index, path in places.items():
            if pause.is_due(4):
                await turn()
            error = _move(asked, name, index, path) if is_allowed else Error.CLUSTER_AUTHORIZATION_FAILED
            result.partitions.append(
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
            )
    return response


class _Asked(NamedTuple):
    """The parts of the node that decide where a partition is."""

    moves: LogDirMoves
    log_dirs: LogDirs
    partitions: Partitions
    placement: Placement


def _move(asked: _Asked, name: str, index: int, path: str) -> Error:
    if len(f"{name}-{index}") + FUTURE_SUFFIX_LENGTH > LONGEST_DIRECTORY_NAME:
        return Error.INVALID_TOPIC_EXCEPTION
    log_dirs = asked.log_dirs
    known = log_dirs.by_path()
    if path not in known:
        return Error.LOG_DIR_NOT_FOUND
    directory = known[path]
    if directory is None:
        return Error.KAFKA_STORAGE_ERROR
    if log_dirs.is_cordoned_path(path):
        return Error.INVALID_REPLICA_ASSIGNMENT
    directory_id = log_dirs.id_of(directory)
    partition = asked.partitions.find(name, index)
    if partition is None:
        error = asked.partitions.missing(name, index)
        if error is Error.KAFKA_STORAGE_ERROR:
            return error  # it is offline
        asked.placement.prefer(name, index, directory_id)
        return Error.REPLICA_NOT_AVAILABLE if error is Error.NOT_LEADER_OR_FOLLOWER else error
    try:
        if partition.move is not None and partition.move.directory is not directory:
            asked.moves.cancel(partition)
        is_new = partition.move is None or partition.move.cancelling
        if partition.directory is not directory and is_new and None in known.values():
            # A move to the offline directory may be under way already. `LogDirFailures` then still has to record that
            # the partition stayed where it was, and that must not come after a newer move of the partition.
            return Error.KAFKA_STORAGE_ERROR
        asked.moves.begin(partition, directory_id)
    except FAULTS as error:
        log.error("%s-%d can't be moved to %s: %s", name, index, path, error)
        return Error.KAFKA_STORAGE_ERROR
    return Error.NONE
