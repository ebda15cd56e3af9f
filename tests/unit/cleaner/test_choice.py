"""Which partition is compacted when, and up to which offset: each of Kafka's rules."""

from dataclasses import dataclass
from typing import Any

from broker.cleaner.choice import Cleanable, LogToJudge, is_wanted, judge
from storage.log.log_config import LogConfig

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@dataclass
class Segment:
    base_offset: int
    size: int = 100
    first_ms: int = NOW_MS - HOUR_MS
    largest_ms: int = NOW_MS - HOUR_MS

    def first_timestamp_ms(self) -> int:
        return self.first_ms

    def largest_timestamp_ms(self) -> int:
        return self.largest_ms


def judged(
    *segments: Segment | int,
    checkpointed: int | None = None,
    start: int = 0,
    end: int = 100,
    stable: int | None = None,
    **config: Any,
) -> Cleanable:
    """Return what the cleaner decides about a log. Segments are given as such or by base offset; the last one is
    active."""
    log = LogToJudge(
        [each if isinstance(each, Segment) else Segment(each) for each in segments],
        log_start_offset=start,
        log_end_offset=end,
        last_stable_offset=end if stable is None else stable,
        checkpointed=checkpointed,
    )
    return judge(log, LogConfig(cleanup_policy=frozenset({"compact"}), **config), NOW_MS)


def offsets(cleanable: Cleanable) -> tuple[int, int]:
    return cleanable.first_dirty_offset, cleanable.first_uncleanable_offset


def test_all_but_the_active_segment_is_cleanable_at_first() -> None:
    found = judged(0, 10, Segment(20, size=7))
    assert offsets(found) == (0, 20)
    assert (found.clean_bytes, found.cleanable_bytes, found.ratio) == (0, 200, 1.0)


def test_a_log_of_just_the_active_segment_is_never_cleanable() -> None:
    found = judged(Segment(0, size=1000), end=50)
    assert offsets(found) == (0, 0)
    assert (found.cleanable_bytes, found.ratio) == (0, 0.0)
    assert not is_wanted(found, LogConfig(min_cleanable_dirty_ratio=0.0))


def test_a_log_is_as_dirty_as_its_share_since_the_last_pass() -> None:
    found = judged(0, 10, 20, 30, checkpointed=20)
    assert (found.clean_bytes, found.cleanable_bytes) == (200, 100)
    assert found.ratio == 100 / 300


def test_a_first_dirty_offset_inside_a_segment_counts_that_segment_twice() -> None:
    found = judged(0, 10, 20, 30, checkpointed=15)
    assert (found.clean_bytes, found.cleanable_bytes) == (200, 200)


def test_the_ratio_has_to_be_passed_not_met() -> None:
    found = judged(0, 10, 20, checkpointed=10)
    assert found.ratio == 0.5
    assert not is_wanted(found, LogConfig(min_cleanable_dirty_ratio=0.5))
    assert is_wanted(found, LogConfig(min_cleanable_dirty_ratio=0.49))
    whole = judged(0, 10, 20)
    assert not is_wanted(whole, LogConfig(min_cleanable_dirty_ratio=1.0))


def test_any_dirty_byte_is_enough_where_the_ratio_is_0() -> None:
    log_config = LogConfig(min_cleanable_dirty_ratio=0.0)
    assert is_wanted(judged(Segment(0, size=10**9), Segment(10, size=1), 20, checkpointed=10), log_config)
    assert not is_wanted(judged(0, 10, 20, checkpointed=20), log_config)


def test_an_open_transaction_keeps_its_whole_segment_and_all_later_ones() -> None:
    assert offsets(judged(0, 7, 15, 30, stable=12)) == (0, 7)
    assert offsets(judged(0, 7, 15, 30, stable=15)) == (0, 15)
    assert offsets(judged(0, 7, 15, 30, stable=3)) == (0, 0)


