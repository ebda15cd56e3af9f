"""Everything that a pass read is on the disk before it replaces anything."""

from pathlib import Path

from storage.background import Lane
from storage.cleaning.cleaner import clean
from storage.cleaning.plan import CleanedSegment
from storage.log.partition_log import PartitionLog
from storage.log.replaced_segments import ReplacedMeanwhileError
from tests.support.cleaning import plan_of
from tests.support.disk import files
from tests.support.partition_logs import NOW_MS, HeldBackground, names
from tests.unit.storage.cleaning.compacted_logs import closed, compacted_log, offsets, put


def waiting_for_the_disk(directory: Path) -> tuple[PartitionLog, HeldBackground, list[Exception | None]]:
    """Have a segment of the log wait to be replaced, since the last batch isn't synced yet."""
    log = compacted_log(directory)
    put(log, "a=1")
    put(log, "a=2")
    closed(log)
    put(log, "a=3")
    [cleaned] = [step for step in clean(log.files, plan_of(log)) if isinstance(step, CleanedSegment)]
    background = HeldBackground()
    log.background = background
    answers: list[Exception | None] = []
    log.replace_segments(cleaned, answers.append)
    return log, background, answers


def test_the_whole_log_is_synced_before_any_part_of_it_is_replaced(tmp_path: Path) -> None:
    log, background, answers = waiting_for_the_disk(tmp_path)
    assert [lane for _work, _then, lane, _delay in background.waiting] == [Lane.FLUSHING]
    assert not [name for name in names(log) if name.endswith(".swap")]
    put(log, "a=4")  # the swap doesn't wait for later batches
    background.run_one()
    assert log.recovery_point == 3
    assert f"{0:020d}.log.swap" in names(log)
    background.run_all()
    assert answers == [None]
    assert offsets(log) == [1, 2, 3]


def test_a_truncation_before_the_log_is_synced_stops_the_swap(tmp_path: Path) -> None:
    log, background, answers = waiting_for_the_disk(tmp_path)
    log.truncate_to(1, NOW_MS)
    background.run_all()
    [failure] = answers
    assert isinstance(failure, ReplacedMeanwhileError)
    assert offsets(log) == [0]
    assert not [name for name in names(log) if name.endswith((".cleaned", ".swap"))]


def test_a_clean_stop_before_the_log_is_synced_leaves_nothing_half_done(tmp_path: Path) -> None:
    log, background, answers = waiting_for_the_disk(tmp_path)
    log.close()
    background.run_all()
    assert len(answers) == 1
    again = compacted_log(tmp_path)
    assert offsets(again)[-1] == 2
    assert not [name for name in names(again) if name.endswith((".cleaned", ".swap"))]


def test_a_failed_sync_of_the_log_ends_the_swap_and_the_log(tmp_path: Path) -> None:
    log, background, answers = waiting_for_the_disk(tmp_path)

    def refuse(operation: str, path: str, size: int) -> None:
        if operation == "sync":
            raise OSError(5, "no", path)

    files.set_fault_hook(refuse)
    try:
        background.run_all()
    finally:
        files.set_fault_hook(None)
    [failure] = answers
    assert isinstance(failure, OSError)
    assert log.failure is failure
    assert not [name for name in names(log) if name.endswith(".swap")]
