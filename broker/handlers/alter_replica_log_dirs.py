"""AlterReplicaLogDirs (34), versions 1 to 2 (KIP-113): in which log directory a partition is to lie.

Conscious gap: a partition isn't moved between two log directories of this node: KAFKA_STORAGE_ERROR. All else is
answered as Kafka does.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from broker.handlers.describe_log_dirs import log_directories
from protocol.errors import Error
from protocol.messages.cluster_admin import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from broker.context import RequestContext
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
    known = {os.path.abspath(known): directory for known, directory in log_directories(server).items()}
    if path not in known:
        return Error.LOG_DIR_NOT_FOUND
    if known[path] is None:
        return Error.KAFKA_STORAGE_ERROR
    cordoned = server.config.get_list("cordoned.log.dirs")
    if path in cordoned or "*" in cordoned:
        return Error.INVALID_REPLICA_ASSIGNMENT
    partition = server.partitions.find(name, index)
    if partition is None:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    if partition.directory is known[path]:
        return Error.NONE
    log.warning("%s-%d stays in %s: this broker can't move it yet", name, index, partition.directory.path)
    return Error.KAFKA_STORAGE_ERROR
