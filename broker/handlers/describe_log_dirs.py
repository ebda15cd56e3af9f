"""DescribeLogDirs (35), versions 1 to 5 (KIP-113): the partitions in each log directory, and their sizes.

v3: an error for the whole request; v4: size and free space of the volume (KIP-827); v5: cordoned directories
(KIP-1066).
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from broker.security.authorizer import Operation, allows_on_cluster
from protocol.errors import Error
from protocol.messages.cluster_admin import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from protocol.waiting import Pause, turn
from storage.directory.log_directory import METADATA_TOPIC

if TYPE_CHECKING:
    from broker.disks.log_dirs import LogDirs
    from broker.handlers.node_ports import ReplicaPorts
    from broker.network.context import RequestContext
    from broker.replicas.partitions import Partitions
    from storage.directory.log_directory import LogDirectory
    from storage.files import Volume
    from storage.log.partition_log import PartitionLog

NO_LAG = -1  # DescribeLogDirsResponse.INVALID_OFFSET_LAG


async def handle(
    node: ReplicaPorts,
    context: RequestContext,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse:
    if not allows_on_cluster(node.authorizer, context, Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    return await _described(node.log_dirs, node.partitions, request)


async def _described(
    log_dirs: LogDirs, partitions: Partitions, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = set()
        pause = Pause()
        for topic in request.topics:
            if pause.is_due(1 + len(topic.partitions) // 10):
                await turn()
            wanted.update((topic.topic, index) for index in topic.partitions)
    results = []
    for path, directory in log_dirs.by_path().items():
        volume = None if directory is None else _volume(directory)
        if directory is None or volume is None:
            results.append(DescribeLogDirsResult(error_code=Error.KAFKA_STORAGE_ERROR, log_dir=path))
            continue
        topics = await _topics(directory, partitions, wanted)
        results.append(
            DescribeLogDirsResult(
                log_dir=path,
                topics=topics,
                total_bytes=volume.total_bytes,
                usable_bytes=volume.usable_bytes,
                is_cordoned=log_dirs.is_cordoned_path(path),
            )
        )
    return DescribeLogDirsResponse(results=results)


def _volume(directory: LogDirectory) -> Volume | None:
    """The volume of a directory, or None if the disk doesn't answer."""
    try:
        return directory.files.volume(directory.path)
    except OSError:
        return None


async def _topics(
    directory: LogDirectory, partitions: Partitions, wanted: Container[tuple[str, int]] | None
) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    pause = Pause()

    def add(key: tuple[str, int], size: int, lag: int, *, is_future: bool) -> None:
        name, index = key
        topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=index, partition_size=size, offset_lag=lag, is_future_key=is_future
            )
        )

    def is_wanted(key: tuple[str, int]) -> bool:
        return key[0] != METADATA_TOPIC and (wanted is None or key in wanted)

    for logs, is_future in ((directory.logs, False), (directory.futures, True)):
        for key, log in [*logs.items()]:
            if pause.is_due():
                await turn()
            if is_wanted(key) and not log.closed:  # it may have been closed meanwhile
                add(key, log.size, _lag(partitions, log, is_future), is_future=is_future)
    for key, size in directory.unopened_future_sizes().items():
        if is_wanted(key):
            add(key, size, NO_LAG, is_future=True)
    return [*topics.values()]


def _lag(partitions: Partitions, log: PartitionLog, is_future: bool) -> int:
    """How far a log is behind: a future log behind the present one, and the present one behind its high watermark."""
    partition = partitions.find(log.topic, log.partition)
    if partition is None:
        return NO_LAG
    if is_future:
        return partition.log.log_end_offset - log.log_end_offset
    return max(partition.log.high_watermark - log.log_end_offset, 0)
