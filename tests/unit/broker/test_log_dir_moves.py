"""AlterReplicaLogDirs: a partition goes to another of the node's log directories while it is written and read."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.disks import moves
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
from protocol.messages.topics import CreatableTopic
from protocol.records.records import build_batch
from protocol.wire.primitives import uuid_from_text
from storage.checkpoints import read_meta_properties
from storage.log.results import AppendOrigin
from tests.support.disk import files
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin
from tests.support.topics import topics_of
from tests.support.whole_server import crash, handled

NOW_MS = 1_700_000_000_000
DEADLINE_S = 20
RECORDS = 40


@pytest.fixture(autouse=True)
def _a_whole_disk_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "SLICE_BATCHES", 2)
    monkeypatch.setattr(moves, "RETRY_S", 0.001)


async def started(folder: Path, *settings: str) -> Server:
    arguments = ["--port", "0", "-o", "log.dirs=" + ",".join(str(folder / name) for name in "abc")]
    for setting in ("metadata.log.dir=" + str(folder / "m"), *settings):
        arguments += ["-o", setting]
    environment = Environment.of_this_machine(ManualClock(NOW_MS), files)
    return await begin(parse_command_line(arguments, {}).config, environment)


async def filled(folder: Path, *settings: str, **configs: str) -> Server:
    """With a topic of one partition, which is in the directory `a`."""
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
    from protocol.records.records import read_records

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
    """Of the partition, by what their names end with."""
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


def described(node: Server) -> dict[str, tuple[bool, int]]:
    """By directory, (is future, lag) of the partition."""
    answer = handled(
        node, describe_log_dirs, cast(Any, SimpleNamespace()), DescribeLogDirsRequest(topics=None)
    )
    return {
        Path(result.log_dir).name: (partition.is_future_key, partition.offset_lag)
        for result in answer.results
        for topic in result.topics
        for partition in topic.partitions
    }


async def test_a_partition_is_moved_with_all_that_it_has(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    assert move(node, tmp_path / "b") is Error.NONE
    assert (folders(tmp_path, "a"), folders(tmp_path, "b")) == (["t-0"], ["future"])
    assert described(node) == {"a": (False, 0), "b": (True, RECORDS)}
    await moved(node)
    assert (folders(tmp_path, "a"), folders(tmp_path, "b")) == (["delete"], ["t-0"])
    assert described(node) == {"b": (False, 0)}
    assert recorded(node) == id_of(tmp_path, "b")
    append(node, b"more")
    assert values(node) == expected(b"more")
    await node.stop()
    again = await started(tmp_path)
    assert partition_of(again).directory.path == str(tmp_path / "b")
    assert values(again) == expected(b"more")


async def test_what_is_appended_on_the_way_comes_too(tmp_path: Path) -> None:
    node = await filled(tmp_path, "log.segment.bytes=1048576")
    move(node, tmp_path / "b")
    more: list[bytes] = []
    while partition_of(node).move is not None:
        if len(more) < 60:
            more.append(b"more %d" % len(more))
            append(node, more[-1])
        await asyncio.sleep(0)
    assert values(node) == expected(*more)
    assert partition_of(node).log.high_watermark == RECORDS + len(more)


async def test_segments_and_the_log_start_come_about_in_the_new_directory(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    log = partition_of(node).log
    log.roll(NOW_MS)
    append(node, b"more")
    log.delete_records_before(7)
    move(node, tmp_path / "b")
    await moved(node)
    assert partition_of(node).log.log_start_offset == 7
    assert values(node) == expected(b"more", start=7)
    crash(node)  # and is remembered
    again = await started(tmp_path)
    assert values(again) == expected(b"more", start=7)


async def test_producers_and_open_transactions_go_on(tmp_path: Path) -> None:
    unverified = "transaction.partition.verification.enable=false"
    node = await filled(tmp_path, unverified)
    for sequence in range(3):
        append(node, b"p", producer_id=9, producer_epoch=1, base_sequence=sequence, transactional=True)
    before = partition_of(node).log
    assert before.first_unstable_offset == RECORDS
    move(node, tmp_path / "b")
    await moved(node)
    after = partition_of(node).log
    assert after is not before
    assert after.first_unstable_offset == after.last_stable_offset == RECORDS
    append(node, b"p", producer_id=9, producer_epoch=1, base_sequence=1, transactional=True)  # a duplicate
    append(node, b"p", producer_id=9, producer_epoch=1, base_sequence=3, transactional=True)
    assert after.log_end_offset == RECORDS + 4
    crash(node)
    again = await started(tmp_path, unverified)
    assert partition_of(again).log.first_unstable_offset == RECORDS
    append(again, b"p", producer_id=9, producer_epoch=1, base_sequence=4, transactional=True)
    assert partition_of(again).log.log_end_offset == RECORDS + 5


async def test_a_producer_is_known_of_whom_nothing_is_left_to_copy(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    append(node, b"p", producer_id=9, producer_epoch=1, base_sequence=0)
    append(node, b"behind")
    log = partition_of(node).log
    log.delete_records_before(log.log_end_offset - 1)
    move(node, tmp_path / "b")
    await moved(node)
    append(node, b"p", producer_id=9, producer_epoch=1, base_sequence=0)  # a duplicate
    assert values(node) == [b"behind"]
    await node.stop()
    again = await started(tmp_path)
    append(again, b"p", producer_id=9, producer_epoch=1, base_sequence=0)
    assert values(again) == [b"behind"]


async def test_a_log_start_within_a_batch_outlives_a_crash(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    partition = partition_of(node)
    batch = build_batch([(NOW_MS, None, b"%d" % number, ()) for number in range(3)])
    partition.log.append(batch, leader_epoch=partition.leader_epoch, now_ms=NOW_MS)
    partition.leader().advance()
    partition.log.delete_records_before(RECORDS + 1)
    move(node, tmp_path / "b")
    await moved(node)
    crash(node)
    again = await started(tmp_path)
    assert partition_of(again).log.log_start_offset == RECORDS + 1
    assert values(again) == [b"1", b"2"]


async def test_leader_epochs_are_answered_as_before(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    await node.stop()
    node = await started(tmp_path)
    append(node, b"later")
    before = [partition_of(node).log.end_offset_for_epoch(epoch) for epoch in range(-1, 5)]
    move(node, tmp_path / "b")
    await moved(node)
    assert [partition_of(node).log.end_offset_for_epoch(epoch) for epoch in range(-1, 5)] == before


async def test_a_move_is_given_up_where_the_present_directory_is_named(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    move(node, tmp_path / "b")
    assert move(node, tmp_path / "a") is Error.NONE
    assert partition_of(node).move is None
    assert (folders(tmp_path, "a"), folders(tmp_path, "b")) == (["t-0"], ["delete"])
    assert recorded(node) == id_of(tmp_path, "a")
    assert described(node) == {"a": (False, 0)}


async def test_another_destination_takes_the_place_of_the_first(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    move(node, tmp_path / "b")
    await asyncio.sleep(0)
    assert move(node, tmp_path / "c") is Error.NONE
    await moved(node)
    assert [folders(tmp_path, name) for name in "abc"] == [["delete"], ["delete"], ["t-0"]]
    assert values(node) == expected()


async def test_a_partition_goes_to_and_fro(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    for name in "baba":
        assert move(node, tmp_path / name) is Error.NONE
        await moved(node)
        append(node, name.encode())
    assert values(node) == expected(b"b", b"a", b"b", b"a")


async def test_errors_are_kafkas(tmp_path: Path) -> None:
    node = await filled(tmp_path, "cordoned.log.dirs=" + str(tmp_path / "c"))
    assert move(node, tmp_path / "nowhere") is Error.LOG_DIR_NOT_FOUND
    assert move(node, tmp_path / "m") is Error.LOG_DIR_NOT_FOUND
    assert move(node, tmp_path / "c") is Error.INVALID_REPLICA_ASSIGNMENT
    assert move(node, tmp_path / "b", "t", 1) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert move(node, tmp_path / "a") is Error.NONE
    assert partition_of(node).move is None


async def test_a_partition_that_is_not_there_yet_is_created_where_it_was_sent(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    for name in ("b", "c"):
        assert move(node, tmp_path / name, "u") is Error.UNKNOWN_TOPIC_OR_PARTITION
    topics_of(node).create([CreatableTopic(name="u", num_partitions=1, replication_factor=1)])
    assert node.partitions.get("u", 0).directory.path == str(tmp_path / "c")
    assert node.metadata.image.topics["u"].partitions[0].directories == [id_of(tmp_path, "c")]


async def test_a_topic_that_is_deleted_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    move(node, tmp_path / "b")
    await asyncio.sleep(0)
    topics_of(node).delete([node.metadata.image.topics["t"]])
    assert (folders(tmp_path, "a"), folders(tmp_path, "b")) == (["delete"], ["delete"])
    await asyncio.sleep(0)
    assert described(node) == {}


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


async def test_a_future_log_that_says_more_than_the_present_one_begins_anew(tmp_path: Path) -> None:
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
    """From that operation on nothing reaches the disk any more."""
    dead = False

    def hook(name: str, path: str, size: int) -> None:
        nonlocal dead
        dead |= name == operation and path.endswith(end_of_path)
        if dead:
            raise OSError(errno.EIO, "dead", path)

    files.set_fault_hook(hook)


@pytest.mark.parametrize("renamed", ["a/t-0", "-future"])
async def test_a_crash_between_the_renames_leaves_one_that_is_whole(tmp_path: Path, renamed: str) -> None:
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
    """The directory in which the next start finds the partition."""
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


async def test_a_move_keeps_to_its_bytes_by_second(tmp_path: Path) -> None:
    node = await filled(tmp_path, "replica.alter.log.dirs.io.max.bytes.per.second=100")
    move(node, tmp_path / "b")
    change = partition_of(node).move
    assert change is not None
    await until(lambda: change.log.log_end_offset > 0)
    for _ in range(50):
        await asyncio.sleep(0)
    stopped_at = change.log.log_end_offset
    assert stopped_at < RECORDS
    cast(ManualClock, node.clock).advance_ms(1000)
    await until(lambda: change.log.log_end_offset > stopped_at)
    cast(ManualClock, node.clock).advance_ms(1_000_000)
    for _ in range(RECORDS):
        cast(ManualClock, node.clock).advance_ms(10_000)
        await asyncio.sleep(0.001)
    await moved(node)
    assert values(node) == expected()


async def test_a_rename_that_fails_leaves_the_partition_where_it_is_and_is_tried_again(
    tmp_path: Path,
) -> None:
    node = await filled(tmp_path, f"metadata.log.dir={tmp_path / 'b'}")  # which isn't lost for it

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


async def test_a_log_on_its_way_is_flushed_and_kept_short_as_others_are(tmp_path: Path) -> None:
    node = await filled(
        tmp_path, "replica.alter.log.dirs.io.max.bytes.per.second=1", "log.flush.interval.ms=10"
    )
    clock = cast(ManualClock, node.clock)
    move(node, tmp_path / "b")
    change = partition_of(node).move
    assert change is not None
    await until(lambda: change.log.log_end_offset > 0)
    clock.advance_ms(10)
    node.housekeeping.flush_due_logs()
    await until(lambda: change.log.recovery_point == change.log.log_end_offset)
    clock.advance_ms(node.config.get_int("log.retention.hours") * 3_600_000 + 1)
    node.housekeeping.enforce_retention()
    assert change.log.log_start_offset == change.log.log_end_offset > 0


async def test_who_waits_for_the_disk_is_told_across_the_change(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    told: list[Exception | None] = []
    log = partition_of(node).log
    log.when_flushed(log.log_end_offset, told.append)
    move(node, tmp_path / "b")
    await moved(node)
    await until(lambda: bool(told))
    assert told == [None]
