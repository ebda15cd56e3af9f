"""AlterReplicaLogDirs: a partition goes to another of the node's log directories while it is written and read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from broker.controller.image import UNASSIGNED
from broker.disks import moves
from broker.server import Server
from protocol.errors import Error
from protocol.messages.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.messages.topics import CreatableTopic
from protocol.records.batch import build_batch
from tests.node.log_dir_moves import (
    NOW_MS,
    RECORDS,
    append,
    catch_up,
    described,
    expected,
    filled,
    folders,
    id_of,
    lag,
    move,
    moved,
    partition_of,
    recorded,
    started,
    until,
    values,
)
from tests.support.disk import files
from tests.support.manual_clock import ManualClock
from tests.support.topics import topics_of
from tests.support.whole_server import crash, take_turns


@pytest.fixture(autouse=True)
def _a_whole_disk_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "SLICE_BATCHES", 2)
    monkeypatch.setattr(moves, "RETRY_S", 0.001)


async def test_a_move_takes_all_of_a_partition_along(tmp_path: Path) -> None:
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


async def test_records_appended_during_a_move_come_too(tmp_path: Path) -> None:
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
    crash(node)  # the start offset is remembered
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


async def test_a_producer_without_records_left_to_copy_stays_known(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("assigning", [False, True], ids=["on the way", "about to change places"])
async def test_another_destination_is_begun_once_giving_up_the_first_is_committed(
    tmp_path: Path, assigning: bool
) -> None:
    node = await filled(tmp_path)
    lag(node)
    move(node, tmp_path / "b")
    first = partition_of(node).move
    assert first is not None
    if assigning:
        await until(lambda: first.assigning)
    assert move(node, tmp_path / "c") is Error.NONE
    for _ in range(100):  # slices enough to arrive
        await asyncio.sleep(0)
    assert first.assigning is assigning
    assert partition_of(node).move is first
    assert [len(folders(tmp_path, name)) for name in "abc"] == [1, 1, 0]
    assert directory_that_is_written(node) == id_of(tmp_path, "a")
    catch_up(node)
    await moved(node)
    assert [folders(tmp_path, name) for name in "abc"] == [["delete"], ["delete"], ["t-0"]]
    assert recorded(node) == id_of(tmp_path, "c")
    assert values(node) == expected()


async def test_the_last_of_several_wishes_counts_while_a_move_is_being_given_up(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    lag(node)
    for name in "bcb":
        assert move(node, tmp_path / name) is Error.NONE
    catch_up(node)
    await moved(node)
    assert recorded(node) == id_of(tmp_path, "b")
    lag(node)
    for name in "cab":
        assert move(node, tmp_path / name) is Error.NONE
    catch_up(node)
    take_turns(node)
    assert partition_of(node).move is None
    assert recorded(node) == id_of(tmp_path, "b")
    assert values(node) == expected()


async def test_a_move_goes_on_if_giving_it_up_could_not_be_recorded(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    lag(node)
    move(node, tmp_path / "b")
    assert move(node, tmp_path / "c") is Error.NONE
    node.metadata.resign()
    take_turns(node)
    first = partition_of(node).move
    assert first is not None
    assert not first.cancelling
    node.metadata.become_leader(node.node_id)
    catch_up(node)
    await moved(node)
    assert recorded(node) == id_of(tmp_path, "b")


def directory_that_is_written(node: Server) -> bytes:
    [directory_id] = node.metadata.written.topics["t"].partitions[0].directories
    return directory_id


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


async def test_a_replica_that_another_broker_has_comes_to_where_it_was_sent(tmp_path: Path) -> None:
    """No directory has failed: the replica isn't available here. Once it has come, the request is forgotten."""
    node = await filled(tmp_path)
    topic_id = b"a topic elsewhere"[:16]
    elsewhere = PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=[2], isr=[2], leader=2, directories=[UNASSIGNED]
    )
    node.metadata.append([TopicRecord(name="u", topic_id=topic_id), elsewhere])
    assert move(node, tmp_path / "nowhere", "u") is Error.LOG_DIR_NOT_FOUND
    assert move(node, tmp_path / "c", "u") is Error.REPLICA_NOT_AVAILABLE
    assert move(node, tmp_path / "c", "u", 1) is Error.UNKNOWN_TOPIC_OR_PARTITION

    here = PartitionChangeRecord(
        topic_id=topic_id, partition_id=0, replicas=[2, 1], directories=[UNASSIGNED, UNASSIGNED]
    )
    node.metadata.append([here])
    assert node.partitions.get("u", 0).directory.path == str(tmp_path / "c")
    node.metadata.append([RemoveTopicRecord(topic_id=topic_id)])
    topics_of(node).create([CreatableTopic(name="u", num_partitions=1, replication_factor=1)])
    assert node.partitions.get("u", 0).directory.path != str(tmp_path / "c")
    crash(node)


async def test_a_topic_that_is_deleted_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    move(node, tmp_path / "b")
    await asyncio.sleep(0)
    topics_of(node).delete([node.metadata.image.topics["t"]])
    assert (folders(tmp_path, "a"), folders(tmp_path, "b")) == (["delete"], ["delete"])
    await asyncio.sleep(0)
    assert described(node) == {}


async def test_a_move_keeps_to_its_bytes_by_second(tmp_path: Path) -> None:
    node = await filled(tmp_path, "replica.alter.log.dirs.io.max.bytes.per.second=100")
    clock, size = cast(ManualClock, node.clock), partition_of(node).log.size
    move(node, tmp_path / "b")
    change = partition_of(node).move
    assert change is not None
    began_s, most = clock.monotonic_s(), 0.0
    while partition_of(node).move is change:
        elapsed_s = clock.monotonic_s() - began_s
        if elapsed_s >= 1:  # what came before is measured over a whole second
            most = max(most, change.log.size / elapsed_s)
        clock.advance_ms(100)
        await asyncio.sleep(0.002)
    assert 100 < most < 250  # a slice of two batches came at once
    assert 0.8 * size / 100 < clock.monotonic_s() - began_s < 2 * size / 100
    assert values(node) == expected()


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


async def test_a_waiter_for_the_disk_is_called_across_the_change(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    told: list[Exception | None] = []
    log = partition_of(node).log
    log.when_flushed(log.log_end_offset, told.append)
    move(node, tmp_path / "b")
    await moved(node)
    await until(lambda: bool(told))
    assert told == [None]


async def test_a_log_with_a_hole_that_may_be_filled_stays_where_a_start_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []
    change_places = moves.LogDirMoves._change_places
    monkeypatch.setattr(
        moves.LogDirMoves, "_change_places", lambda *called: (tried.append(called), change_places(*called))
    )
    node = await filled(tmp_path)
    partition = partition_of(node)
    partition.log.hole, partition.log.goes_on_with_hole = 1, False
    assert not partition.may_be_rewritten
    move(node, tmp_path / "b")
    await until(lambda: len(tried) == 3)
    assert partition.move is not None
    partition.log.accept_hole()
    await moved(node)
    assert (partition.log.hole, partition.log.open_hole) == (1, None)
    await node.stop()
