"""A node with three log directories, of which one fails."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from broker.environment.environment import Environment
from broker.handlers import alter_replica_log_dirs, produce
from broker.process.command_line import parse_command_line
from broker.security.authorizer import ANONYMOUS
from broker.server import Server
from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages.topics import CreatableTopic
from protocol.records.batch import build_batch
from protocol.wire.primitives import uuid_from_text
from tests.compare.plain import message_from
from tests.support.disk import files
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin
from tests.support.topics import topics_of
from tests.support.whole_server import handled

NOW_MS = 1_700_000_000_000
DEADLINE_S = 240.0
LOST, KEPT = 1, 2
"""The partitions in the directories `b`, which fails, and `c`."""


def refuse(part_of_path: str, *operations: str) -> None:
    def hook(name: str, path: str, size: int) -> None:
        if part_of_path in path and (name in operations if operations else name != "unlock"):
            raise OSError(errno.EIO, "refused", path)

    files.set_fault_hook(hook)


async def started(folder: Path, *names: str, metadata: str = "a") -> Server:
    log_dirs = ",".join(str(folder / name) for name in names or "abc")
    arguments = ["--port", "0", "-o", f"log.dirs={log_dirs}", "-o", f"metadata.log.dir={folder / metadata}"]
    environment = Environment.of_this_machine(ManualClock(NOW_MS), files)
    return await begin(parse_command_line(arguments, {}).config, environment)


async def filled(folder: Path) -> Server:
    """Start a node with a topic that has a partition in each directory, and a record in each partition."""
    node = await started(folder)
    topics_of(node).create([CreatableTopic(name="t", num_partitions=3, replication_factor=1)])
    for index in range(3):
        assert write(node, index) is Error.NONE
    return node


def ask(node: Server, handler: ModuleType, key: int, version: int, fields: dict[str, Any]) -> Any:
    context = SimpleNamespace(
        api_version=version, listener_name="PLAINTEXT", client_id="test", principal=ANONYMOUS
    )
    return handled(node, handler, context, message_from(APIS[key].request, fields, version))


def write(node: Server, index: int) -> Error:
    records = bytearray(build_batch([(NOW_MS, None, b"x", ())]))
    topics = [{"name": "t", "partition_data": [{"index": index, "records": memoryview(records)}]}]
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": topics}
    answer = ask(node, produce, 0, 8, fields)
    return Error(answer.responses[0].partition_responses[0].error_code)


def move(node: Server, index: int, path: Path) -> Error:
    dirs = [{"path": str(path), "topics": [{"name": "t", "partitions": [index]}]}]
    answer = ask(node, alter_replica_log_dirs, 34, 2, {"dirs": dirs})
    return Error(answer.results[0].partitions[0].error_code)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0)


async def fail(node: Server) -> None:
    refuse("/b/")
    assert write(node, LOST) is Error.KAFKA_STORAGE_ERROR
    await until(lambda: len(node.log_dirs.all()) == 2)


def id_of(folder: Path, name: str) -> bytes:
    [line] = [
        line
        for line in (folder / name / "meta.properties").read_text().splitlines()
        if line.startswith("directory.id=")
    ]
    return uuid_from_text(line.removeprefix("directory.id="))
