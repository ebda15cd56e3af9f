"""Deleting records by log start, size and time, and deleting whole partitions."""

import os
from pathlib import Path

import pytest

from protocol.errors import Error, KafkaError
from storage.log.partition_log import PartitionLog
from tests.support.partition_logs import (
    NOW_MS,
    HeldBackground,
    append,
    batch,
    batch_of_bytes,
    file,
    names,
    open_log,
    produced,
)

DAY_MS = 86_400_000


def filled(directory: Path, segments: int = 4, **options: object) -> PartitionLog:
    """Return a log with segments of two batches of 200 bytes, whose times are a minute apart."""
    log = open_log(directory, **options)  # type: ignore[arg-type]
    for at in range(segments):
        if at:
            log.roll(NOW_MS)
        for _ in range(2):
            append(log, batch_of_bytes(200, timestamp=NOW_MS + at * 60_000))
    return log


def test_segments_older_than_retention_ms_go(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=1000)
    assert log.apply_retention(NOW_MS + 60_000 + 1001) == 2
    assert (log.log_start_offset, log.base_offsets) == (4, [4, 6])


def test_exactly_retention_ms_is_not_older(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=1000)
    assert log.apply_retention(NOW_MS + 1000) == 0


def test_a_negative_retention_ms_keeps_all(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=-1)
    assert log.apply_retention(NOW_MS + 1000 * DAY_MS) == 0


def test_a_record_in_the_future_keeps_its_segment_and_later_ones(tmp_path: Path) -> None:
    log = open_log(tmp_path, retention_ms=1000)
    append(log, batch(timestamp=NOW_MS + DAY_MS))
    log.roll(NOW_MS)
    append(log, batch(timestamp=1))
    assert log.apply_retention(NOW_MS + 5000) == 0


def test_without_timestamps_the_files_time_counts(tmp_path: Path) -> None:
    log = open_log(tmp_path, retention_ms=1000)
    append(log, batch(timestamp=-1))
    log.roll(NOW_MS)
    os.utime(file(log, 0, ".log"), ns=(0, NOW_MS * 1_000_000))
    assert log.apply_retention(NOW_MS + 1000) == 0
    assert log.apply_retention(NOW_MS + 1001) == 1


def test_the_active_segment_goes_too_and_an_empty_one_takes_its_place(tmp_path: Path) -> None:
    log = filled(tmp_path, segments=2, retention_ms=1000)
    assert log.apply_retention(NOW_MS + DAY_MS) == 2
    assert (log.log_start_offset, log.log_end_offset, log.base_offsets, log.size) == (4, 4, [4], 0)
    assert append(log, batch()).base_offset == 4


def test_an_empty_log_has_nothing_to_delete(tmp_path: Path) -> None:
    log = filled(tmp_path, segments=1, retention_ms=1000)
    log.apply_retention(NOW_MS + DAY_MS)
    before = names(log)
    assert log.apply_retention(NOW_MS + 2 * DAY_MS) == 0
    assert names(log) == before


def test_segments_beyond_retention_bytes_go(tmp_path: Path) -> None:
    # the log has 1600 bytes in segments of 400
    assert filled(tmp_path / "a", retention_bytes=1600).apply_retention(NOW_MS) == 0
    assert filled(tmp_path / "b", retention_bytes=1201).apply_retention(NOW_MS) == 0
    assert filled(tmp_path / "c", retention_bytes=1200).apply_retention(NOW_MS) == 1
    assert filled(tmp_path / "d", retention_bytes=500).apply_retention(NOW_MS) == 2
    assert filled(tmp_path / "e", retention_bytes=0).apply_retention(NOW_MS) == 4


@pytest.mark.parametrize("options", [{"retention_ms": 1000}, {"retention_bytes": 0}, {}])
def test_some_of_the_segments_go_at_a_time(tmp_path: Path, options: dict[str, int]) -> None:
    log = filled(tmp_path, 6, **options)
    if not options:
        log.delete_records_before(10)
    now_ms = NOW_MS + 5 * 60_000
    assert [log.apply_retention(now_ms, 2) for _ in range(2)] == [2, 2]
    assert (log.log_start_offset, log.base_offsets) == (8 if options else 10, [8, 10])
    assert log.apply_retention(now_ms, 2) in (1, 2)
    assert log.apply_retention(now_ms, 2) == 0


def test_a_segment_is_dropped_without_a_look_at_the_others(tmp_path: Path) -> None:
    log = filled(tmp_path, 5)
    segments = log.segments
    [first, second, third, _fourth, last] = segments.row

    class Unseen:
        """A stand-in for a segment that must not be looked at."""

    segments.row[0] = segments.row[1] = Unseen()  # type: ignore[call-overload]
    for doomed in (last, third, third, first):
        segments.drop(doomed)
    assert segments.base_offsets == [0, 2, 6]
    segments.row[:2] = [first, second]
    assert [segment.base_offset for segment in segments] == segments.base_offsets
    assert segments.active.base_offset == 6


