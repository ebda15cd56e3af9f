"""A step that has too little memory: whoever it concerns is told, and nothing waits for ever for what was to follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from broker.cleaner.log_cleaner import Cleaning, LogCleaner
from broker.cleaner.passes import SlicedPasses, Throttle
from broker.cleaner.worker_passes import WorkerPasses
from broker.controller import snapshots
from broker.controller.metadata_log import MetadataLog
from broker.disks import moves
from broker.environment.scheduler import LoopScheduler
from broker.replicas.leader import Leader
from broker.server import Server
from coordinator.settings import TransactionSettings
from coordinator.transaction import state_manager
from protocol.errors import BrokenInvariantError, Error
from storage.directory import future_log_copying
from storage.directory import log_directory as future_logs
from storage.directory.directory_checkpoints import CleanerCheckpoint
from storage.log.log_state import Flushing
from storage.log.partition_log import PartitionLog
from tests.node.compacted import append, fill, partition_of, records, until, with_topic
from tests.node.log_dirs import LOST, filled, move
from tests.node.log_dirs import fail as fail_directory
from tests.node.log_dirs import until as until_it_is
from tests.node.metadata_logs import ALWAYS, begin, topic
from tests.node.transactional import Producer, coordinating, markers, state
from tests.support.disk import files
from tests.support.failing_calls import fail
from tests.support.whole_server import clock_of
from tests.support.wishes import tell


class StillWorker:
    """A process that nothing can be sent to. It also stands in for what starts it."""

    killed = False

    def start(self, *_: Any) -> StillWorker:
        return self

    def send(self, _: object) -> None:
        raise MemoryError

    def kill(self, gone: Callable[[], None]) -> None:
        self.killed = True


@pytest.fixture(autouse=True)
def _a_whole_disk_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


# --- producer ids -------------------------------------------------------------------------------------------


async def test_a_block_of_producer_ids_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path)
    with monkeypatch.context() as patch:
        fail(patch, MetadataLog, "append", at=0)
        assert Producer(node).init().error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
        assert Producer(node).init().error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
    assert Producer(node).init().error_code == Error.NONE


# --- markers ------------------------------------------------------------------------------------------------


def settled(node: Server, producer: Producer, word: str = "CompleteCommit") -> None:
    """Check that the transaction ends when its retry is due."""
    assert state(node) == "PrepareCommit"
    clock_of(node).advance_ms(TransactionSettings().retry_backoff_ms)
    node.timers.fire_due()
    assert state(node) == word
    assert producer.begin().epoch > 0


@pytest.mark.parametrize("at", [1, 2])
async def test_a_marker_that_was_not_written_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    for index in range(2):
        producer.send(index=index)
    append = PartitionLog.append
    appended = 0

    def failing(log: PartitionLog, *args: Any, **options: Any) -> Any:
        nonlocal appended
        if log.topic == "t":
            appended += 1
            if appended == at:
                raise MemoryError
        return append(log, *args, **options)

    monkeypatch.setattr(PartitionLog, "append", failing)
    assert producer.end() is Error.NONE
    settled(node, producer)
    assert [len(markers(node, index=index)) for index in range(2)] == [1, 1]


async def test_a_marker_that_lacked_memory_to_report_its_commit_reports_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    advance = Leader.advance
    failed = False

    def failing(leader: Leader) -> None:
        nonlocal failed
        if leader.log.topic == "t" and not failed:
            failed = True
            raise MemoryError
        advance(leader)

    monkeypatch.setattr(Leader, "advance", failing)
    assert producer.end() is Error.NONE
    assert state(node) == "PrepareCommit"
    node.housekeeping.make_up()
    assert state(node) == "CompleteCommit"
    assert len(markers(node)) == 1
    partition = node.partitions.get("t", 0)
    assert partition.log.last_stable_offset == partition.log.high_watermark == partition.log.log_end_offset


async def test_a_broken_invariant_of_one_marker_is_reported_after_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    for index in range(2):
        producer.send(index=index)
    append = PartitionLog.append

    def failing(log: PartitionLog, *args: Any, **options: Any) -> Any:
        if log.topic == "t" and log.partition == 0:
            raise BrokenInvariantError("x")
        return append(log, *args, **options)

    monkeypatch.setattr(PartitionLog, "append", failing)
    with pytest.raises(BrokenInvariantError):
        producer.end()
    assert len(markers(node, index=1)) == 1


async def test_the_end_of_a_transaction_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    fail(monkeypatch, state_manager, "encode_value", at=2)
    with pytest.raises(MemoryError):
        producer.end()
    settled(node, producer)


# --- metadata -----------------------------------------------------------------------------------------------


def test_the_next_snapshot_is_written_though_one_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = begin(tmp_path, ALWAYS)
    before = [*metadata.snapshots.ids]
    fail(monkeypatch, snapshots, "encode_snapshot")
    metadata.append(topic("a"))
    assert metadata.snapshots.ids == before
    assert "too little memory for the snapshot" in caplog.messages[-1]
    metadata.append(topic("b"))
    assert len(metadata.snapshots.ids) == len(before) + 1


def test_a_snapshot_that_fails_otherwise_is_reported_and_the_next_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = begin(tmp_path, ALWAYS)
    before = [*metadata.snapshots.ids]
    fail(monkeypatch, snapshots, "encode_snapshot", error=BrokenInvariantError("x"))
    with pytest.raises(BrokenInvariantError):
        metadata.append(topic("a"))
    metadata.append(topic("b"))
    assert len(metadata.snapshots.ids) == len(before) + 1


def test_the_next_snapshot_is_written_though_one_could_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = begin(tmp_path, ALWAYS)
    before = [*metadata.snapshots.ids]
    fail(monkeypatch, metadata.snapshots, "_background")
    metadata.append(topic("a"))
    assert metadata.snapshots.ids == before
    assert not metadata.snapshots.is_writing
    metadata.append(topic("b"))
    assert len(metadata.snapshots.ids) == len(before) + 1


async def test_a_change_of_the_metadata_is_committed_though_its_sync_had_to_begin_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path)
    node.metadata.commit_when_synced()
    with monkeypatch.context() as patch:
        fail(patch, node.metadata.log, "background")
        node.metadata.append(topic("a"))
    assert "a" in node.metadata.written.topics
    assert "a" not in node.metadata.image.topics
    node.housekeeping.make_up()
    await until(lambda: "a" in node.metadata.image.topics)


@pytest.mark.parametrize("name", ["when_flushed", "flush"])
async def test_records_in_the_metadata_log_are_decided_whatever_their_sync_fails_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Else the same topic could be created twice, which no start could replay."""
    node = await coordinating(tmp_path)
    node.metadata.commit_when_synced()
    with monkeypatch.context() as patch:
        fail(patch, PartitionLog, name)
        with suppress(MemoryError):
            node.metadata.append(topic("a"))
    assert "a" in node.metadata.written.topics
    node.metadata.append(topic("b"))
    await until(lambda: "b" in node.metadata.image.topics)
    assert "a" in node.metadata.image.topics


