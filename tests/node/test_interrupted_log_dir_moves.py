"""Moves between log directories that a stop, a crash or a failing disk interrupts."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.disks import moves
from broker.server import Server
from protocol.messages.topics import CreatableTopic
from tests.node.log_dir_moves import (
    NOW_MS,
    append,
    described,
    expected,
    filled,
    folders,
    id_of,
    move,
    moved,
    partition_of,
    recorded,
    started,
    until,
    values,
)
from tests.support.disk import files
from tests.support.topics import topics_of
from tests.support.whole_server import crash


@pytest.fixture(autouse=True)
def _a_whole_disk_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "SLICE_BATCHES", 2)
    monkeypatch.setattr(moves, "RETRY_S", 0.001)


@pytest.mark.parametrize("clean", [True, False])
async def test_a_move_goes_on_after_a_restart(tmp_path: Path, clean: bool) -> None:
    node = await filled(tmp_path)
    move(node, tmp_path / "b")
    for _ in range(4):
        await asyncio.sleep(0)
    if clean:
        await node.stop()
    else:
        crash(node)
    assert (folders(tmp_path, "a"), folders(tmp_path, "b")) == (["t-0"], ["future"])
    again = await started(tmp_path)
    append(again, b"later")
    assert described(again)["b"][0]
    await moved(again)
    assert values(again) == expected(b"later")
    assert "t-0" in folders(tmp_path, "b")
    assert recorded(again) == id_of(tmp_path, "b")


async def test_a_future_log_that_exceeds_the_present_one_is_started_again(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    move(node, tmp_path / "b")
    for _ in range(8):
        await asyncio.sleep(0)
    crash(node)
    with (tmp_path / "a" / "t-0" / "00000000000000000000.log").open("r+b") as present:
        present.truncate(0)
    again = await started(tmp_path)
    append(again, b"another")
    await moved(again)
    assert values(again) == [b"another"]


def killed_at(operation: str, end_of_path: str) -> None:
    """Have nothing reach the disk any more from that operation on."""
    dead = False

    def hook(name: str, path: str, size: int) -> None:
        nonlocal dead
        dead |= name == operation and path.endswith(end_of_path)
        if dead:
            raise OSError(errno.EIO, "dead", path)

    files.set_fault_hook(hook)


@pytest.mark.parametrize("renamed", ["a/t-0", "-future"])
async def test_a_crash_between_the_renames_leaves_one_whole_file(tmp_path: Path, renamed: str) -> None:
    node = await filled(tmp_path)
    killed_at("rename", renamed)
    move(node, tmp_path / "b")
    change = partition_of(node).move
    assert change is not None
    await until(lambda: change.failed)
    files.set_fault_hook(None)
    crash(node)
    again = await started(tmp_path)
    if partition_of(again).move is not None:
        await moved(again)
    assert values(again) == expected()
    assert "t-0" in folders(tmp_path, "b")
    assert recorded(again) == id_of(tmp_path, "b")
    append(again, b"later")
    await again.stop()
    once_more = await started(tmp_path)
    assert values(once_more) == expected(b"later")
    assert "t-0" not in folders(tmp_path, "a")


async def test_a_crash_at_any_operation_of_a_move_loses_nothing(tmp_path: Path) -> None:
    whole = await started(tmp_path / "whole")
    topics_of(whole).create([CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    fill(whole)
    operations: list[str] = []

    def note(name: str, path: str, size: int) -> None:
        operations.append(name)

    files.set_fault_hook(note)
    move(whole, tmp_path / "whole" / "b")
    await moved(whole)
    files.set_fault_hook(None)
    await whole.stop()
    assert operations.count("rename") >= 2
    found_in = [await _crash_at(tmp_path / str(nth), nth) for nth in range(len(operations))]
    assert found_in[0] == "a"
    assert found_in[-1] == "b"


def fill(node: Server) -> None:
    log = partition_of(node).log
    for number in range(4):
        append(node, b"%d" % number)
        if number == 1:
            log.roll(NOW_MS)
    log.delete_records_before(1)


async def _crash_at(folder: Path, nth: int) -> str:
    """Crash at the nth operation. Returns the directory in which the next start finds the partition."""
    node = await started(folder)
    topics_of(node).create([CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    fill(node)
    node.housekeeping.checkpoint_log_start_offsets()
    await until(lambda: not node.background._waiting)
    left = nth

    def hook(name: str, path: str, size: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EIO, "dead", path)

    files.set_fault_hook(hook)
    move(node, folder / "b")
    partition = partition_of(node)
    await until(
        lambda: partition.move is None or partition.move.failed or len(node.log_dirs.all()) < 4 or left < 0
    )
    files.set_fault_hook(None)
    crash(node)
    again = await started(folder)
    assert values(again) == [b"1", b"2", b"3"], nth
    found_in = Path(partition_of(again).directory.path).name
    append(again, b"later")
    if partition_of(again).move is not None:
        await moved(again)
    assert values(again) == [b"1", b"2", b"3", b"later"], nth
    await again.stop()
    assert sum("t-0" in folders(folder, name) for name in "ab") == 1
    assert not list(folder.glob("*/*-stray"))
    return found_in


async def test_a_rename_that_fails_leaves_the_partition_where_it_is_and_is_tried_again(
    tmp_path: Path,
) -> None:
    node = await filled(tmp_path, f"metadata.log.dir={tmp_path / 'b'}")  # `b` isn't lost for it

    def hook(name: str, path: str, size: int) -> None:
        if name == "rename" and path.endswith("-future"):
            raise OSError(errno.EIO, "refused", path)

    files.set_fault_hook(hook)
    move(node, tmp_path / "b")
    change = partition_of(node).move
    assert change is not None
    await until(lambda: change.failed)
    append(node, b"meanwhile")
    assert values(node) == expected(b"meanwhile")
    files.set_fault_hook(None)
    await moved(node)
    assert values(node) == expected(b"meanwhile")
    assert partition_of(node).directory.path == str(tmp_path / "b")