def test_records_above_the_high_watermark_are_never_deleted(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=1000)
    log.update_high_watermark(3)
    assert log.apply_retention(NOW_MS + DAY_MS) == 1


@pytest.mark.parametrize("policy", [frozenset({"compact"}), frozenset()])
def test_without_the_delete_policy_neither_time_nor_size_deletes(
    tmp_path: Path, policy: frozenset[str]
) -> None:
    log = filled(tmp_path, retention_ms=1000, retention_bytes=0, cleanup_policy=policy)
    assert log.apply_retention(NOW_MS + DAY_MS) == 0


@pytest.mark.parametrize("policy", [frozenset({"delete"}), frozenset({"compact"}), frozenset()])
def test_segments_below_the_log_start_go_whatever_the_policy(tmp_path: Path, policy: frozenset[str]) -> None:
    log = filled(tmp_path, retention_ms=-1, cleanup_policy=policy)
    log.delete_records_before(5)
    assert log.base_offsets == [0, 2, 4, 6]
    assert log.apply_retention(NOW_MS) == 2
    assert (log.log_start_offset, log.base_offsets) == (5, [4, 6])


def test_the_active_segment_stays_even_if_the_log_starts_at_its_end(tmp_path: Path) -> None:
    log = filled(tmp_path, segments=1, retention_ms=-1)
    log.delete_records_before(2)
    assert log.apply_retention(NOW_MS) == 0
    assert log.size == 400


def test_delete_records_moves_the_log_start_at_once(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert log.delete_records_before(3) == 3
    assert log.log_start_offset == 3
    assert log.delete_records_before(1) == 3


def test_delete_records_above_the_high_watermark_is_out_of_range(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.update_high_watermark(4)
    for offset in (5, -1):
        with pytest.raises(KafkaError) as refused:
            log.delete_records_before(offset)
        assert refused.value.error is Error.OFFSET_OUT_OF_RANGE


def test_the_epoch_that_holds_the_log_start_begins_there(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.assign_leader_epoch(6)
    log.delete_records_before(3)
    assert log.leader_epochs.entries == [(0, 3), (6, 8)]


def test_deleted_files_are_renamed_at_once_and_unlinked_after_the_delay(tmp_path: Path) -> None:
    background = HeldBackground()
    log = filled(tmp_path, segments=3, background=background, retention_ms=1000, file_delete_delay_ms=777)
    background.run_all()
    log.apply_retention(NOW_MS + 60_000 + 1001)
    assert [name for name in names(log) if name.endswith(".deleted")] == [
        "00000000000000000000.index.deleted",
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex.deleted",
        "00000000000000000002.index.deleted",
        "00000000000000000002.log.deleted",
        "00000000000000000002.snapshot.deleted",
        "00000000000000000002.timeindex.deleted",
    ]
    assert background.delays_ms == [777]
    background.run_all()
    assert not [name for name in names(log) if name.endswith(".deleted")]


def test_producers_outlive_their_records(tmp_path: Path) -> None:
    log = open_log(tmp_path, retention_ms=1000)
    append(log, produced(0, 3))
    log.apply_retention(NOW_MS + 5000)
    assert log.log_start_offset == 3
    assert append(log, produced(0, 3)).duplicate
    append(log, produced(3))


def test_the_log_start_survives_a_restart_by_its_segments(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=1000)
    log.apply_retention(NOW_MS + 60_000 + 1001)
    log.close()
    assert open_log(tmp_path).log_start_offset == 4


# ---- a deleted partition


def test_a_deleted_partition_is_renamed_at_once_and_removed_after_the_delay(tmp_path: Path) -> None:
    background = HeldBackground()
    log = filled(tmp_path, background=background, file_delete_delay_ms=777)
    background.run_all()
    path = log.delete("0" * 32)
    assert path == str(tmp_path / ("orders-0." + "0" * 32 + "-delete"))
    assert [entry.name for entry in tmp_path.iterdir()] == [Path(path).name]
    assert background.delays_ms == [777]
    background.run_all()
    assert list(tmp_path.iterdir()) == []


def test_a_deleted_partition_takes_nothing_more(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.delete("0" * 32)
    with pytest.raises(KafkaError) as refused:
        append(log, batch())
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    assert list(tmp_path.iterdir()) == []


def test_deleting_a_partition_that_has_no_directory_leaves_none(tmp_path: Path) -> None:
    assert open_log(tmp_path).delete("0" * 32) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.limit("storage.log.removal.MAX_NAME")
def test_the_name_of_a_deleted_partition_fits_into_255_characters(tmp_path: Path) -> None:
    log = filled(tmp_path, segments=1)
    log.topic = "t" * 249
    path = log.delete("0" * 32)
    assert path is not None
    name = Path(path).name
    assert len(name) == 255
    assert name.endswith("t-0." + "0" * 32 + "-delete")


def test_a_sync_that_comes_after_the_deletion_does_no_harm(tmp_path: Path) -> None:
    background = HeldBackground()
    log = filled(tmp_path, segments=2, background=background)
    log.delete("0" * 32)
    background.run_all()
    assert log.failure is None
