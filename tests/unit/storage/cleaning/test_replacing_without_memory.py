"""A swap that lacks memory: whoever waits for it is told, and the next swap succeeds."""

from pathlib import Path

import pytest

from storage.cleaning.cleaner import clean
from storage.cleaning.plan import CleanedSegment
from storage.log import replaced_segments as replacing
from storage.log import syncing
from storage.log.partition_log import PartitionLog
from storage.log.segment import Segments
from tests.support.cleaning import plan_of
from tests.support.disk import files
from tests.support.failing_calls import fail
from tests.support.partition_logs import names
from tests.unit.storage.cleaning.compacted_logs import closed, compacted_log, put


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Return a log with closed segments of two keys, and one of a third key."""
    log = compacted_log(tmp_path, segment_bytes=200, index_interval_bytes=50)
    for value in range(6):
        put(log, f"a={value}", f"b={value}", producer_id=9, producer_epoch=0, base_sequence=2 * value)
    put(log, "c=" + "1" * 60)
    return closed(log)


def cleaned_first(log: PartitionLog) -> CleanedSegment:
    first, *_others = [step for step in clean(files, plan_of(log)) if isinstance(step, CleanedSegment)]
    return first


@pytest.mark.parametrize("name", ["flush_to", "when_flushed"])
def test_a_replacement_that_could_not_begin_changes_nothing(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    cleaned = cleaned_first(log)
    with monkeypatch.context() as patch:
        fail(patch, syncing, name)
        with pytest.raises(MemoryError):
            log.replace_segments(cleaned, lambda failure: None)
    assert log.replacement is None
    answers: list[Exception | None] = []
    log.replace_segments(cleaned, answers.append)
    assert answers == [None]


@pytest.mark.parametrize(
    ("name", "at", "is_replaced"),
    [("_rename", 1, False), ("_segment_of", 1, False), ("background", 1, False), ("background", 2, True)],
)
def test_lack_of_memory_is_reported_to_the_waiter_for_a_replacement(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch, name: str, at: int, is_replaced: bool
) -> None:
    syncing.sync_now(log)  # so that only the names are left to sync in the background
    cleaned = cleaned_first(log)
    size = log.segments[0].size
    answers: list[Exception | None] = []
    fail(monkeypatch, log if name == "background" else replacing, name, at=at)
    log.replace_segments(cleaned, answers.append)
    assert [type(answer) for answer in answers] == [MemoryError]
    assert log.replacement is None
    assert log.failure is None
    assert (log.segments[0].size != size) is is_replaced
    assert not [each for each in names(log) if each.endswith(".swap")]


def test_lack_of_memory_during_the_change_of_names_ends_the_log(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned = cleaned_first(log)
    answers: list[Exception | None] = []
    fail(monkeypatch, Segments, "replace")
    log.replace_segments(cleaned, answers.append)
    assert [type(answer) for answer in answers] == [MemoryError]
    assert log.failure is not None
