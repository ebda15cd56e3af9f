"""How a node compacts its logs: in rounds and on request, what ends a pass, and what can't be compacted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.cleaner.log_cleaner import PassEndedError
from protocol.errors import Error, KafkaError
from protocol.records.batch import ABORT, build_end_txn_marker
from storage.background import Then
from storage.cleaning.plan import CleanedSegment
from storage.log.log_state import AppendOrigin
from storage.log.partition_log import PartitionLog
from tests.node.compacted import (
    append,
    batches,
    checkpoint,
    cleaned,
    create,
    delete,
    fill,
    partition_of,
    records,
    until,
    with_topic,
)
from tests.node.test_altered_settings import BROKER, SET, TOPIC, alter, delete_before
from tests.support.disk import files
from tests.support.whole_server import clock_of, crash, started
from tests.support.wishes import tell

LAST = {17: (b"k2", b"17"), 18: (b"k0", b"18"), 19: (b"k1", b"19")}


async def test_the_latest_record_of_each_key_stays(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    before = partition_of(node).log.size
    assert await cleaned(node) is None
    assert records(node) == LAST
    assert partition_of(node).log.size < before / 2
    assert checkpoint(node) == 20


async def test_the_active_segment_is_compacted_only_where_it_is_asked_for(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    for _ in range(2):
        append(node, b"k")
    assert await cleaned(node) is None
    assert len(records(node)) == 2
    assert checkpoint(node) is None
    assert await cleaned(node, roll=True) is None
    assert list(records(node)) == [1]


async def test_a_dirty_log_is_compacted_without_a_request_and_a_less_dirty_one_is_not(
    tmp_path: Path,
) -> None:
    node = await with_topic(tmp_path, min_cleanable_dirty_ratio="0.5")
    create(node, "clean", min_cleanable_dirty_ratio="1.0")
    fill(node)
    fill(node, topic="clean")
    node.cleaner.look()
    await until(lambda: checkpoint(node) == 20)
    assert records(node) == LAST
    assert checkpoint(node, "clean") is None
    assert len(records(node, "clean")) == 20


async def test_all_dirty_logs_are_compacted_one_after_the_other(tmp_path: Path) -> None:
    node = await started(tmp_path)
    names = ["a", "b", "c", "d"]
    for name in names:
        create(node, name, min_cleanable_dirty_ratio="0.1")
        fill(node, topic=name)
    node.cleaner.look()
    await until(lambda: all(checkpoint(node, name) == 20 for name in names))
    assert all(records(node, name) == LAST for name in names)


async def test_the_next_pass_need_not_wait_until_the_one_before_is_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(tmp_path)
    names = ["a", "b", "c", "d"]
    for name in names:
        create(node, name, min_cleanable_dirty_ratio="0.1")
        fill(node, topic=name)
    waiting: list[Callable[[], None]] = []
    replace = PartitionLog.replace_segments

    def wait(log: PartitionLog, cleaned: CleanedSegment, then: Then) -> None:
        waiting.append(lambda: replace(log, cleaned, then))

    monkeypatch.setattr(PartitionLog, "replace_segments", wait)
    node.cleaner.look()
    await until(lambda: len(waiting) == 2)
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(waiting) == 2  # no more than one for each thread, beside those that are gone through
    monkeypatch.undo()
    for put_in_place in waiting:
        put_in_place()
    await until(lambda: all(checkpoint(node, name) == 20 for name in names))
    assert all(records(node, name) == LAST for name in names)


async def test_compaction_is_remembered_after_a_restart(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    await cleaned(node)
    await node.stop()
    node = await started(tmp_path)
    assert checkpoint(node) == 20
    assert records(node) == LAST


async def test_compaction_is_remembered_after_a_crash(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    await cleaned(node)
    file = tmp_path / "cleaner-offset-checkpoint"
    await until(lambda: file.exists() and "t 0 20" in file.read_text())
    crash(node)
    node = await started(tmp_path)
    assert checkpoint(node) == 20
    assert records(node) == LAST


async def test_a_tombstone_goes_in_the_second_pass_after_its_time(tmp_path: Path) -> None:
    node = await with_topic(tmp_path, delete_retention_ms="1000")
    append(node, b"k")
    append(node, b"k", None)
    assert await cleaned(node, roll=True) is None
    assert list(records(node)) == [1]
    append(node, b"other")
    assert await cleaned(node, roll=True) is None
    assert list(records(node)) == [1, 2]
    clock_of(node).advance_ms(1000)
    assert await cleaned(node) is None
    assert list(records(node)) == [2]


async def test_an_open_transaction_limits_compaction(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    fill(node, 6)
    partition_of(node).log.verifies_transactions = False
    append(node, b"k0", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    fill(node)
    assert await cleaned(node) is None
    assert checkpoint(node) == 6
    assert list(records(node))[:4] == [3, 4, 5, 6]


async def test_a_map_that_is_full_takes_several_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await with_topic(tmp_path)
    for number in range(40):
        append(node, b"k%d" % (number % 11))
    partition_of(node).log.roll(node.clock.now_ms())
    monkeypatch.setattr(node.cleaner, "_settings", node.cleaner._settings._replace(max_keys=4))
    assert await cleaned(node) is None
    assert list(records(node)) == [*range(29, 40)]
    assert checkpoint(node) == 40


async def test_records_appended_during_compaction_are_kept(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    done: list[Exception | None] = []
    tell(node.cleaner.clean_now(partition_of(node)), done.append)
    offset = 20
    while not done:
        assert append(node, b"k0", b"%d" % offset) == offset
        offset += 1
        await asyncio.sleep(0)
    assert done == [None]
    found = records(node)
    assert {key: found[key] for key in LAST} == LAST
    assert list(found)[3:] == [*range(20, offset)]


# --- what ends a pass


async def test_a_pass_over_a_deleted_topic_ends(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    done: list[Exception | None] = []
    tell(node.cleaner.clean_now(partition_of(node)), done.append)
    log = partition_of(node).log
    await until(lambda: log.cleaning is not None)
    delete(node, "t")
    await until(lambda: bool(done))
    assert isinstance(done[0], PassEndedError)
    create(node, "t")
    assert checkpoint(node) is None
    fill(node)
    assert await cleaned(node) is None
    assert records(node) == LAST


async def test_truncation_ends_a_pass_and_lowers_the_checkpoint(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    await cleaned(node)
    append(node, b"k0")
    done: list[Exception | None] = []
    tell(node.cleaner.clean_now(partition_of(node), roll=True), done.append)
    log = partition_of(node).log
    await until(lambda: log.cleaning is not None)
    log.truncate_to(18, node.clock.now_ms())
    await until(lambda: bool(done))
    assert isinstance(done[0], PassEndedError)
    bound = checkpoint(node)
    assert bound is not None
    assert bound <= 18


async def test_nothing_is_left_of_a_pass_that_the_stop_of_the_node_ended(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    fill(node, 200)
    node.cleaner.clean_now(partition_of(node))
    log = partition_of(node).log
    await until(lambda: log.cleaning is not None)
    await node.stop()
    assert not [*tmp_path.rglob("*.cleaned")]
    node = await started(tmp_path)
    assert len(records(node)) == 200


# --- settings


async def test_with_the_cleaner_off_only_requested_compaction_happens(tmp_path: Path) -> None:
    node = await with_topic(tmp_path, "log.cleaner.enable=false", min_cleanable_dirty_ratio="0.0")
    fill(node)
    node.cleaner.look()
    assert node.cleaner._next is None
    assert await cleaned(node) is None
    assert records(node) == LAST


async def test_a_changed_setting_ends_the_pass_which_is_made_again(tmp_path: Path) -> None:
    node = await with_topic(tmp_path, min_cleanable_dirty_ratio="0.1")
    fill(node)
    log = partition_of(node).log
    node.cleaner.look()
    await until(lambda: log.cleaning is not None)
    assert alter(node, BROKER, "", ("log.cleaner.io.buffer.load.factor", SET, "0.5")) is Error.NONE
    assert log.cleaning is None
    assert checkpoint(node) == 0
    await until(lambda: checkpoint(node) == 20)
    assert records(node) == LAST


async def test_a_topic_that_becomes_compacted_is_so_from_its_log_start_on(tmp_path: Path) -> None:
    node = await with_topic(tmp_path, cleanup_policy="delete")
    fill(node)
    error = await cleaned(node)
    assert isinstance(error, KafkaError)
    assert error.error is Error.POLICY_VIOLATION
    assert alter(node, TOPIC, "t", ("cleanup.policy", SET, "compact")) is Error.NONE
    assert await cleaned(node) is None
    assert records(node) == LAST


# --- retention


async def test_retention_of_a_compacted_log_is_the_cleaners(tmp_path: Path) -> None:
    node = await with_topic(tmp_path, cleanup_policy="compact,delete", retention_bytes="0")
    fill(node)
    node.housekeeping.enforce_retention()
    assert partition_of(node).log.log_start_offset == 0
    node.cleaner.look()
    await until(lambda: partition_of(node).log.log_start_offset == 20)


async def test_records_that_were_deleted_free_their_segments_though_the_log_is_only_compacted(
    tmp_path: Path,
) -> None:
    node = await with_topic(tmp_path, cleanup_policy="compact,delete")
    fill(node)
    assert delete_before(node, "t", 12) == (Error.NONE, 12)
    alter(node, TOPIC, "t", ("cleanup.policy", SET, "compact"))
    node.cleaner.look()
    await until(lambda: partition_of(node).log.base_offsets[0] > 0)
    assert next(iter(records(node))) >= 12


async def test_a_checkpoint_below_the_log_start_follows_it_at_once(tmp_path: Path) -> None:
    node = await with_topic(tmp_path, cleanup_policy="compact,delete")
    fill(node)
    await cleaned(node)
    fill(node)
    assert delete_before(node, "t", 30) == (Error.NONE, 30)
    node.cleaner.look()
    await until(lambda: checkpoint(node) == 30)


# --- what can't be compacted


async def test_a_partition_that_cannot_be_compacted_is_reported_and_left_alone_until_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = await with_topic(tmp_path, min_cleanable_dirty_ratio="0.0", cleanup_policy="compact,delete")
    fill(node)
    log_file = min((tmp_path / "t-0").glob("*.log"))
    data = bytearray(log_file.read_bytes())
    data[80] ^= 0xFF
    log_file.write_bytes(data)
    with caplog.at_level(logging.ERROR, "barnabas.cleaner"):
        node.cleaner.look()
        await until(lambda: partition_of(node) in node.cleaner.uncleanable)
    assert "can't compact" in caplog.text
    assert checkpoint(node) == 0
    error = await cleaned(node)
    assert isinstance(error, KafkaError)
    assert delete_before(node, "t", 12) == (Error.NONE, 12)
    node.cleaner.look()
    await until(lambda: node.cleaner._round is None)
    assert partition_of(node).log.base_offsets[0] == 0
    delete(node, "t")
    create(node, "t")
    fill(node)
    assert await cleaned(node) is None


async def test_a_disk_that_refuses_leaves_the_log_as_it_is_and_it_is_compacted_later(tmp_path: Path) -> None:
    node = await with_topic(tmp_path, min_cleanable_dirty_ratio="0.0")
    fill(node)

    def full(operation: str, path: str, _size: int) -> None:
        if operation == "append" and ".cleaned" in path:
            raise OSError(28, "No space left on device", path)

    files.set_fault_hook(full)
    node.cleaner.look()
    # wait until nothing of the pass is left: else the next round skips the log, and another comes only in 15 s
    partition = partition_of(node)
    await until(lambda: partition in node.cleaner._resting and partition.log.replacement is None)
    assert LAST.items() <= records(node).items()
    assert not [*tmp_path.rglob("*.cleaned")]
    files.set_fault_hook(None)
    clock_of(node).advance_ms(60_000)
    node.cleaner.look()
    await until(lambda: checkpoint(node) == 20)
    assert records(node) == LAST
    assert batches(node)[-1][0] == 19


async def test_without_a_snapshot_the_rest_of_a_marker_tells_its_producers_epoch(
    tmp_path: Path,
) -> None:
    node = await with_topic(tmp_path, delete_retention_ms="0")
    partition_of(node).log.verifies_transactions = False
    for number in range(2):
        append(
            node,
            b"k",
            b"%d" % number,
            producer_id=7,
            producer_epoch=number,
            base_sequence=0,
            transactional=True,
        )
        marker = build_end_txn_marker(
            ABORT,
            coordinator_epoch=3,
            producer_id=7,
            producer_epoch=number + 1,
            timestamp=node.clock.now_ms(),
        )
        partition_of(node).log.append(
            marker, leader_epoch=-1, now_ms=node.clock.now_ms(), origin=AppendOrigin.COORDINATOR
        )
        partition_of(node).leader().advance()
    for _ in range(4):
        clock_of(node).advance_ms(1000)
        append(node, b"other")
        assert await cleaned(node, roll=True) is None
    [marker_left, *_] = batches(node)
    assert marker_left == (3, 0)
    crash(node)
    for snapshot in tmp_path.rglob("*.snapshot"):
        snapshot.unlink()
    node = await started(tmp_path)
    producer = partition_of(node).log.producers.producers[7]
    assert (producer.epoch, producer.last_data_offset, producer.txn_first_offset) == (2, -1, -1)
