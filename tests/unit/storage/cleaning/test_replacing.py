"""The swap: cleaned segments replace the old ones, and readers and restarts go on."""

import os
from pathlib import Path

import pytest

from protocol.errors import KafkaError
from storage.background import Lane
from storage.cleaning.cleaned_files import discard_cleaned
from storage.cleaning.cleaner import clean
from storage.cleaning.plan import CleanedSegment, CleaningResult, Progress
from storage.files import offset_of
from storage.log.log_state import TimestampOffset
from storage.log.partition_log import PartitionLog
from storage.log.replaced_segments import ReplacedMeanwhileError
from tests.support.cleaning import clean_log, plan_of
from tests.support.disk import files
from tests.support.partition_logs import NOW_MS, HeldBackground, batches, file, headers, names
from tests.unit.storage.cleaning.compacted_logs import closed, compacted_log, offsets, put, stored


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Return a log with three closed segments of two keys, and one of a third key."""
    log = compacted_log(tmp_path, segment_bytes=200, index_interval_bytes=50)
    for value in range(6):
        put(log, f"a={value}", f"b={value}", producer_id=9, producer_epoch=0, base_sequence=2 * value)
    put(log, "c=" + "1" * 60)
    return closed(log)


def cleaned_segments(log: PartitionLog) -> list[CleanedSegment]:
    return [step for step in clean(files, plan_of(log)) if isinstance(step, CleanedSegment)]


def answers_where_no_rename_of(
    suffix: str, log: PartitionLog, cleaned: CleanedSegment
) -> list[Exception | None]:
    """Return the answers to a replacement if the disk refuses to rename files with this suffix."""

    def refuse(operation: str, path: str, size: int) -> None:
        if operation == "rename" and path.endswith(suffix):
            raise OSError(5, "no")

    files.set_fault_hook(refuse)
    answers: list[Exception | None] = []
    try:
        log.replace_segments(cleaned, answers.append)
    finally:
        files.set_fault_hook(None)
    return answers


def test_the_fixture_has_its_documented_segments(log: PartitionLog) -> None:
    assert log.base_offsets == [0, 4, 8, 12, 13]


def test_the_old_segments_give_way_to_the_new_ones(log: PartitionLog) -> None:
    old = [(segment.base_offset, segment.size) for segment in log.segments]
    clean_log(log)
    assert log.base_offsets == [0, 4, 8, 12, 13]
    assert [segment.size for segment in log.segments][:2] == [0, 0]
    assert all(segment.size == os.path.getsize(segment.log.path) for segment in log.segments)
    assert sum(size for _base, size in old) > log.size
    clean_log(log)
    # their sizes before that pass would fit into one segment
    assert log.base_offsets == [0, 12, 13]
    assert offsets(log) == [10, 11, 12]


def test_a_segment_with_nothing_left_has_empty_files(log: PartitionLog) -> None:
    clean_log(log)
    for suffix in (".log", ".index", ".timeindex"):
        assert file(log, 0, suffix).read_bytes() == b""


def test_the_files_are_as_old_as_the_last_of_the_old_ones(log: PartitionLog) -> None:
    for number, base_offset in enumerate(log.base_offsets):
        os.utime(file(log, base_offset, ".log"), ns=((1_000_000 + number) * 10**6 + 77,) * 2)
    clean_log(log)
    assert file(log, 4, ".log").stat().st_mtime_ns == 1_000_001 * 10**6
    clean_log(log)
    for suffix in (".log", ".index", ".timeindex"):
        assert file(log, 0, suffix).stat().st_mtime_ns == 1_000_002 * 10**6


def test_the_snapshot_at_the_groups_base_stays_and_those_of_the_others_go(log: PartitionLog) -> None:
    clean_log(log)
    assert log.snapshots.offsets == [4, 8, 12, 13]
    clean_log(log)
    assert log.snapshots.offsets == [12, 13]
    assert [name for name in names(log) if name.endswith(".snapshot")] == [
        "00000000000000000012.snapshot",
        "00000000000000000013.snapshot",
    ]


def test_nothing_else_of_the_log_changes(log: PartitionLog) -> None:
    def numbers() -> tuple[object, ...]:
        return (
            log.log_start_offset,
            log.log_end_offset,
            log.high_watermark,
            log.last_stable_offset,
            log.recovery_point,
            log.leader_epochs.entries[:],
            repr(log.producers.producers),
        )

    before = numbers()
    clean_log(log)
    clean_log(log)
    assert numbers() == before


def test_nothing_unfinished_is_left(log: PartitionLog) -> None:
    clean_log(log)
    assert not [name for name in names(log) if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_a_clean_restart_trusts_cleaned_segments(
    log: PartitionLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clean_log(log)
    before = stored(log), log.base_offsets[:]
    log.close()
    again = compacted_log(tmp_path, segment_bytes=200, index_interval_bytes=50)
    assert (stored(again), again.base_offsets) == before
    assert not caplog.messages


def test_an_unclean_restart_reads_it_again_to_the_same_end(log: PartitionLog, tmp_path: Path) -> None:
    clean_log(log)
    before = stored(log), log.base_offsets[:], log.log_end_offset
    log.close(clean=False)
    again = compacted_log(tmp_path, clean=False, segment_bytes=200, index_interval_bytes=50)
    assert (stored(again), again.base_offsets, again.log_end_offset) == before


# ---- in the background


def test_names_are_synced_before_old_files_are_touched_and_again_before_they_are_unlinked(
    tmp_path: Path,
) -> None:
    log = compacted_log(tmp_path, segment_bytes=200)
    put(log, "a=1", "b=1")
    put(log, "a=2")
    closed(log)
    [cleaned] = cleaned_segments(log)
    background = HeldBackground()
    log.background = background
    answers: list[Exception | None] = []
    log.replace_segments(cleaned, answers.append)
    assert [name for name in names(log) if name.startswith("0" * 20)] == [
        "0" * 20 + suffix
        for suffix in (".index", ".index.swap", ".log", ".log.swap", ".timeindex", ".timeindex.swap")
    ]
    assert [lane for _work, _then, lane, _delay in background.waiting] == [Lane.DELETING]
    assert offsets(log) == [0, 1, 2]

    background.run_one()
    assert [name for name in names(log) if name.startswith("0" * 20)] == [
        "0" * 20 + suffix
        for suffix in (
            ".index", ".index.deleted", ".log", ".log.deleted", ".timeindex", ".timeindex.deleted",
        )
    ]  # fmt: skip
    assert offsets(log) == [1, 2]
    assert answers == []

    background.run_one()
    assert answers == [None]
    assert background.delays_ms == [log.config.file_delete_delay_ms]
    background.run_all()
    assert not [name for name in names(log) if name.endswith(".deleted")]


def test_one_segment_is_replaced_at_a_time(log: PartitionLog) -> None:
    first, second, *_ = cleaned_segments(log)
    log.background = HeldBackground()
    log.replace_segments(first, lambda failure: None)
    with pytest.raises(ValueError, match="is being replaced"):
        log.replace_segments(second, lambda failure: None)


def test_appends_and_rolls_go_on_during_a_replacement(log: PartitionLog) -> None:
    background = HeldBackground()
    log.background = background
    cleaned = cleaned_segments(log)
    log.replace_segments(cleaned[0], lambda failure: None)
    put(log, "a=9")
    log.roll(NOW_MS)
    put(log, "b=9")
    background.run_all()
    assert offsets(log)[-2:] == [13, 14]
    assert log.segments[0].size == 0


def test_a_truncation_stops_a_replacement(log: PartitionLog) -> None:
    background = HeldBackground()
    cleaned = cleaned_segments(log)
    log.background = background
    answers: list[Exception | None] = []
    log.replace_segments(cleaned[0], answers.append)
    log.truncate_to(2, NOW_MS)
    [failure] = answers
    assert isinstance(failure, ReplacedMeanwhileError)
    background.run_all()
    assert answers == [failure]
    assert offsets(log) == [0, 1]
    assert not [name for name in names(log) if name.endswith(".swap")]


def test_a_segment_of_a_log_that_was_truncated_since_is_refused(log: PartitionLog) -> None:
    cleaned = cleaned_segments(log)
    log.truncate_to(1, NOW_MS)
    answers: list[Exception | None] = []
    log.replace_segments(cleaned[0], answers.append)
    [failure] = answers
    assert isinstance(failure, ReplacedMeanwhileError)
    assert not [name for name in names(log) if name.startswith("0" * 20) and name.endswith(".cleaned")]


def test_a_stop_in_between_leaves_it_to_the_next_start(log: PartitionLog, tmp_path: Path) -> None:
    background = HeldBackground()
    cleaned = cleaned_segments(log)
    log.background = background
    answers: list[Exception | None] = []
    log.replace_segments(cleaned[0], answers.append)
    log.close()
    background.run_all()
    [failure] = answers
    assert isinstance(failure, OSError)
    again = compacted_log(tmp_path, segment_bytes=200, index_interval_bytes=50)
    assert again.segments[0].size == 0
    assert offsets(again)[0] == 4


def test_a_disk_that_refuses_the_first_names_leaves_the_log_as_it_was(log: PartitionLog) -> None:
    cleaned = cleaned_segments(log)
    before = list(batches(log))
    answers = answers_where_no_rename_of(".timeindex.cleaned", log, cleaned[0])
    [failure] = answers
    assert isinstance(failure, OSError)
    assert list(batches(log)) == before
    assert not [name for name in names(log) if name.startswith("0" * 20) and name.count(".") > 1]
    assert log.failure is None


def test_a_disk_that_refuses_in_the_midst_of_it_ends_the_log(log: PartitionLog) -> None:
    cleaned = cleaned_segments(log)
    answers = answers_where_no_rename_of(".log.swap", log, cleaned[0])
    assert answers == [log.failure]
    with pytest.raises(KafkaError):
        put(log, "a=1")


@pytest.mark.fault("set_modified_ms")
@pytest.mark.parametrize("operation", ["set_modified_ms", "create", "append", "sync", "write_whole", "read"])
def test_a_disk_that_refuses_during_the_pass_ends_it_and_leaves_finished_segments(
    log: PartitionLog, operation: str
) -> None:
    before = list(batches(log))

    def refuse(asked: str, path: str, size: int) -> None:
        if asked == operation:
            raise OSError(5, "no", path)

    plan = plan_of(log)
    ready: list[int] = []
    files.set_fault_hook(refuse)
    try:
        with pytest.raises(OSError, match="no"):
            ready += (step.base_offset for step in clean(files, plan) if isinstance(step, CleanedSegment))
    finally:
        files.set_fault_hook(None)
    assert list(batches(log)) == before
    assert {offset_of(name) for name in names(log) if name.endswith(".cleaned")} == set(ready)


# ---- steps


def test_a_closed_pass_leaves_no_untaken_files(log: PartitionLog) -> None:
    running = clean(files, plan_of(log))
    for step in running:
        if isinstance(step, CleanedSegment) and step.base_offset == 4:
            break
    assert [name for name in names(log) if name.endswith(".cleaned")]
    running.close()
    assert not [name for name in names(log) if name.endswith(".cleaned")]


def test_a_pass_that_has_ended_leaves_its_segments_to_be_taken(log: PartitionLog) -> None:
    cleaned = cleaned_segments(log)
    assert [segment.replaced for segment in cleaned] == [(0,), (4,), (8,), (12,)]
    for segment in cleaned:
        log.replace_segments(segment, lambda failure: None)
    assert offsets(log) == [10, 11, 12]


def test_leftovers_of_a_killed_pass_are_discarded(log: PartitionLog) -> None:
    cleaned_segments(log)
    discard_cleaned(files, log.directory)
    assert not [name for name in names(log) if name.endswith(".cleaned")]
    assert len(stored(log)) == 7


def test_leftovers_of_a_killed_pass_do_not_hinder_the_next(log: PartitionLog) -> None:
    cleaned_segments(log)
    (Path(log.directory) / "00000000000000000000.txnindex.cleaned").write_bytes(b"x" * 34)
    clean_log(log)
    assert offsets(log) == [10, 11, 12]
    assert not file(log, 0, ".txnindex").exists()


def test_steps_count_the_bytes_read_and_written(log: PartitionLog) -> None:
    steps = list(clean(files, plan_of(log)))
    progress = [step for step in steps if isinstance(step, Progress)]
    [result] = [step for step in steps if isinstance(step, CleaningResult)]
    stats = result.stats
    assert sum(step.read_bytes for step in progress) == stats.map_bytes_read + stats.bytes_read
    assert stats.map_bytes_read == stats.bytes_read == log.size
    assert sum(step.written_bytes for step in progress) == stats.bytes_written


# ---- readers


def test_a_reader_goes_on_over_empty_segments_and_holes(log: PartitionLog) -> None:
    read = log.read(0, 10_000, upper_bound=13)
    assert read.segment_base_offset == 0
    clean_log(log)
    for offset in range(13):
        found = log.read(offset, 10_000, upper_bound=13, min_one_batch=True)
        assert found.segment_base_offset == (8 if offset < 12 else 12)
    assert [header.base_offset for header in headers(log)] == [10, 12]
    assert [header.base_offset for header, _ in log.batches(0, upper_bound=13)] == [10, 12]
    assert log.available_bytes(0, 13) > 0


def test_a_reader_inside_a_merged_segment_goes_on(log: PartitionLog) -> None:
    clean_log(log)
    for offset in (10, 12):
        # each read remembers the position of the next one
        log.read(offset, 100, upper_bound=13, min_one_batch=True)
    clean_log(log)
    assert log.read(12, 10_000, upper_bound=13).records
    assert log.read(10, 10_000, upper_bound=13).segment_base_offset == 0


def test_a_reader_is_given_nothing_of_a_hole_below_the_bound(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    put(log, "a=1")
    put(log, "b=1", "c=1")
    put(log, "b=2", "c=2")
    closed(log)
    clean_log(log)
    assert log.read(1, 1000, upper_bound=3).records == b""
    assert log.read(1, 1000, upper_bound=5).records


def test_a_time_is_found_after_an_emptied_batch(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=150)
    put(log, "a=1", timestamp=9000, producer_id=5, producer_epoch=0, base_sequence=0)
    put(log, "b=1", timestamp=5000)
    closed(log)
    put(log, "a=2", timestamp=9500)
    closed(log)
    assert log.offset_for_timestamp(8999) == TimestampOffset(9000, 0, 0)
    clean_log(log)
    assert log.segments[0].load_max_timestamp() == 9000
    # Kafka says that there is none
    assert log.offset_for_timestamp(8999) == TimestampOffset(9500, 2, 0)


def test_the_largest_time_is_that_of_a_record_where_a_later_one_was_emptied(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=150)
    put(log, "a=1", timestamp=9000, producer_id=5, producer_epoch=0, base_sequence=0)
    put(log, "b=1", timestamp=5000)
    closed(log)
    put(log, "a=2", timestamp=4000)
    put(log, "c=2", timestamp=5000)
    closed(log)
    clean_log(log)
    # Kafka says that there is none
    assert log.offset_of_max_timestamp() == TimestampOffset(5000, 1, 0)


def test_a_log_of_nothing_but_empty_batches_has_no_time(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    put(log, "=1", timestamp=9000)
    closed(log)
    clean_log(log)
    assert log.offset_of_max_timestamp() is None
    assert log.offset_for_timestamp(0) is None
