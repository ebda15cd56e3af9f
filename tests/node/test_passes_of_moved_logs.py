"""A partition moves to another directory, or its directory fails, during compaction. Several passes run at once."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from broker.cleaner.log_cleaner import PassEndedError
from broker.server import Server
from protocol.errors import Error
from tests.node import log_dir_moves
from tests.node.compacted import append, checkpoint, cleaned, create, fill, partition_of, records, until
from tests.support.disk import files
from tests.support.wishes import tell

KEYS = 3
COUNT = 40
LAST = {COUNT - KEYS + number: b"%d" % (COUNT - KEYS + number) for number in range(KEYS)}
TURNS = [0, 5, 17, 20, 60, 200]
"""How many turns of the loop come before the event. They reach from before the pass begins until after it has ended."""


async def with_topic(folder: Path, *settings: str, **configs: str) -> Server:
    """Start a node with three directories and create the topic in the first of them."""
    node = await log_dir_moves.started(folder, *settings)
    create(node, "t", **configs)
    assert partition_of(node).directory.path == str(folder / "a")
    return node


def latest(node: Server, topic: str = "t") -> dict[bytes | None, bytes | None]:
    return dict(records(node, topic).values())


async def turns_of_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("turns", TURNS)
async def test_a_partition_that_moves_during_a_pass_is_compacted_in_its_new_directory(
    tmp_path: Path, turns: int
) -> None:
    node = await with_topic(tmp_path)
    fill(node, COUNT, KEYS)
    known = latest(node)
    done: list[Exception | None] = []
    tell(node.cleaner.clean_now(partition_of(node)), done.append)

    await turns_of_loop(turns)
    assert log_dir_moves.move(node, tmp_path / "b") is Error.NONE
    await log_dir_moves.moved(node)
    await until(lambda: bool(done))

    assert partition_of(node).directory.path == str(tmp_path / "b")
    assert latest(node) == known
    assert done[0] is None or isinstance(done[0], PassEndedError) or "can't be touched" in str(done[0])
    before = checkpoint(node)
    assert before in (None, 0, COUNT), "of a pass that is over, or as if there had been none"
    assert await cleaned(node, roll=True) is None
    assert {offset: value for offset, (_key, value) in records(node).items()} == LAST
    assert checkpoint(node) == COUNT
    assert not [*tmp_path.rglob("*.cleaned")]
    await node.stop()
    node = await log_dir_moves.started(tmp_path)
    assert latest(node) == known
    assert checkpoint(node) == COUNT
    assert log_dir_moves.folders(tmp_path, "a") == []


@pytest.mark.parametrize("turns", TURNS)
async def test_a_directory_that_fails_during_a_pass_takes_only_its_own_partitions_offline(
    tmp_path: Path, turns: int
) -> None:
    node = await with_topic(tmp_path)
    create(node, "u")
    assert partition_of(node, "u").directory.path == str(tmp_path / "b")
    for topic in ("t", "u"):
        fill(node, COUNT, KEYS, topic)
    done: list[Exception | None] = []
    tell(node.cleaner.clean_now(partition_of(node)), done.append)
    await turns_of_loop(turns)
    directories = len(node.log_dirs.all())

    def refuse(name: str, path: str, size: int) -> None:
        if f"{tmp_path}/a/" in path and name != "unlock":
            raise OSError(errno.EIO, "refused", path)

    files.set_fault_hook(refuse)
    with pytest.raises(Exception, match="KAFKA_STORAGE_ERROR"):
        append(node, b"k", b"what finds out that the disk is broken")
    await until(lambda: len(node.log_dirs.all()) == directories - 1)
    await until(lambda: bool(done))
    assert await cleaned(node, "u") is None
    assert len(records(node, "u")) == KEYS
    assert node.failure is None

    files.set_fault_hook(None)
    await node.stop()
    node = await log_dir_moves.started(tmp_path)
    assert latest(node) == {b"k%d" % (offset % KEYS): value for offset, value in LAST.items()}
    assert await cleaned(node) is None
    assert {offset: value for offset, (_key, value) in records(node).items()} == LAST


async def test_as_many_passes_run_at_once_as_kafka_would_have_threads(tmp_path: Path) -> None:
    node = await log_dir_moves.started(tmp_path, "log.cleaner.threads=2", "log.cleaner.backoff.ms=0")
    names = [f"t{number}" for number in range(5)]
    for name in names:
        create(node, name)
        fill(node, COUNT, KEYS, name)

    most = 0

    def all_are_compacted() -> bool:
        nonlocal most
        most = max(most, len(node.cleaner._under_way))
        return all(checkpoint(node, name) == COUNT for name in names)

    for name in names:
        node.cleaner.clean_now(partition_of(node, name))
    await until(all_are_compacted)
    assert most >= 2
    for name in names:
        assert {offset: value for offset, (_key, value) in records(node, name).items()} == LAST
