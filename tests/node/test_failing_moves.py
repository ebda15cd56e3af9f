"""A log directory fails while a partition is on its way from it or to it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.disks import moves
from broker.handlers import describe_log_dirs
from broker.replicas.partition import Partition
from broker.server import Server
from protocol.errors import Error
from protocol.messages.topics import CreatableTopic
from protocol.records.batch import build_batch
from tests.node.log_dirs import (
    KEPT,
    LOST,
    NOW_MS,
    ask,
    filled,
    id_of,
    move,
    refuse,
    started,
    until,
    write,
)
from tests.support.disk import files
from tests.support.topics import topics_of
from tests.support.whole_server import crash

LOG_START = 5
RECORDS = 40
NO_LAG = -1
IN_A = 0


@pytest.fixture(autouse=True)
def _a_whole_disk_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "SLICE_BATCHES", 1)
    monkeypatch.setattr(moves, "SLICE_BYTES", 1)
    monkeypatch.setattr(moves, "RETRY_S", 0.001)


def refuse_renaming_future(directory: Path, *, metadata: bool = False) -> None:
    """Have the disk refuse to rename a future log in this directory, and on demand appends to the metadata log."""

    def hook(name: str, path: str, size: int) -> None:
        future = name == "rename" and path.startswith(f"{directory}/") and path.endswith("-future")
        if future or (metadata and name == "append" and "__cluster_metadata" in path):
            raise OSError(errno.EIO, "refused", path)

    files.set_fault_hook(hook)


async def left_behind(folder: Path) -> Server:
    """Start a node whose partition LOST is offline: its directory `b` has failed, and part of its log is in `c`."""
    node = await started(folder)
    topics_of(node).create([CreatableTopic(name="t", num_partitions=3, replication_factor=1)])
    partition = node.partitions.get("t", LOST)
    for _ in range(RECORDS // 10):
        batch = build_batch([(NOW_MS, None, b"old", ()) for _ in range(10)])
        partition.log.append(batch, leader_epoch=partition.leader_epoch, now_ms=NOW_MS)
        partition.leader().advance()
    partition.log.delete_records_before(LOG_START)
    node.housekeeping.checkpoint_log_start_offsets()
    await until((folder / "b" / "log-start-offset-checkpoint").exists)
    assert move(node, LOST, folder / "c") is Error.NONE
    assert partition.move is not None
    future = partition.move.log
    await until(lambda: future.log_start_offset == LOG_START)
    assert partition.move is not None
    refuse(str(folder / "b") + "/")
    await until(lambda: len(node.log_dirs.all()) == 2)
    files.set_fault_hook(None)
    return node


def described(node: Server, name: str) -> dict[int, tuple[int, int, bool]]:
    """Return (size, lag, is future) of each partition in the directory, by its index."""
    answer = ask(node, describe_log_dirs, 35, 4, {"topics": None})
    [topics] = [each.topics for each in answer.results if Path(each.log_dir).name == name]
    return {
        partition.partition_index: (
            partition.partition_size,
            partition.offset_lag,
            partition.is_future_key,
        )
        for topic in topics
        for partition in topic.partitions
    }


def create_again(node: Server, folder: Path, name: str) -> Partition:
    """Create the topic again, with the partition LOST in that directory."""
    move(node, LOST, folder / name)
    topics_of(node).create([CreatableTopic(name="t", num_partitions=3, replication_factor=1)])
    partition = node.partitions.get("t", LOST)
    assert partition.directory.path == str(folder / name)
    return partition


def future_folders(folder: Path, name: str) -> list[Path]:
    return list((folder / name).glob("t-*-future"))


def recorded(node: Server, index: int) -> tuple[list[bytes], int]:
    partition = node.metadata.image.topics["t"].partitions[index]
    return partition.directories, partition.leader


async def test_leftovers_of_a_move_hide_no_record_of_a_new_topic(tmp_path: Path) -> None:
    node = await left_behind(tmp_path)
    topics_of(node).delete([node.metadata.image.topics["t"]])
    create_again(node, tmp_path, "c")
    for _ in range(8):
        assert write(node, LOST) is Error.NONE
    await node.stop()
    assert node.failure is None
    again = await started(tmp_path)
    log = again.partitions.get("t", LOST).log
    assert (log.log_start_offset, log.log_end_offset) == (0, 8)


async def test_leftovers_of_a_move_are_described_and_used_once_the_directory_is_back(tmp_path: Path) -> None:
    node = await left_behind(tmp_path)
    size, lag, is_future = described(node, "c")[LOST]
    assert size > 0
    assert (lag, is_future) == (NO_LAG, True)
    await node.stop()
    assert (tmp_path / "c" / ".kafka_cleanshutdown").exists()
    again = await started(tmp_path)
    partition = again.partitions.get("t", LOST)
    await until(lambda: partition.move is None)
    assert partition.directory.path == str(tmp_path / "c")
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (LOG_START, RECORDS)


async def test_leftovers_of_a_move_that_cannot_be_synced_prevent_a_clean_end(tmp_path: Path) -> None:
    node = await left_behind(tmp_path)
    [future] = future_folders(tmp_path, "c")
    refuse(f"{future}/", "sync")
    await node.stop()
    files.set_fault_hook(None)
    assert not (tmp_path / "c" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    again = await started(tmp_path)
    partition = again.partitions.get("t", LOST)
    await until(lambda: partition.move is None)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (LOG_START, RECORDS)


@pytest.mark.parametrize("restarted", [False, True])
async def test_leftovers_of_a_move_go_with_their_topic(tmp_path: Path, restarted: bool) -> None:
    node = await left_behind(tmp_path)
    node.housekeeping.checkpoint_log_start_offsets()
    if restarted:
        await node.stop()
        refuse(str(tmp_path / "b") + "/")
        node = await started(tmp_path)
        files.set_fault_hook(None)
        assert described(node, "c")[LOST][1:] == (NO_LAG, True)
    assert len(future_folders(tmp_path, "c")) == 1
    topics_of(node).delete([node.metadata.image.topics["t"]])
    assert future_folders(tmp_path, "c") == []
    assert LOST not in described(node, "c")
    log = create_again(node, tmp_path, "c").log
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)


async def test_leftovers_of_a_move_are_not_mistaken_for_the_partition_while_its_directory_is_offline(
    tmp_path: Path,
) -> None:
    node = await left_behind(tmp_path)
    await node.stop()
    refuse(str(tmp_path / "b") + "/")
    without = await started(tmp_path)
    files.set_fault_hook(None)
    assert without.partitions.missing("t", LOST) is Error.KAFKA_STORAGE_ERROR
    assert len(future_folders(tmp_path, "c")) == 1
    await without.stop()
    again = await started(tmp_path)
    log = again.partitions.get("t", LOST).log
    assert (log.log_start_offset, log.log_end_offset) == (LOG_START, RECORDS)


async def test_a_rename_that_fails_takes_the_new_directory_offline_and_the_record_is_taken_back(
    tmp_path: Path,
) -> None:
    node = await filled(tmp_path)
    refuse_renaming_future(tmp_path / "b")
    assert move(node, KEPT, tmp_path / "b") is Error.NONE
    await until(lambda: len(node.log_dirs.all()) == 2)
    assert node.partitions.get("t", KEPT).move is None
    assert recorded(node, KEPT) == ([id_of(tmp_path, "c")], 1)
    assert recorded(node, LOST) == ([id_of(tmp_path, "b")], -1)
    assert write(node, KEPT) is Error.NONE
    await node.stop()
    files.set_fault_hook(None)
    again = await started(tmp_path)
    assert again.partitions.get("t", KEPT).log.log_end_offset == 2


async def test_a_rename_that_fails_takes_the_old_directory_offline_and_the_record_is_taken_back(
    tmp_path: Path,
) -> None:
    node = await filled(tmp_path)
    refuse(str(tmp_path / "b") + "/t-1", "rename")
    assert move(node, LOST, tmp_path / "c") is Error.NONE
    await until(lambda: len(node.log_dirs.all()) == 2)
    assert node.partitions.missing("t", LOST) is Error.KAFKA_STORAGE_ERROR
    assert recorded(node, LOST) == ([id_of(tmp_path, "b")], -1)
    assert described(node, "c")[LOST][1:] == (NO_LAG, True)
    await node.stop()
    files.set_fault_hook(None)
    again = await started(tmp_path)
    partition = again.partitions.get("t", LOST)
    await until(lambda: partition.move is None)
    assert partition.log.log_end_offset == 1


async def test_a_future_log_that_cannot_be_opened_takes_its_directory_offline(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    refuse(str(tmp_path / "b") + "/t-2.", "list_directory")
    assert move(node, KEPT, tmp_path / "b") is Error.KAFKA_STORAGE_ERROR
    await until(lambda: len(node.log_dirs.all()) == 2)
    assert node.partitions.get("t", KEPT).move is None


async def recorded_and_not_moved(folder: Path) -> Server:
    """Start a node whose metadata says that LOST is in `a`, though `a` refused the rename. `a` goes on, as it has the
    metadata log."""
    node = await filled(folder)
    refuse_renaming_future(folder / "a")
    assert move(node, LOST, folder / "a") is Error.NONE
    change = node.partitions.get("t", LOST).move
    assert change is not None
    await until(lambda: change.failed)
    assert len(node.log_dirs.all()) == 3
    assert recorded(node, LOST) == ([id_of(folder, "a")], 1)
    return node


async def test_a_record_is_taken_back_where_the_partition_is_in_a_directory_that_fails(
    tmp_path: Path,
) -> None:
    node = await recorded_and_not_moved(tmp_path)
    refuse(str(tmp_path / "b") + "/")
    assert write(node, LOST) is Error.KAFKA_STORAGE_ERROR
    await until(lambda: len(node.log_dirs.all()) == 2)
    assert recorded(node, LOST) == ([id_of(tmp_path, "b")], -1)
    crash(node)
    refuse(str(tmp_path / "b") + "/")
    without = await started(tmp_path)
    assert without.partitions.missing("t", LOST) is Error.KAFKA_STORAGE_ERROR


async def test_a_record_that_could_not_be_taken_back_is_by_the_stop(tmp_path: Path) -> None:
    node = await recorded_and_not_moved(tmp_path)

    def hook(name: str, path: str, size: int) -> None:
        if path.startswith(f"{tmp_path}/b/") or (name == "append" and "__cluster_metadata" in path):
            raise OSError(errno.EIO, "refused", path)

    files.set_fault_hook(hook)
    assert write(node, LOST) is Error.KAFKA_STORAGE_ERROR
    await until(lambda: len(node.log_dirs.all()) == 2)
    assert recorded(node, LOST) == ([id_of(tmp_path, "a")], 1)
    refuse(str(tmp_path / "b") + "/")
    await node.stop()
    without = await started(tmp_path)
    assert without.partitions.missing("t", LOST) is Error.KAFKA_STORAGE_ERROR
    assert recorded(without, LOST) == ([id_of(tmp_path, "b")], -1)


async def test_a_move_that_cannot_be_given_up_is_still_under_way(tmp_path: Path) -> None:
    node = await recorded_and_not_moved(tmp_path)
    refuse_renaming_future(tmp_path / "a", metadata=True)
    assert move(node, LOST, tmp_path / "b") is Error.KAFKA_STORAGE_ERROR
    partition = node.partitions.get("t", LOST)
    assert partition.move is not None
    assert described(node, "a")[LOST][2]
    files.set_fault_hook(None)
    assert move(node, LOST, tmp_path / "b") is Error.NONE
    assert partition.move is None
    assert recorded(node, LOST) == ([id_of(tmp_path, "b")], 1)
    assert LOST not in described(node, "a")
    await node.stop()
    again = await started(tmp_path)
    assert again.partitions.get("t", LOST).directory.path == str(tmp_path / "b")
    assert again.partitions.get("t", LOST).move is None
