"""What one round of the cleaner does besides beginning passes, and what it leaves behind."""

from __future__ import annotations

import asyncio
import errno
import mmap
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.cleaner import log_cleaner
from broker.cleaner.choice import is_wanted
from broker.cleaner.log_cleaner import PassEndedError
from broker.cleaner.passes import SlicedPasses, Throttle, Told
from protocol.errors import Error, KafkaError
from storage.cleaning.plan import CleaningPlan
from storage.log.segment import Segment
from tests.node.compacted import checkpoint, cleaned, create, delete, fill, partition_of, until, with_topic
from tests.support.disk import files
from tests.support.whole_server import clock_of, started
from tests.support.wishes import pauses, tell, wishes


class EndlessPasses:
    """Passes, each of which goes on until it is ended."""

    is_gone_at_the_end = True

    def begin(self, plan: CleaningPlan, told: Told, throttle: Throttle) -> EndlessPasses:
        return self

    def end(self, ended: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(ended)

    def rest(self) -> None:
        """Do nothing: there are no idle workers to dismiss."""

    def stop(self) -> bool:
        return self.is_gone_at_the_end


async def test_retention_of_the_others_does_not_wait_for_a_pass(tmp_path: Path) -> None:
    node = await with_topic(tmp_path, min_cleanable_dirty_ratio="0.1")
    create(node, "other", cleanup_policy="compact,delete", retention_bytes="0")
    fill(node)
    fill(node, topic="other")
    node.cleaner._passes = EndlessPasses()
    node.cleaner.look()
    await until(lambda: partition_of(node, "other").log.log_start_offset == 20)
    assert partition_of(node).log.cleaning is not None
    await node.stop()


async def test_a_process_is_let_go_of_after_a_pass_that_was_asked_for_though_the_cleaner_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await with_topic(tmp_path, "log.cleaner.enable=false")
    fill(node)
    rests: list[bool] = []
    monkeypatch.setattr(SlicedPasses, "rest", lambda _passes: rests.append(True))
    assert await cleaned(node) is None
    await until(lambda: rests == [True])
    await node.stop()


async def test_a_request_while_segments_are_swapped_in_is_answered_as_retriable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    with monkeypatch.context() as patched:
        patched.setattr(partition_of(node).log, "replacement", object())
        error = await cleaned(node)
    assert isinstance(error, KafkaError)
    assert error.error is Error.KAFKA_STORAGE_ERROR
    assert await cleaned(node) is None
    await node.stop()


async def test_the_dirtiest_goes_first_and_being_overdue_gives_no_precedence(tmp_path: Path) -> None:
    node = await with_topic(tmp_path, max_compaction_lag_ms="1")
    for name in ("dirty", "overdue"):
        create(node, name, max_compaction_lag_ms="1")
    for name in ("t", "overdue"):
        fill(node, topic=name)
        assert await cleaned(node, name) is None
    await until(lambda: node.cleaner._round is None)
    node.cleaner._passes = EndlessPasses()
    for name in ("t", "dirty", "overdue"):
        fill(node, topic=name)
    clock_of(node).advance_ms(1000)
    for name in ("t", "overdue"):
        cleanable = node.cleaner._judge(partition_of(node, name))
        assert cleanable is not None
        assert is_wanted(cleanable, partition_of(node, name).topic.config)
        assert cleanable.ratio < 1.0
    node.cleaner.look()
    await until(lambda: bool(node.cleaner._under_way))
    assert [*node.cleaner._under_way] == [partition_of(node, "dirty")]
    await node.stop()


@pytest.mark.parametrize("is_gone", [True, False])
async def test_files_of_a_process_that_can_not_be_ended_are_left_to_the_next_start(
    tmp_path: Path, is_gone: bool
) -> None:
    node = await with_topic(tmp_path, min_cleanable_dirty_ratio="0.1")
    fill(node)
    passes = EndlessPasses()
    passes.is_gone_at_the_end = is_gone
    node.cleaner._passes = passes
    node.cleaner.look()
    await until(lambda: partition_of(node).log.cleaning is not None)
    being_written = tmp_path / "t-0" / "00000000000000000000.log.cleaned"
    being_written.touch()
    await node.stop()
    assert being_written.exists() is not is_gone
    node = await started(tmp_path)
    assert not being_written.exists()
    await node.stop()


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE, errno.ENFILE])
async def test_too_many_open_files_or_too_little_memory_is_no_fault_of_the_disk(
    tmp_path: Path, number: int
) -> None:
    node = await with_topic(tmp_path, min_cleanable_dirty_ratio="0.1")
    fill(node)

    def refused(operation: str, path: str, _size: int) -> None:
        if operation == "append" and ".cleaned" in path:
            raise OSError(number, "refused", path)

    reported: list[OSError] = []
    partition_of(node).log.report = reported.append
    files.set_fault_hook(refused)
    node.cleaner.look()
    await until(lambda: partition_of(node) in node.cleaner._resting)
    files.set_fault_hook(None)
    assert reported == []
    assert node.cleaner.uncleanable == {}
    await node.stop()


