"""A power loss takes records out of the middle of a log. The log remembers the hole until somebody has filled it."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.directory import future_log_copying
from storage.directory.log_directory import LogDirectory
from storage.log.partition_log import PartitionLog
from tests.support.partition_logs import NOW_MS, append, batch, open_log, values
from tests.unit.storage.future_logs import begun, copied, filled, take_over
from tests.unit.storage.log_directories import MARK, log_of, opened


def with_hole(path: Path) -> LogDirectory:
    """Open a directory whose log `orders` has the offsets 0 to 2 without the record at 1."""
    directory = opened(path)
    log = log_of(directory)
    append(log, batch())
    append(log, batch())
    log.roll(NOW_MS)
    append(log, batch())
    directory.close(clean=False)
    first = Path(log.directory) / f"{0:020d}.log"
    first.write_bytes(first.read_bytes()[: first.stat().st_size // 2])
    directory = opened(path)
    log = log_of(directory)
    assert (log.hole, log.open_hole, log.log_end_offset) == (1, 1, 3)
    return directory


@pytest.mark.parametrize("clean", [True, False])
def test_an_unfilled_hole_is_found_again_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    """A follower may be stopped before it has heard from its leader."""
    directory = with_hole(tmp_path)
    log = log_of(directory, "other")
    append(log, batch(5))
    log.update_high_watermark(5)
    log.delete_records_before(3)
    log = directory.logs["orders", 0]
    log.flush(NOW_MS)
    assert log.recovery_point == 3
    directory.checkpoint_recovery_points()
    directory.checkpoint_log_starts()
    directory.close(clean=clean)
    assert not (tmp_path / MARK).exists()
    assert ("lacks records from offset 1 on" in caplog.text) == clean
    directory = opened(tmp_path)
    log = log_of(directory)
    assert (log.hole, log_of(directory, "other").log_start_offset) == (1, 3)
    log.truncate_to(1, NOW_MS)
    directory.close()
    assert (tmp_path / MARK).exists()


def test_the_checkpoints_are_those_of_a_clean_stop_beside_a_hole(tmp_path: Path) -> None:
    directory = with_hole(tmp_path)
    other = log_of(directory, "other")
    append(other, batch(5))
    other.update_high_watermark(5)
    directory.close()
    assert log_of(opened(tmp_path), "other").high_watermark == 5


def test_a_log_that_others_follow_goes_on_with_its_hole(tmp_path: Path) -> None:
    directory = with_hole(tmp_path)
    log = directory.logs["orders", 0]
    log.accept_hole()
    assert (log.hole, log.open_hole) == (1, None)
    log.flush(NOW_MS)
    directory.close()
    assert (tmp_path / MARK).exists()
    assert log_of(opened(tmp_path)).hole is None


@pytest.mark.parametrize(("log_start", "hole"), [(1, 1), (2, None)])
def test_records_missing_below_the_log_start_are_no_hole(
    tmp_path: Path, log_start: int, hole: int | None
) -> None:
    directory = with_hole(tmp_path)
    log = directory.logs["orders", 0]
    log.update_high_watermark(3)
    log.delete_records_before(log_start)
    assert (log.hole, log.log_start_offset) == (hole, log_start)
    directory.close()
    assert (tmp_path / MARK).exists() == (hole is None)
    assert log_of(opened(tmp_path)).hole == hole


def in_two_segments(directory: Path) -> PartitionLog:
    log = filled(directory, b"0", b"1", b"2")
    log.roll(NOW_MS)
    append(log, batch(values=[b"3"]))
    return log


def losing(log: PartitionLog, batches: int) -> None:
    """Close a log as after a power loss that took so many of the three batches of its first segment."""
    log.close(clean=False)
    first = Path(log.directory) / f"{0:020d}.log"
    data = first.read_bytes()
    first.write_bytes(data[: len(data) // 3 * (3 - batches)])
    if batches == 3:
        first.unlink()


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_records_that_a_power_loss_removed_from_a_future_log_are_copied_again(
    tmp_path: Path, batches: int
) -> None:
    present = in_two_segments(tmp_path / "a")
    losing(in_two_segments(tmp_path / "b"), batches)
    future = open_log(tmp_path / "b", clean=False)
    assert (future.hole, future.log_end_offset) == (3 - batches, 4)
    future_log_copying.begin(future, present, NOW_MS)
    assert (future.hole, future.log_end_offset) == (None, 3 - batches)
    copied(future, present)
    take_over(future, present)
    assert values(future) == [b"0", b"1", b"2", b"3"]


def test_a_future_log_that_diverges_before_its_hole_is_cut_there(
    tmp_path: Path,
) -> None:
    losing(in_two_segments(tmp_path / "b"), 1)
    present = filled(tmp_path / "a", b"0")
    append(present, batch(values=[b"other"]), leader_epoch=2)
    future = open_log(tmp_path / "b", clean=False)
    assert future.hole == 2
    future_log_copying.begin(future, present, NOW_MS)
    assert (future.hole, future.log_end_offset) == (None, 1)


def test_a_hole_of_the_present_log_passes_to_the_log_that_takes_over(tmp_path: Path) -> None:
    """The replica may have been the leader so far, and have to fetch from there again."""
    losing(in_two_segments(tmp_path / "a"), 1)
    present = open_log(tmp_path / "a", clean=False)
    future = begun(tmp_path / "b", present)
    copied(future, present)
    take_over(future, present)
    assert (future.hole, values(future)) == (2, [b"0", b"1", b"3"])
