"""A broker that dies at any write of a commit or a deletion of many offsets: all of them are there then, or none.

Before each operation that changes the folder it is copied as it stands, which is what a killed process leaves; and once
more where that operation had written half of what a file grew by.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from broker.server import Server
from protocol.errors import Error
from protocol.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.crash.doomed_coordinator import LOOKING
from tests.node.transactional import Producer, ask, coordinating, find
from tests.support.disk import files
from tests.support.whole_server import crash, in_loop

MANY = 110


@contextmanager
def copied(data: Path, copies: Path) -> Iterator[list[Path]]:
    """The folders that a kill would leave, one for each operation on files, and one for after the last."""
    found: list[Path] = []

    def copy() -> None:
        found.append(copies / str(len(found)))
        shutil.copytree(data, found[-1])

    def hook(operation: str, path: str, size: int) -> int | None:
        if operation not in LOOKING:
            copy()
        return None

    files.set_fault_hook(hook)
    try:
        yield found
    finally:
        files.set_fault_hook(None)
    copy()


def torn(folders: list[Path]) -> Iterator[Path]:
    """Where a file grew from one to the next, a folder in which it grew by half."""
    for before, after in pairwise(folders):
        for path in after.rglob("*.log"):
            old = before / path.relative_to(after)
            size = old.stat().st_size if old.exists() else 0
            if path.stat().st_size > size:
                folder = after.with_name(f"{after.name}-torn-{path.parent.name}")
                shutil.copytree(after, folder)
                with (folder / path.relative_to(after)).open("r+b") as log:
                    log.truncate((size + path.stat().st_size) // 2)
                yield folder


async def found(folders: list[Path]) -> list[tuple[int, int]]:
    """How many offsets are committed, and how many pending, on nodes that start on these folders; then on torn ones."""
    left = []
    for folder in [*folders, *torn(folders)]:
        node = await coordinating(folder)
        assert find(node).error_code == Error.NONE
        offsets = node.groups.shard_of("g").offsets
        left.append((offsets.held("g"), len(offsets.unstable_partitions("g"))))
        crash(node)
    return left


def committed(node: Server) -> None:
    wanted = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=7) for index in range(MANY)
    ]
    topics = [OffsetCommitRequestTopic(name="t", partitions=wanted)]
    answer = ask(node, OffsetCommitRequest(group_id="g", topics=topics), 9)
    assert {each.error_code for topic in answer.topics for each in topic.partitions} == {Error.NONE}


def committed_in_transaction(node: Server) -> None:
    producer = Producer(node).begin()
    errors = producer.commit_offsets(7, topics=[("t", index) for index in range(MANY)])
    assert {*errors} == {Error.NONE}
    assert producer.end() is Error.NONE


@in_loop
async def test_a_crash_at_any_write_leaves_all_offsets_of_a_deletion_or_none(tmp_path: Path) -> None:
    data = tmp_path / "data"
    node = await coordinating(data, partitions=MANY)
    committed(node)
    with copied(data, tmp_path / "copies") as folders:
        wanted = [OffsetDeleteRequestPartition(partition_index=index) for index in range(MANY)]
        topics = [OffsetDeleteRequestTopic(name="t", partitions=wanted)]
        answer = ask(node, OffsetDeleteRequest(group_id="g", topics=topics), 0)
        assert [each.error_code for each in answer.topics[0].partitions] == [Error.NONE] * MANY
    await node.stop()
    assert {left for left, _ in await found(folders)} == {0, MANY}


@pytest.mark.parametrize("commit", [committed, committed_in_transaction])
@in_loop
async def test_a_crash_at_any_write_leaves_all_offsets_of_a_commit_or_none(
    tmp_path: Path, commit: Callable[[Server], None]
) -> None:
    data = tmp_path / "data"
    node = await coordinating(data, partitions=MANY)
    with copied(data, tmp_path / "copies") as folders:
        commit(node)
    await node.stop()
    left = await found(folders)
    assert {*left} <= {(0, 0), (0, MANY), (MANY, 0)}
    assert left[0] == (0, 0)
    assert left[len(folders) - 1] == (MANY, 0)
    assert len(left) > len(folders) > 1
