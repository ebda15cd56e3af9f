"""AlterReplicaLogDirs (34), versions 1 to 2 (KIP-113): in which log directory a partition is to lie.

The answer says that the move has begun; DescribeLogDirs shows how far it is. A partition that is sent to where it lies
stays there, and gives up the move that it was on. One that isn't there yet is answered with
UNKNOWN_TOPIC_OR_PARTITION, and created in the directory once it is. Source: ReplicaManager.alterReplicaLogDirs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.replicas.partitions import FAULTS
from protocol.errors import Error
from protocol.messages.cluster_admin import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server

log = logging.getLogger("barnabas.log_dirs")

LONGEST_DIRECTORY_NAME = 255
FUTURE_SUFFIX_LENGTH = len(".0123456789abcdef0123456789abcdef-future")


def handle(
    server: Server, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    wanted: dict[str, dict[int, str]] = {}  # of a partition that is named twice the last directory counts
    for directory in request.dirs:
        for topic in directory.topics:
            places = wanted.setdefault(topic.name, {})
            places.update(dict.fromkeys(topic.partitions, directory.path))
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=_move(server, name, index, path)
                    )
                    for index, path in places.items()
                ],
            )
            for name, places in wanted.items()
            if places
        ]
    )


def _move(server: Server, name: str, index: int, path: str) -> Error:
    if len(f"{name}-{index}") + FUTURE_SUFFIX_LENGTH > LONGEST_DIRECTORY_NAME:
        return Error.INVALID_TOPIC_EXCEPTION
    known = server.log_dirs.by_path()
    if path not in known:
        return Error.LOG_DIR_NOT_FOUND
    directory = known[path]
    if directory is None:
        return Error.KAFKA_STORAGE_ERROR
    if server.log_dirs.is_cordoned_path(path):
        return Error.INVALID_REPLICA_ASSIGNMENT
    directory_id = server.log_dirs.id_of(directory)
    partition = server.partitions.find(name, index)
    if partition is None:
        topic = server.metadata.image.topics.get(name)
        if topic is not None and index in topic.partitions:
            return Error.KAFKA_STORAGE_ERROR  # it is offline
        server.placement.prefer(name, index, directory_id)
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    try:
        if partition.move is not None and partition.move.directory is not directory:
            server.moves.cancel(partition)
        if partition.directory is not directory and partition.move is None and None in known.values():
            # One in the directory that is offline may be on its way already. And what `LogDirFailures` has still to
            # record, that a partition stayed where it was, must not come after a newer move of that partition.
            return Error.KAFKA_STORAGE_ERROR
        server.moves.begin(partition, directory_id)
    except FAULTS as error:
        log.error("%s-%d can't be moved to %s: %s", name, index, path, error)
        return Error.KAFKA_STORAGE_ERROR
    return Error.NONE
