"""Rolls, deletions and leader epochs that fail half-way, and how the next start handles them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.errors import Error, KafkaError
from protocol.records.batch import CorruptRecordError
from storage.disk_files import DEFAULT_OPEN_FILES
from storage.files import TornWriteError
from storage.log import segment_recovery as producer_replay
from storage.log.log_state import storage_error
from storage.log.partition_log import PartitionLog
from storage.log.segment import Segment
from tests.support.disk import files
from tests.support.failing_calls import fail
from tests.support.partition_logs import (
    NOW_MS,
    append,
    batch,
    batch_of_bytes,
    file,
    names,
    open_log,
    produced,
    values,
)


@pytest.fixture(autouse=True)
def no_faults_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


def refused(act: Callable[[], object], *failing: tuple[str, str]) -> None:
    """Check that the act is refused while these operations fail. Each fails on paths with its suffix."""

    def hook(name: str, path: str, _size: int) -> None:
        if any(name == operation and path.endswith(suffix) for operation, suffix in failing):
            raise OSError(errno.EMFILE, "Too many open files", path)

    files.set_fault_hook(hook)
    with pytest.raises(KafkaError) as failure:
        act()
    files.set_fault_hook(None)
    assert failure.value.error is Error.KAFKA_STORAGE_ERROR


def almost_full(directory: Path) -> PartitionLog:
    """Return a log that rolls at the next batch of 600 bytes, but not at a small one."""
    log = open_log(directory, segment_bytes=1000)
    append(log, batch_of_bytes(600))
    return log


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("operation", "suffix"),
    [
        ("create", "1.log"),
        ("create", "1.index"),
        ("create", "1.timeindex"),
        ("write_whole", "1.snapshot"),
    ],
)
def test_records_appended_after_a_failed_roll_survive_a_restart(
    tmp_path: Path, operation: str, suffix: str, clean: bool
) -> None:
    log = almost_full(tmp_path)
    refused(lambda: append(log, batch_of_bytes(600)), (operation, suffix))
    assert not [name for name in names(log) if name.startswith("00000000000000000001.") and "log" in name]
    append(log, batch(3))
    log.close(clean=clean)
    again = open_log(tmp_path, clean=clean, segment_bytes=1000)
    assert (again.log_end_offset, len(values(again))) == (4, 4)


def test_a_failed_roll_that_cant_be_taken_back_ends_the_log(tmp_path: Path) -> None:
    log = almost_full(tmp_path)
    refused(lambda: append(log, batch_of_bytes(600)), ("create", "1.timeindex"), ("remove", "1.log"))
    assert isinstance(log.failure, TornWriteError)
    with pytest.raises(KafkaError):
        append(log, batch())


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_segment_within_the_one_before_it_is_dropped_at_a_start(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    for count in (1, 3, 2):
        append(log, batch(count))
    log.close(clean=clean)
    for suffix in (".log", ".index", ".timeindex"):
        file(log, 1, suffix).touch()
    again = open_log(tmp_path, clean=clean, recovery_point=1)
    assert (again.base_offsets, again.log_end_offset, len(values(again))) == ([0], 6, 6)
    assert append(again, batch()).base_offset == 6


def test_an_empty_segment_at_the_end_of_the_one_before_it_stays(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(4))
    log.roll(NOW_MS)
    log.close()
    assert open_log(tmp_path).base_offsets == [0, 4]


def test_segments_that_couldnt_be_deleted_go_at_the_next_pass(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300, retention_ms=10)
    for _ in range(4):
        append(log, batch_of_bytes(200))
    refused(lambda: log.apply_retention(NOW_MS + 1000), ("rename", "2.log"))
    assert (log.log_start_offset, log.base_offsets) == (4, [2, 3, 4])
    assert log.segments.active.base_offset == 4
    assert log.apply_retention(NOW_MS + 1000) == 2
    assert (log.log_start_offset, log.base_offsets) == (4, [4])
    log.close()
    again = open_log(tmp_path)
    assert (again.log_start_offset, again.log_end_offset) == (4, 4)


def test_a_segment_is_gone_though_its_indexes_stay(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300, retention_ms=10)
    append(log, batch_of_bytes(200))
    files.set_fault_hook(fail_rename_of_an_index)
    assert log.apply_retention(NOW_MS + 1000) == 1
    files.set_fault_hook(None)
    log.close()
    again = open_log(tmp_path)
    assert (again.log_start_offset, again.base_offsets) == (1, [1])
    assert not file(again, 0, ".index").exists()


def fail_rename_of_an_index(name: str, path: str, _size: int) -> None:
    if name == "rename" and path.endswith("0.index"):
        raise OSError(errno.EIO, "Input/output error", path)


def test_a_log_start_whose_leader_epochs_cannot_be_written_does_not_move(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(4))
    refused(lambda: log.delete_records_before(3), ("write_whole", "leader-epoch-checkpoint.tmp"))
    assert log.log_start_offset == 0
    assert log.delete_records_before(3) == 3
    assert log.leader_epochs.entries == [(0, 3)]


def test_a_truncation_done_in_part_only_ends_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    for _ in range(4):
        append(log, batch_of_bytes(200))
    refused(lambda: log.truncate_to(0, NOW_MS), ("rename", "2.log"))
    assert log.base_offsets == [0, 1, 2]
    assert log.failure is not None


def test_a_leader_epoch_that_couldnt_be_written_is_written_at_the_next_append(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(), leader_epoch=0)
    refused(lambda: append(log, batch(), leader_epoch=3), ("write_whole", "leader-epoch-checkpoint.tmp"))
    assert log.leader_epochs.entries == [(0, 0)]
    append(log, batch(), leader_epoch=3)
    log.close()
    assert open_log(tmp_path).leader_epochs.entries == [(0, 0), (3, 1)]


def test_a_file_shorter_than_expected_is_an_error_for_the_reader(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    size = log.segments.active.size
    append(log, batch())
    assert len(log.read(0, size, upper_bound=2).records) == size
    with file(log, 0, ".log").open("r+b") as stream:
        stream.truncate(size + 5)
    refused(lambda: log.read(1, 1000, upper_bound=2))


def test_an_unreadable_time_index_prevents_writing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    log.close()
    log = open_log(tmp_path)
    files.limit_open_files(0)
    files.limit_open_files(DEFAULT_OPEN_FILES)
    log.segments.active.max_timestamp_ms = None
    log.segments.active.time_index._last_entry = None
    size = file(log, 0, ".log").stat().st_size
    refused(lambda: append(log, batch(5)), ("open_existing", ".timeindex"))
    assert file(log, 0, ".log").stat().st_size == size == log.segments.active.size


def test_each_kind_of_failure_of_a_log_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path)
    for code in (errno.ENOSPC, errno.ENOSPC, errno.EIO):
        storage_error(log, OSError(code, "no"))
    assert len(caplog.records) == 2


@pytest.mark.parametrize("fails", ["the disk", "memory"])
def test_producer_states_follow_a_cut_before_anything_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    log = open_log(tmp_path)
    append(log, produced(0), leader_epoch=0)
    append(log, produced(1), leader_epoch=1)
    with monkeypatch.context() as patched:
        if fails == "memory":
            fail(patched, producer_replay, "rebuild")
            with pytest.raises(MemoryError):
                log.truncate_to(1, NOW_MS)
        else:
            refused(lambda: log.truncate_to(1, NOW_MS), ("write_whole", "leader-epoch-checkpoint.tmp"))
    log.sync()
    again = append(log, produced(1), leader_epoch=2)
    assert (again.base_offset, again.duplicate) == (1, False)
    assert log.leader_epochs.entries == [(0, 0), (2, 1)]


def test_a_restarted_log_forgets_its_producers_before_anything_is_appended(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, produced(0), leader_epoch=0)
    refused(
        lambda: log.truncate_fully_and_start_at(5, NOW_MS), ("write_whole", "leader-epoch-checkpoint.tmp")
    )
    again = append(log, produced(0), leader_epoch=2)
    assert (again.base_offset, again.duplicate) == (5, False)
    assert log.leader_epochs.entries == [(2, 5)]


@pytest.mark.parametrize("error", [MemoryError(), CorruptRecordError("a bit")])
def test_a_truncation_that_ends_in_its_midst_for_another_reason_ends_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    append(log, batch())
    fail(monkeypatch, Segment, "_reload_max_timestamp", error=error)
    with pytest.raises(KafkaError, match="only partly truncated"):
        log.truncate_to(1, NOW_MS)
    assert log.failure is not None