async def test_a_partition_that_cannot_be_compacted_is_forgotten_once_deleted(tmp_path: Path) -> None:
    node = await started(tmp_path)
    for name in ("deleted", "kept"):
        create(node, name, min_cleanable_dirty_ratio="0.1")
        fill(node, topic=name)
        log_file = min((tmp_path / f"{name}-0").glob("*.log"))
        data = bytearray(log_file.read_bytes())
        data[80] ^= 0xFF
        log_file.write_bytes(data)
    node.cleaner.look()
    await until(lambda: len(node.cleaner.uncleanable) == 2)
    kept = partition_of(node, "kept")
    delete(node, "deleted")
    node.cleaner.look()
    await until(lambda: len(node.cleaner.uncleanable) == 1)
    assert [*node.cleaner.uncleanable] == [kept]
    await node.stop()


async def test_retention_of_many_segments_ends_where_a_pass_has_begun_between_two_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_cleaner, "MOST_DELETED_AT_ONCE", 1)
    node = await with_topic(
        tmp_path, "log.cleaner.enable=false", cleanup_policy="compact,delete", retention_bytes="0"
    )
    fill(node)
    log = partition_of(node).log
    _first, second, third, *_others = log.base_offsets
    turns = node.cleaner._retain(partition_of(node))
    turns.send(None)
    assert log.base_offsets[0] == second
    turns.send(None)
    assert log.base_offsets[0] == third
    node.cleaner._passes = EndlessPasses()
    node.cleaner.clean_now(partition_of(node))
    await until(lambda: log.cleaning is not None)
    assert pauses(turns) == 0
    assert log.base_offsets[0] == third
    await node.stop()


async def test_a_map_for_which_there_is_no_memory_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await with_topic(tmp_path, min_cleanable_dirty_ratio="0.1")
    fill(node)

    def refused(_fd: int, _size: int) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", refused)
        node.cleaner.look()
        await until(lambda: partition_of(node) in node.cleaner._resting)
    assert node.cleaner.uncleanable == {}
    clock_of(node).advance_ms(60_000)
    node.cleaner.look()
    await until(lambda: checkpoint(node) == 20)
    await node.stop()


@pytest.mark.parametrize("lag", ["min.compaction.lag.ms", "max.compaction.lag.ms"])
async def test_the_times_of_a_long_log_are_read_a_segment_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lag: str
) -> None:
    node = await with_topic(tmp_path, "log.cleaner.enable=false", **{lag.replace(".", "_"): "1"})
    fill(node, count=60)
    segments = partition_of(node).log.segments.row
    assert len(segments) > 10
    clock_of(node).advance_ms(10)
    read: set[int] = set()
    method = "first_timestamp_ms" if lag.startswith("max") else "largest_timestamp_ms"
    plain = getattr(Segment, method)

    def reading(segment: Segment) -> int:
        read.add(segment.base_offset)
        return plain(segment)

    monkeypatch.setattr(Segment, method, reading)
    most = before = 0
    for _ in wishes(node.cleaner._a_round()):
        most = max(most, len(read) - before)
        before = len(read)
    assert most == 1
    assert len(read) == len(segments) - 1


async def test_segments_that_go_while_their_times_are_read_are_not_opened_again(tmp_path: Path) -> None:
    node = await with_topic(tmp_path, "log.cleaner.enable=false", max_compaction_lag_ms="1")
    fill(node, count=60)
    clock_of(node).advance_ms(10)
    steps = node.cleaner._a_round()
    steps.send(None)
    delete(node, "t")
    for _ in wishes(steps):
        pass
    assert not node.cleaner.uncleanable
    await node.stop()


async def test_waiters_are_answered_at_a_stop(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    under_way: list[Exception | None] = []
    asked: list[Exception | None] = []
    node.cleaner._passes = EndlessPasses()
    tell(node.cleaner.clean_now(partition_of(node)), under_way.append)
    log = partition_of(node).log
    await until(lambda: log.cleaning is not None)
    tell(node.cleaner.clean_now(partition_of(node)), asked.append)
    await node.stop()
    assert [type(error) for error in (*under_way, *asked)] == [PassEndedError, PassEndedError]
