"""When a log begins a new segment."""

from pathlib import Path

import pytest

from storage.log.partition_log import AppendOrigin
from tests.support.partition_logs import (
    NOW_MS,
    HeldBackground,
    append,
    batch,
    batch_of_bytes,
    file,
    ints,
    names,
    open_log,
    produced,
)


def test_a_segment_filled_exactly_stays_and_the_next_batch_rolls(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=600)
    for _ in range(3):
        append(log, batch_of_bytes(200))
    assert log.base_offsets == [0]
    append(log, batch_of_bytes(200))
    assert log.base_offsets == [0, 3]


def test_a_batch_whose_time_exceeds_segment_ms_rolls(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=1000)
    append(log, batch(timestamp=NOW_MS))
    append(log, batch(timestamp=NOW_MS + 1000))
    assert log.base_offsets == [0]
    append(log, batch(timestamp=NOW_MS + 1001))
    assert log.base_offsets == [0, 2]


def test_the_time_counts_from_the_segments_first_batch_not_from_its_latest(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=1000)
    for step_ms in (0, 600, 900):
        append(log, batch(timestamp=NOW_MS + step_ms))
    append(log, batch(timestamp=NOW_MS + 1100))
    assert log.base_offsets == [0, 3]


def test_an_older_batch_never_rolls(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=1000)
    append(log, batch(timestamp=NOW_MS))
    append(log, batch(timestamp=5), now_ms=NOW_MS + 10_000_000)
    assert log.base_offsets == [0]


def test_without_timestamps_the_clock_counts_from_the_segments_making(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=1000)
    append(log, batch(timestamp=-1), now_ms=NOW_MS)
    append(log, batch(timestamp=-1), now_ms=NOW_MS + 1000)
    assert log.base_offsets == [0]
    append(log, batch(timestamp=-1), now_ms=NOW_MS + 1001)
    assert log.base_offsets == [0, 2]


def test_the_time_counts_on_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=1000)
    append(log, batch(timestamp=NOW_MS))
    log.close()
    log = open_log(tmp_path, segment_ms=1000)
    append(log, batch(timestamp=NOW_MS + 1001))
    assert log.base_offsets == [0, 1]


def test_an_idle_segment_is_not_rolled_by_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=1000)
    append(log, batch(timestamp=NOW_MS))
    log.apply_retention(NOW_MS + 5000)
    assert log.base_offsets == [0]


def test_a_compacted_topic_rolls_by_max_compaction_lag_ms(tmp_path: Path) -> None:
    log = open_log(
        tmp_path, segment_ms=10_000, max_compaction_lag_ms=1000, cleanup_policy=frozenset({"compact"})
    )
    append(log, batch(timestamp=NOW_MS))
    append(log, batch(timestamp=NOW_MS + 1001))
    assert log.base_offsets == [0, 1]


def test_the_jitter_is_drawn_below_its_limit_and_subtracted(tmp_path: Path) -> None:
    limits = []

    def jitter(limit: int) -> int:
        limits.append(limit)
        return 400

    log = open_log(tmp_path, segment_ms=1000, segment_jitter_ms=5000, jitter=jitter)
    append(log, batch(timestamp=NOW_MS))
    append(log, batch(timestamp=NOW_MS + 600))
    assert log.base_offsets == [0]
    append(log, batch(timestamp=NOW_MS + 601))
    assert log.base_offsets == [0, 2]
    assert limits == [1000, 1000]


def test_a_full_offset_index_rolls(tmp_path: Path) -> None:
    # there is room for 4 offset entries; all times are equal, so the time index gets only one
    log = open_log(tmp_path, segment_index_bytes=36, index_interval_bytes=0)
    for _ in range(5):
        append(log, batch())
    assert log.base_offsets == [0]
    append(log, batch())
    assert log.base_offsets == [0, 5]


def test_a_time_index_that_is_full_but_for_its_last_entry_rolls(tmp_path: Path) -> None:
    # there is room for 4 offset entries and 3 time entries, one of which is reserved for the segment's end
    log = open_log(tmp_path, segment_index_bytes=36, index_interval_bytes=0)
    for step_ms in range(4):
        append(log, batch(timestamp=NOW_MS + step_ms))
    assert log.base_offsets == [0, 3]
    assert ints(file(log, 0, ".timeindex").read_bytes(), (8, 4)) == [(NOW_MS + 1, 1), (NOW_MS + 2, 2)]


@pytest.mark.limit("storage.indexes.MAX_RELATIVE_OFFSET")
def test_offsets_too_far_for_an_index_entry_roll(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(base_offset=0), origin=AppendOrigin.REPLICATION)
    append(log, batch(base_offset=2**31 - 1), origin=AppendOrigin.REPLICATION)
    assert log.base_offsets == [0]
    append(log, batch(base_offset=2**31), origin=AppendOrigin.REPLICATION)
    assert log.base_offsets == [0, 2**31]


def test_a_roll_leaves_a_snapshot_of_ten_bytes_where_there_are_no_producers(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    log.roll(NOW_MS)
    snapshot = file(log, 1, ".snapshot").read_bytes()
    assert (len(snapshot), snapshot[:2], snapshot[6:]) == (10, b"\0\1", b"\0\0\0\0")


def test_an_empty_active_segment_is_not_rolled(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    log.roll(NOW_MS)
    before = names(log)
    log.roll(NOW_MS)
    assert (log.base_offsets, names(log)) == ([0, 1], before)


def test_the_old_segment_is_synced_in_the_background_and_then_the_recovery_point_is_the_new_base(
    tmp_path: Path,
) -> None:
    background = HeldBackground()
    log = open_log(tmp_path, background=background)
    append(log, batch(5))
    log.roll(NOW_MS)
    assert log.recovery_point == 0
    background.run_all()
    assert log.recovery_point == 5


def test_a_roll_ends_the_time_index_with_the_largest_timestamp(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(2, timestamp=NOW_MS + 9))
    append(log, batch(2, timestamp=NOW_MS))
    log.roll(NOW_MS)
    assert ints(file(log, 0, ".timeindex").read_bytes(), (8, 4)) == [(NOW_MS + 9, 1)]


def test_a_refused_batch_may_have_rolled_the_log_as_in_kafka(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=250)
    append(log, produced(0, value_bytes=100))
    assert append(log, produced(0, value_bytes=100)).duplicate
    assert log.base_offsets == [0, 1]
