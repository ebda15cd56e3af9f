"""A swap for whose end there is too little memory. The old files still go, but later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage.background import Lane
from storage.cleaning.cleaner import clean
from storage.cleaning.plan import CleanedSegment
from storage.files import OUT_OF_DESCRIPTORS
from storage.log.partition_log import PartitionLog
from storage.log.replaced_segments import ReplacedMeanwhileError
from tests.support.cleaning import plan_of
from tests.support.disk import files
from tests.support.partition_logs import HeldBackground, names
from tests.unit.storage.cleaning.compacted_logs import closed, compacted_log, offsets, put


class ShortOfMemory(HeldBackground):
    """A background in which no work can begin for a while."""

    is_short = False

    def __call__(self, *work: Any, lane: Lane, delay_ms: int = 0) -> None:
        if self.is_short:
            raise MemoryError
        super().__call__(*work, lane=lane, delay_ms=delay_ms)


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    log = compacted_log(tmp_path, segment_bytes=200)
    put(log, "a=1", "b=1")
    put(log, "a=2")
    return closed(log)


def out_of_use(log: PartitionLog) -> list[str]:
    return [name for name in names(log) if name.endswith(".deleted")]


@pytest.mark.parametrize("is_synced", [False, True], ids=["no sync begins", "no deletion does"])
def test_the_old_files_go_once_there_is_memory(log: PartitionLog, is_synced: bool) -> None:
    [cleaned] = [step for step in clean(files, plan_of(log)) if isinstance(step, CleanedSegment)]
    log.background = background = ShortOfMemory()
    answers: list[Exception | None] = []
    log.replace_segments(cleaned, answers.append)
    if is_synced:
        background.run_one()
    background.is_short = True
    background.run_one()
    assert [type(answer) for answer in answers] == [type(None) if is_synced else MemoryError]
    log.go_on_flushing()
    assert len(out_of_use(log)) == 3
    background.is_short = False
    log.go_on_flushing()
    assert background.delays_ms == [0]  # the names are synced first
    background.run_one()
    assert background.delays_ms == [log.config.file_delete_delay_ms]
    assert len(out_of_use(log)) == 3
    background.run_all()
    assert out_of_use(log) == []
    assert offsets(log) == [1, 2]
    log.go_on_flushing()
    assert background.waiting == []


@pytest.mark.parametrize("number", sorted(OUT_OF_DESCRIPTORS))
@pytest.mark.parametrize("nth", [1, 2], ids=["the swap's names", "the real names"])
def test_names_are_synced_once_there_is_a_descriptor(log: PartitionLog, number: int, nth: int) -> None:
    [cleaned] = [step for step in clean(files, plan_of(log)) if isinstance(step, CleanedSegment)]
    log.background = background = HeldBackground()
    answers: list[Exception | None] = []
    log.replace_segments(cleaned, answers.append)
    if nth == 2:
        background.run_one()

    def refuse(operation: str, path: str, _size: int) -> None:
        if operation == "sync_directory":
            raise OSError(number, "too many", path)

    files.set_fault_hook(refuse)
    try:
        for _ in range(3):
            background.run_one()
            log.go_on_flushing()
    finally:
        files.set_fault_hook(None)
    assert log.failure is None
    assert len(out_of_use(log)) == (3 if nth == 2 else 0)
    log.go_on_flushing()
    background.run_all()
    assert answers == [None] if nth == 1 else [type(answer) for answer in answers] == [OSError]
    assert out_of_use(log) == []
    assert offsets(log) == [1, 2]


def test_a_log_whose_names_cannot_be_synced_later_takes_nothing_more(log: PartitionLog) -> None:
    [cleaned] = [step for step in clean(files, plan_of(log)) if isinstance(step, CleanedSegment)]
    log.background = background = ShortOfMemory()
    log.replace_segments(cleaned, lambda _failure: None)
    background.is_short = True
    background.run_one()
    background.is_short = False
    log.go_on_flushing()

    def refuse(operation: str, _path: str, _size: int) -> None:
        if operation == "sync_directory":
            raise OSError(5, "no")

    files.set_fault_hook(refuse)
    try:
        background.run_one()
    finally:
        files.set_fault_hook(None)
    assert log.failure is not None
    assert len(out_of_use(log)) == 3


def test_a_passs_files_stay_if_the_log_was_closed_before_its_swap_began(
    log: PartitionLog,
) -> None:
    """The folder may belong to another log by now, with files of the same names."""
    [cleaned] = [step for step in clean(files, plan_of(log)) if isinstance(step, CleanedSegment)]
    log.background = background = HeldBackground()
    answers: list[Exception | None] = []
    put(log, "a=3")  # this has to be on the disk first
    log.replace_segments(cleaned, answers.append)
    made = [name for name in names(log) if name.endswith(".cleaned")]
    assert made
    assert not answers
    log.close()
    background.run_all()
    assert [type(answer) for answer in answers] == [ReplacedMeanwhileError]
    assert [name for name in names(log) if name.endswith(".cleaned")] == made
