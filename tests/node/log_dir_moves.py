"""A node of three log directories, and a partition that goes from one to another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from broker.environment.environment import Environment
from broker.handlers import alter_replica_log_dirs, describe_log_dirs
from broker.process.command_line import parse_command_line
from broker.replicas.partition import Partition
from broker.server import Server
from protocol.errors import Error
from protocol.messages.cluster_admin import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from protocol.messages.metadata_records import NoOpRecord
from protocol.messages.topics import CreatableTopic
from protocol.records.batch import build_batch
from protocol.wire.primitives import uuid_from_text
from storage.checkpoints import read_meta_properties
from storage.log.log_state import AppendOrigin
from tests.support.disk import files
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin
from tests.support.topics import topics_of
from tests.support.whole_server import handled

NOW_MS = 1_700_000_000_000
DEADLINE_S = 240.0
RECORDS = 40


async def started(folder: Path, *settings: str) -> Server:
    arguments = ["--port", "0", "-o", "log.dirs=" + ",".join(str(folder / name) for name in "abc")]
    for setting in ("metadata.log.dir=" + str(folder / "m"), *settings):
        arguments += ["-o", setting]
    environment = Environment.of_this_machine(ManualClock(NOW_MS), files)
    return await begin(parse_command_line(arguments, {}).config, environment)


async def filled(folder: Path, *settings: str, **configs: str) -> Server:
    """Start a node with a topic of one partition, which has records and lies in the directory `a`."""
    node = await started(folder, *settings)
    topics_of(node).create([CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    assert partition_of(node).directory.path == str(folder / "a")
    for number in range(RECORDS):
        append(node, b"%d" % number)
    return node


def partition_of(node: Server) -> Partition:
    return node.partitions.get("t", 0)


def append(node: Server, value: bytes, **producer: Any) -> None:
    partition = partition_of(node)
    batch = build_batch([(node.clock.now_ms(), None, value, ())], **producer)
    partition.log.append(
        batch, leader_epoch=partition.leader_epoch, now_ms=node.clock.now_ms(), origin=AppendOrigin.CLIENT
    )
    partition.leader().advance()


def values(node: Server) -> list[bytes]:
    from protocol.records.batch import read_records

    log = partition_of(node).log
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1, upper_bound=log.log_end_offset, min_one_batch=True).records
        for record in read_records(data):
            assert record.value is not None
            if record.offset >= offset:
                found.append(bytes(record.value))
            offset = record.offset + 1
    return found


def expected(*more: bytes, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, RECORDS)] + [*more]


def move(node: Server, path: Path, topic: str = "t", *indexes: int) -> Error:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=str(path), topics=[AlterReplicaLogDirTopic(name=topic, partitions=[*indexes] or [0])]
            )
        ]
    )
    [result] = handled(node, alter_replica_log_dirs, cast(Any, SimpleNamespace()), request).results
    [partition, *_] = result.partitions
    return Error(partition.error_code)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0)


async def moved(node: Server) -> None:
    await until(lambda: partition_of(node).move is None)


def folders(folder: Path, name: str) -> list[str]:
    """Return the endings of the names of the partition's folders in this directory."""
    return sorted(
        path.name if path.name == "t-0" else path.name.rpartition("-")[2]
        for path in (folder / name).glob("t-0*")
    )


def id_of(folder: Path, name: str) -> bytes:
    properties = read_meta_properties(files, str(folder / name / "meta.properties"))
    assert properties is not None
    return uuid_from_text(properties["directory.id"])


def recorded(node: Server) -> bytes:
    [directory_id] = node.metadata.image.topics["t"].partitions[0].directories
    return directory_id


def lag(node: Server) -> None:
    """Have the metadata log commit nothing from now on, as if it had other voters that lag."""
    node.metadata.replicate = lambda end_offset: None
    node.metadata.append([NoOpRecord()])


def catch_up(node: Server) -> None:
    node.metadata.replicate = node.metadata.commit
    node.metadata.commit(node.metadata.next_offset)


def described(node: Server) -> dict[str, tuple[bool, int]]:
    """Return (is future, lag) of the partition by directory."""
    answer = handled(
        node, describe_log_dirs, cast(Any, SimpleNamespace()), DescribeLogDirsRequest(topics=None)
    )
    return {
        Path(result.log_dir).name: (partition.is_future_key, partition.offset_lag)
        for result in answer.results
        for topic in result.topics
        for partition in topic.partitions
    }
