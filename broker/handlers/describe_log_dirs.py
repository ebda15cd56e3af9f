"""DescribeLogDirs (35), versions 1 to 5 (KIP-113): what lies in which log directory, and how large it is.

v3: an error for the whole request; v4: size and room of the volume (KIP-827); v5: cordoned directories (KIP-1066).
"""

from __future__ import annotations

import os
from collections.abc import Container
from typing import TYPE_CHECKING

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
    from broker.network.context import RequestContext
    from broker.server import Server
    from storage.directory.log_directory import LogDirectory
    from storage.log.partition_log import PartitionLog

NO_LAG = -1  # DescribeLogDirsResponse.INVALID_OFFSET_LAG


def handle(
    server: Server, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        results=[
            _describe(server, path, directory, wanted)
            for path, directory in server.log_dirs.by_path().items()
        ]
    )


def _describe(
    server: Server,
    path: str,
    directory: LogDirectory | None,
    wanted: Container[tuple[str, int]] | None,
) -> DescribeLogDirsResult:
    try:
        volume = os.statvfs(path)
    except OSError:
        directory = None
    if directory is None:
        return DescribeLogDirsResult(error_code=Error.KAFKA_STORAGE_ERROR, log_dir=path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    # key, size, lag, is future
    found = [
        *((key, log.size, _lag(server, log, False), False) for key, log in directory.logs.items()),
        *((key, log.size, _lag(server, log, True), True) for key, log in directory.futures.items()),
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
    return DescribeLogDirsResult(
        log_dir=path,
        topics=[*topics.values()],
        total_bytes=volume.f_blocks * volume.f_frsize,
        usable_bytes=volume.f_bavail * volume.f_frsize,
        is_cordoned=server.log_dirs.is_cordoned_path(path),
    )


def _lag(server: Server, log: PartitionLog, is_future: bool) -> int:
    """Of a future log what it lacks of the present one, which has itself only what is replicated to lack."""
    partition = server.partitions.find(log.topic, log.partition)
    if partition is None:
        return NO_LAG
    if is_future:
        return partition.log.log_end_offset - log.log_end_offset
    return max(partition.log.high_watermark - log.log_end_offset, 0)