async def test_a_failed_directory_is_recorded_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await filled(tmp_path)
    fail(monkeypatch, MetadataLog, "append")
    await fail_directory(node)
    assert node.metadata.image.topics["t"].partitions[LOST].leader == node.node_id
    node.log_dir_failures.record()
    assert node.metadata.image.topics["t"].partitions[LOST].leader == -1


# --- what comes again by itself -----------------------------------------------------------------------------


async def test_a_move_between_directories_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "RETRY_S", 0.001)
    node = await filled(tmp_path)
    fail(monkeypatch, future_log_copying, "copy")
    assert move(node, LOST, tmp_path / "c") is Error.NONE
    partition = node.partitions.get("t", LOST)
    await until_it_is(lambda: partition.directory.path == str(tmp_path / "c"))


@pytest.mark.parametrize(
    ("owner", "name"),
    [(PartitionLog, "flush"), (PartitionLog, "when_flushed"), (future_logs, "_sync_names")],
)
async def test_a_move_between_directories_goes_on_where_it_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    monkeypatch.setattr(moves, "RETRY_S", 0.001)
    node = await filled(tmp_path)
    fail(monkeypatch, owner, name)
    assert move(node, LOST, tmp_path / "c") is Error.NONE
    partition = node.partitions.get("t", LOST)
    await until_it_is(lambda: partition.directory.path == str(tmp_path / "c"))
    assert not partition.log.closed


async def test_the_leader_waits_for_a_sync_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await with_topic(tmp_path, flush_messages="1")
    with monkeypatch.context() as patch:
        fail(patch, Flushing, "wait")
        with pytest.raises(MemoryError):
            append(node, b"a")
    append(node, b"b")
    await until(lambda: partition_of(node).log.high_watermark == 2)


@pytest.mark.parametrize(
    ("owner", "name", "at"),
    [
        (Cleaning, "__init__", 1),
        (CleanerCheckpoint, "set", 1),
        (PartitionLog, "replace_segments", 1),
        (PartitionLog, "replace_segments", 2),
        (LogCleaner, "_judge", 0),
        (SlicedPasses, "begin", 1),
    ],
)
async def test_a_requested_compaction_that_lacks_memory_is_reported_and_the_next_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, at: int
) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    partition = partition_of(node)
    told: list[Exception | None] = []
    with monkeypatch.context() as patch:
        fail(patch, owner, name, at=at)
        tell(node.cleaner.clean_now(partition), told.append)
        await until(lambda: told)
    assert isinstance(told[0], MemoryError)
    assert partition not in node.cleaner.uncleanable
    size = partition.log.size
    tell(node.cleaner.clean_now(partition), told.append)
    await until(lambda: len(told) == 2)
    assert told[1] is None
    assert partition.log.size <= size
    assert len(records(node)) < 20


async def test_a_pass_whose_process_cannot_be_notified_leaves_none_running() -> None:
    worker = StillWorker()
    scheduler = LoopScheduler()
    passes = WorkerPasses(worker, scheduler, SlicedPasses(files, scheduler))  # type: ignore[arg-type]
    with pytest.raises(MemoryError):
        passes.begin(None, None, Throttle(1e18, 0.0))  # type: ignore[arg-type]
    assert worker.killed
    assert not passes._busy


async def test_the_next_round_of_the_cleaner_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await with_topic(tmp_path, "log.cleaner.backoff.ms=1", min_cleanable_dirty_ratio="0.1")
    fill(node)
    size = partition_of(node).log.size
    fail(monkeypatch, node.cleaner, "_look_at")
    node.cleaner.look()
    await until(lambda: partition_of(node).log.size < size)
