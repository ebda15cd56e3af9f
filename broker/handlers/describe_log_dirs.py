"""DescribeLogDirs (35), versions 1 to 5 (KIP-113): what lies in which log directory, and how large it is.

v3: an error for the whole request; v4: size and room of the volume (KIP-827); v5: cordoned directories (KIP-1066).
"""

from __future__ import annotations

import os
from collections.abc import Container
from typing import TYPE_CHECKING

from broker.security.authorizer import Operation
from broker.security.denials import allows_on_cluster
from protocol.errors import Error
from protocol.messages.cluster_admin import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from storage.directory.log_directory import METADATA_TOPIC

if TYPE_CHECKING:
    from broker.disks.log_dirs import LogDirs
    from broker.network.context import RequestContext
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer
    from storage.directory.log_directory import LogDirectory
    from storage.log.partition_log import PartitionLog

NO_LAG = -1  # DescribeLogDirsResponse.INVALID_OFFSET_LAG


def handle(
    log_dirs: LogDirs,
    partitions: Partitions,
    authorizer: Authorizer,
    context: RequestContext,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse:
    if not allows_on_cluster(authorizer, context, Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = []
    for path, directory in log_dirs.by_path().items():
        try:
            volume = os.statvfs(path)
        except OSError:
            directory = None
        if directory is None:
            results.append(DescribeLogDirsResult(error_code=Error.KAFKA_STORAGE_ERROR, log_dir=path))
            continue
        results.append(
            DescribeLogDirsResult(
                log_dir=path,
                topics=_topics(directory, partitions, wanted),
                total_bytes=volume.f_blocks * volume.f_frsize,
                usable_bytes=volume.f_bavail * volume.f_frsize,
                is_cordoned=log_dirs.is_cordoned_path(path),
            )
        )
    return DescribeLogDirsResponse(results=results)


def _topics(
    directory: LogDirectory, partitions: Partitions, wanted: Container[tuple[str, int]] | None
) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    # key, size, lag, is future
    found = [
        *((key, log.size, _lag(partitions, log, False), False) for key, log in directory.logs.items()),
        *((key, log.size, _lag(partitions, log, True), True) for key, log in directory.futures.items()),
        *((key, size, NO_LAG, True) for key, size in directory.unopened_future_sizes().items()),
    ]
    for key, size, lag, is_future in found:
        name, index = key
        if name == METADATA_TOPIC or (wanted is not None and key not in wanted):
            continue
        topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=index, partition_size=size, offset_lag=lag, is_future_key=is_future
            )
        )
    return [*topics.values()]


def _lag(partitions: Partitions, log: PartitionLog, is_future: bool) -> int:
    """Of a future log what it lacks of the present one, which has itself only what is replicated to lack."""
    partition = partitions.find(log.topic, log.partition)
    if partition is None:
        return NO_LAG
    if is_future:
        return partition.log.log_end_offset - log.log_end_offset
    return max(partition.log.high_watermark - log.log_end_offset, 0)
