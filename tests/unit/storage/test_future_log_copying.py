"""Moving a log to another directory: where a future log continues, and what it takes over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import Error, KafkaError
from storage.directory import future_log_copying
from storage.directory.log_directory import LogDirectory
from storage.log.log_config import LogConfig
from storage.log.partition_log import PartitionLog
from tests.support.disk import files
from tests.support.immediate_background import run_at_once
from tests.support.partition_logs import NOW_MS, TOPIC_ID, HeldBackground, append, batch, open_log, values
from tests.unit.storage.future_logs import PLENTY, begun, copied, filled, take_over


@pytest.fixture(autouse=True)
def no_faults_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


def test_extra_records_of_a_found_future_log_are_cut_off_and_the_rest_stays(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0", b"1")
    filled(tmp_path / "b", b"0", b"1", b"lost").close()
    append(present, batch(values=[b"2"]), leader_epoch=2)
    future = begun(tmp_path / "b", present)
    assert future.log_end_offset == 2
    copied(future, present)
    assert values(future) == [b"0", b"1", b"2"]


def test_a_found_future_log_with_another_epoch_starts_over(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0", b"1")
    other = open_log(tmp_path / "b")
    append(other, batch(values=[b"other"]), leader_epoch=7)
    other.close()
    future = begun(tmp_path / "b", present)
    assert future.log_end_offset == 0
    copied(future, present)
    assert values(future) == [b"0", b"1"]


def test_a_future_log_with_a_later_start_can_still_take_over(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0", b"1", b"2")
    future = begun(tmp_path / "b", present)
    copied(future, present)
    future.delete_records_before(2)
    assert future_log_copying.is_caught_up(future, present)
    take_over(future, present)
    assert values(future) == [b"2"]


def test_a_pending_flush_is_finished_by_the_log_that_takes_over(tmp_path: Path) -> None:
    background = HeldBackground()
    present = filled(tmp_path / "a", b"0", b"1", background=background)
    future = begun(tmp_path / "b", present)
    copied(future, present)
    told: list[Exception | None] = []
    present.flush(NOW_MS)
    present.when_flushed(2, told.append)
    take_over(future, present)
    background.run_all()
    assert told == [None]
    assert future.recovery_point == 2


def test_the_first_rename_is_synced_before_the_second_one(tmp_path: Path) -> None:
    """With two disks, a power loss may keep only the second rename. Then both disks would have the partition."""
    present = filled(tmp_path / "a", b"0")
    future = begun(tmp_path / "b", present)
    copied(future, present)
    done: list[tuple[str, str]] = []

    def hook(operation: str, path: str, size: int) -> None:
        if operation in ("rename", "sync_directory"):
            done.append((operation, str(Path(path).relative_to(tmp_path))))

    files.set_fault_hook(hook)
    take_over(future, present)
    files.set_fault_hook(None)
    assert done[:3] == [("rename", "a/orders-0"), ("sync_directory", "a"), ("rename", "b/orders-0")]


def test_a_folder_without_a_segment_after_a_power_loss_is_removed_too(tmp_path: Path) -> None:
    filled(tmp_path / "a", b"0").close(clean=False)
    for path in (tmp_path / "a" / "orders-0").glob("*.log"):
        path.unlink()
    present = open_log(tmp_path / "a", clean=False)
    assert not present.created
    future = begun(tmp_path / "b", present)
    take_over(future, present)
    assert not (tmp_path / "a" / "orders-0").exists()


def test_a_rename_is_undone_if_the_disk_refuses_to_sync_it(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0")
    future = begun(tmp_path / "b", present)
    copied(future, present)

    def hook(operation: str, path: str, size: int) -> None:
        if operation == "sync_directory":
            raise OSError(5, "refused", path)

    files.set_fault_hook(hook)
    with pytest.raises(KafkaError):
        take_over(future, present)
    files.set_fault_hook(None)
    append(present, batch(values=[b"1"]))
    assert values(present) == [b"0", b"1"]


@pytest.mark.parametrize("refusing", ["a", "b"])
def test_the_directory_that_refuses_the_rename_reports_the_failure(tmp_path: Path, refusing: str) -> None:
    present = filled(tmp_path / "a", b"0")
    future = begun(tmp_path / "b", present)
    copied(future, present)
    told: list[str] = []
    present.report = lambda failure: told.append("a")
    future.report = lambda failure: told.append("b")

    def hook(operation: str, path: str, size: int) -> None:
        if operation == "rename" and path == str(tmp_path / refusing / "orders-0"):
            raise OSError(5, "refused", path)

    files.set_fault_hook(hook)
    with pytest.raises(KafkaError) as refused:
        take_over(future, present)
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    assert told == [refusing]
    append(present, batch(values=[b"1"]))
    assert values(present) == [b"0", b"1"]


def test_no_directory_has_both_a_partition_and_its_future_log(tmp_path: Path) -> None:
    source, there = (
        LogDirectory.open(str(tmp_path / name), files=files, background=run_at_once) for name in "ab"
    )
    present = source.open_log("orders", 0, LogConfig(), now_ms=NOW_MS, topic_id=TOPIC_ID)
    append(present, batch())
    with pytest.raises(AssertionError):
        source.open_future(present, "0" * 32, now_ms=NOW_MS)
    there.open_future(present, "0" * 32, now_ms=NOW_MS)
    with pytest.raises(AssertionError):
        there.open_log("orders", 0, LogConfig(), now_ms=NOW_MS, topic_id=TOPIC_ID)
    for directory in (source, there):
        directory.close()


def test_a_future_log_keeps_the_high_watermark_of_the_present_log_after_it_is_left(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0", b"1")
    present.append(batch(values=[b"not replicated"]), leader_epoch=0, now_ms=NOW_MS)
    directory = LogDirectory.open(str(tmp_path / "b"), files=files, background=run_at_once)
    future = directory.open_future(present, "0" * 32, now_ms=NOW_MS)
    copied(future, present)
    assert (future.high_watermark, future.log_end_offset) == (2, 3)
    directory.leave_future(future)
    directory.checkpoint_high_watermarks()
    assert (tmp_path / "b" / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
    directory.close()
    again = LogDirectory.open(str(tmp_path / "b"), files=files, background=run_at_once)
    found = again.open_future(present, "1" * 32, now_ms=NOW_MS)
    assert (found.high_watermark, found.log_end_offset) == (2, 3)
    again.close()


def test_a_future_log_is_left_without_a_sync_and_the_end_of_the_run_syncs_it(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0", b"1")
    directory = LogDirectory.open(str(tmp_path / "b"), files=files, background=run_at_once)
    future = directory.open_future(present, "0" * 32, now_ms=NOW_MS)
    copied(future, present)
    synced: list[str] = []

    def hook(name: str, path: str, size: int) -> None:
        if name.startswith("sync"):
            synced.append(path)

    files.set_fault_hook(hook)
    directory.leave_future(future)
    assert synced == []
    assert [folder.path for folder in directory.future_folders()] == [future.directory]
    assert future.recovery_point == 0
    directory.close()
    assert any(path.startswith(f"{future.directory}/") and path.endswith(".log") for path in synced)

    again = LogDirectory.open(str(tmp_path / "b"), files=files, background=run_at_once)
    assert again.clean
    assert values(again.open_future(present, "1" * 32, now_ms=NOW_MS)) == [b"0", b"1"]
    again.close()


def test_a_future_log_that_was_left_is_discarded_with_its_folder(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0")
    directory = LogDirectory.open(str(tmp_path / "b"), files=files, background=run_at_once)
    future = directory.open_future(present, "0" * 32, now_ms=NOW_MS)
    copied(future, present)
    directory.leave_future(future)
    [folder] = directory.future_folders()
    directory.discard_future(folder, "1" * 32)
    assert future.closed
    assert not Path(folder.path).exists()
    directory.close()
    assert LogDirectory.open(str(tmp_path / "b"), files=files, background=run_at_once).clean


def cut_and_refilled(present: PartitionLog, offset: int, *written: bytes, epoch: int = 1) -> None:
    """Truncate and refill the log, as a follower does when its leader corrects it."""
    present.truncate_to(offset, NOW_MS)
    for value in written:
        append(present, batch(values=[value]), leader_epoch=epoch)


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_future_log_loses_what_the_present_log_lost_even_if_both_are_equally_long_again(
    tmp_path: Path, epoch: int
) -> None:
    present = filled(tmp_path / "a", b"0", b"1", b"2", b"lost")
    future = begun(tmp_path / "b", present)
    copied(future, present)
    cut_and_refilled(present, 3, b"kept", epoch=epoch)
    future_log_copying.copy(future, present, max_bytes=PLENTY, max_batches=PLENTY, now_ms=NOW_MS)
    assert future_log_copying.is_caught_up(future, present)
    assert values(future) == [b"0", b"1", b"2", b"kept"]
    assert future.leader_epochs.entries == present.leader_epochs.entries


def test_a_future_log_follows_a_present_log_that_became_shorter(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0", b"1", b"lost", b"lost too")
    future = begun(tmp_path / "b", present)
    copied(future, present)
    present.truncate_to(2, NOW_MS)
    assert future_log_copying.follow_cut(future, present, NOW_MS)
    assert future_log_copying.is_caught_up(future, present)
    assert not future_log_copying.follow_cut(future, present, NOW_MS)
    take_over(future, present)
    assert values(future) == [b"0", b"1"]


def test_the_lowest_of_several_cuts_counts(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0", b"lost", b"lost")
    future = begun(tmp_path / "b", present)
    copied(future, present)
    cut_and_refilled(present, 1, b"1", b"lost", b"lost")
    cut_and_refilled(present, 3, b"3", epoch=2)
    cut_and_refilled(present, 2, b"2", b"3", epoch=3)
    copied(future, present)
    future_log_copying.copy(future, present, max_bytes=PLENTY, max_batches=PLENTY, now_ms=NOW_MS)
    assert values(future) == values(present) == [b"0", b"1", b"2", b"3"]


def test_records_that_were_not_copied_yet_may_be_cut_off(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0", b"1", b"2", b"lost")
    future = begun(tmp_path / "b", present)
    future_log_copying.copy(future, present, max_bytes=PLENTY, max_batches=2, now_ms=NOW_MS)
    cut_and_refilled(present, 3, b"kept")
    assert future_log_copying.follow_cut(future, present, NOW_MS)
    assert (future.log_end_offset, future.cut) == (2, None)
    copied(future, present)
    assert values(future) == values(present) == [b"0", b"1", b"2", b"kept"]


@pytest.mark.parametrize("start", [1, 3, 7])
def test_a_future_log_starts_over_when_the_present_log_does(tmp_path: Path, start: int) -> None:
    present = filled(tmp_path / "a", b"0", b"1", b"2")
    future = begun(tmp_path / "b", present)
    copied(future, present)
    present.truncate_fully_and_start_at(start, NOW_MS)
    append(present, batch(values=[b"new"]), leader_epoch=1)
    append(present, batch(values=[b"newer"]), leader_epoch=1)
    future_log_copying.copy(future, present, max_bytes=PLENTY, max_batches=PLENTY, now_ms=NOW_MS)
    assert future_log_copying.is_caught_up(future, present)
    assert (future.log_start_offset, values(future)) == (start, [b"new", b"newer"])


def test_a_cut_below_the_start_of_a_future_log_copies_it_again(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0", b"1", b"2", b"lost")
    future = begun(tmp_path / "b", present)
    copied(future, present)
    future.delete_records_before(3)
    cut_and_refilled(present, 2, b"kept")
    copied(future, present)
    assert values(future) == values(present) == [b"0", b"1", b"kept"]


def test_a_cut_before_the_move_does_not_affect_it(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0", b"1", b"lost")
    cut_and_refilled(present, 2, b"2", b"3")
    present.delete_records_before(3)
    future = begun(tmp_path / "b", present)
    assert not future_log_copying.follow_cut(future, present, NOW_MS)


def test_a_found_future_log_is_cut_where_the_logs_diverge_in_an_earlier_epoch(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0", b"1")
    other = filled(tmp_path / "b", b"0", b"1")
    append(other, batch(values=[b"lost"]), leader_epoch=1)
    other.close()
    append(present, batch(values=[b"2"]), leader_epoch=2)
    future = begun(tmp_path / "b", present)
    assert future.log_end_offset == 2
    copied(future, present)
    assert values(future) == [b"0", b"1", b"2"]


def test_logs_of_the_same_length_with_other_epochs_are_not_equal(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0", b"1")
    future = begun(tmp_path / "b", present)
    copied(future, present)
    cut_and_refilled(present, 1, b"1")
    assert not future_log_copying.is_caught_up(future, present)


def test_the_checkpoint_follows_a_cut_of_the_future_log(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", b"0", b"lost", b"lost")
    directory = LogDirectory.open(str(tmp_path / "b"), files=files, background=run_at_once)
    future = directory.open_future(present, "0" * 32, now_ms=NOW_MS)
    copied(future, present)
    future.flush(NOW_MS)
    directory.checkpoint_recovery_points()
    checkpoint = tmp_path / "b" / "recovery-point-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\norders 0 2\n"  # at the log's end it is one less
    present.truncate_to(1, NOW_MS)
    future_log_copying.follow_cut(future, present, NOW_MS)
    assert checkpoint.read_text() == "0\n1\norders 0 0\n"
    directory.close()


def test_a_found_future_log_that_is_cut_below_its_start_lowers_its_checkpoint(tmp_path: Path) -> None:
    present = filled(tmp_path / "a", *(b"lost" for _ in range(10)))
    directory = LogDirectory.open(str(tmp_path / "b"), files=files, background=run_at_once)
    future = directory.open_future(present, "0" * 32, now_ms=NOW_MS)
    copied(future, present)
    future.delete_records_before(8)
    directory.checkpoint_log_starts()
    checkpoint = tmp_path / "b" / "log-start-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\norders 0 8\n"
    directory.close(clean=False)
    cut_and_refilled(present, 3, b"kept")  # the future log isn't open meanwhile
    again = LogDirectory.open(str(tmp_path / "b"), files=files, background=run_at_once)
    found = again.open_future(present, "1" * 32, now_ms=NOW_MS)
    assert found.log_start_offset <= 3
    assert "orders 0 8" not in checkpoint.read_text()
    again.close(clean=False)