def test_unreplicated_records_are_not_cleanable() -> None:
    assert offsets(judged(0, 10, 20, end=25, stable=19)) == (0, 10)


def test_a_last_stable_offset_below_the_clean_part_leaves_nothing() -> None:
    found = judged(0, 10, 20, 30, checkpointed=20, stable=12)
    assert found.first_dirty_offset == 20
    assert found.cleanable_bytes == 0


def test_records_that_are_too_young_keep_their_segment_and_all_later_ones() -> None:
    young = Segment(10, largest_ms=NOW_MS - 5)
    assert offsets(judged(0, young, 20, 30, min_compaction_lag_ms=10)) == (0, 10)
    assert offsets(judged(0, young, 20, 30, min_compaction_lag_ms=5)) == (0, 30)
    assert offsets(judged(0, young, 20, 30)) == (0, 30)


def test_a_segment_below_the_first_dirty_offset_may_be_as_young_as_it_likes() -> None:
    young = Segment(0, largest_ms=NOW_MS)
    assert offsets(judged(young, 10, 20, checkpointed=10, min_compaction_lag_ms=HOUR_MS)) == (10, 20)


def test_a_record_that_has_waited_too_long_is_due_whatever_the_ratio_says() -> None:
    log_config = LogConfig(min_cleanable_dirty_ratio=1.0)
    late = judged(0, 10, 20, max_compaction_lag_ms=HOUR_MS - 1)
    assert late.overdue_ms == 1
    assert is_wanted(late, log_config)
    in_time = judged(0, 10, 20, max_compaction_lag_ms=HOUR_MS)
    assert in_time.overdue_ms == 0
    assert not is_wanted(in_time, log_config)


def test_uncleanable_segments_count_in_the_due_share_but_alone_make_nothing_due() -> None:
    found = judged(
        0, Segment(10, first_ms=1), 20, checkpointed=0, stable=10, max_compaction_lag_ms=2 * HOUR_MS
    )
    assert offsets(found) == (0, 10)
    assert found.overdue_ms > 0
    only_uncleanable = judged(
        0, Segment(10, first_ms=1), 20, checkpointed=10, stable=10, max_compaction_lag_ms=1
    )
    assert only_uncleanable.overdue_ms > 0
    assert not is_wanted(only_uncleanable, LogConfig(min_cleanable_dirty_ratio=1.0))


def test_segments_without_a_timestamp_and_those_that_are_clean_are_never_due() -> None:
    assert (
        judged(Segment(0, first_ms=-1), Segment(10, first_ms=0), 20, max_compaction_lag_ms=1).overdue_ms == 0
    )
    assert judged(Segment(0, first_ms=1), 10, checkpointed=10, max_compaction_lag_ms=1).overdue_ms == 0


def test_a_checkpoint_below_the_log_start_or_above_the_log_end_is_set_to_the_log_start() -> None:
    below = judged(0, 10, 20, checkpointed=77, start=79, end=90)
    assert (below.first_dirty_offset, below.is_reset) == (79, True)
    above = judged(0, 10, 20, checkpointed=26, start=5, end=25)
    assert (above.first_dirty_offset, above.is_reset) == (5, True)


def test_a_checkpoint_at_the_log_start_or_the_log_end_stays() -> None:
    assert not judged(0, 10, 20, checkpointed=5, start=5).is_reset
    assert not judged(0, 10, 20, checkpointed=25, end=25).is_reset
    assert not judged(0, 10, 20, start=5).is_reset


def test_without_a_checkpoint_everything_from_the_log_start_on_is_dirty() -> None:
    found = judged(0, 10, 20, 30, start=15)
    assert offsets(found) == (15, 30)
    assert (found.clean_bytes, found.cleanable_bytes) == (200, 200)


def test_an_empty_inactive_segment_changes_nothing() -> None:
    found = judged(0, Segment(10, size=0), 20)
    assert offsets(found) == (0, 20)
    assert found.cleanable_bytes == 100
