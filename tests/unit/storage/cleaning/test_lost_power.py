"""The power fails during a swap. Whatever part of the swap is on the disk then, the log is whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from protocol.errors import KafkaError
from storage.cleaning.cleaner import clean
from storage.cleaning.plan import CleanedSegment
from storage.files import Files
from storage.log.partition_log import PartitionLog
from tests.simulation.history import History
from tests.simulation.virtual_disk import VirtualDisk
from tests.simulation.virtual_files import MachineDied, VirtualFiles
from tests.support.cleaning import clean_log, plan_of
from tests.support.disk import files
from tests.support.partition_logs import NOW_MS, HeldBackground, end_transaction, headers, names
from tests.unit.storage.cleaning.compacted_logs import closed, compacted_log, put


def on(disk: VirtualDisk) -> VirtualFiles:
    return VirtualFiles(disk, History(lambda: 0.0), lambda: NOW_MS)


def machine(directory: Path) -> VirtualDisk:
    disk = VirtualDisk()
    above = "/"
    for name in directory.parts[1:]:
        above = f"{above.rstrip('/')}/{name}"
        on(disk).make_directory(above)
    return disk


def superseded(directory: Path, disk: Files) -> PartitionLog:
    """Return a log with four batches in a closed segment. Cleaning leaves only the last one."""
    log = compacted_log(directory, disk=disk)
    for value in range(4):
        put(log, f"a={value}")
    return closed(log)


def begin_swap(log: PartitionLog) -> tuple[HeldBackground, list[Exception | None]]:
    """Begin a swap whose names wait to be synced. Return the held work and the answers."""
    [cleaned] = [step for step in clean(log.files, plan_of(log)) if isinstance(step, CleanedSegment)]
    background = HeldBackground()
    log.background = background
    answers: list[Exception | None] = []
    log.replace_segments(cleaned, answers.append)
    return background, answers


@pytest.mark.parametrize("seed", range(12))
def test_a_swap_that_a_truncation_gave_up_does_not_come_back(tmp_path: Path, seed: int) -> None:
    disk = machine(tmp_path)
    log = superseded(tmp_path, on(disk))
    begin_swap(log)
    disk.keep_all()  # the names are on the disk, though nobody has been told so yet
    log.truncate_to(2, NOW_MS)
    for value in range(3):
        put(log, f"b={value}")
    log.sync()
    disk.lose_power(random.Random(seed))
    again = compacted_log(tmp_path, disk=on(disk), clean=False)
    assert [header.base_offset for header in headers(again)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("operation", ["remove", "sync_directory"])
def test_a_swap_that_cannot_surely_be_given_up_prevents_truncation(tmp_path: Path, operation: str) -> None:
    log = superseded(tmp_path, files)
    _background, answers = begin_swap(log)

    def refuse(asked: str, path: str, size: int) -> None:
        if asked == operation:
            raise OSError(5, "no", path)

    files.set_fault_hook(refuse)
    try:
        with pytest.raises(KafkaError):
            log.truncate_to(2, NOW_MS)
    finally:
        files.set_fault_hook(None)
    assert len(answers) == 1
    assert log.log_end_offset == 4
    assert "00000000000000000000.log" in names(log)
    with pytest.raises(KafkaError):
        put(log, "b=1")


def test_a_start_that_finishes_a_swap_removes_no_old_file_before_the_new_names_are_sure(
    tmp_path: Path,
) -> None:
    disk = machine(tmp_path)
    log = superseded(tmp_path, on(disk))
    [cleaned] = [step for step in clean(log.files, plan_of(log)) if isinstance(step, CleanedSegment)]
    disk.keep_all()
    log.background = HeldBackground()
    log.replace_segments(cleaned, lambda failure: None)  # the process is killed before the names are synced

    def dies(operation: str, path: str, size: int) -> None:
        if operation == "rename":
            raise MachineDied

    doomed = on(disk)
    doomed.set_fault_hook(dies)
    with pytest.raises(MachineDied):
        compacted_log(tmp_path, disk=doomed, clean=False)
    # this file system keeps a removal, and loses an earlier rename
    folder = disk.directory(log.directory)
    for name in folder.sure.keys() - folder.names.keys():
        if not name.endswith(".cleaned"):
            del folder.sure[name]
    folder.changes.clear()
    disk.lose_power(random.Random(0))
    again = compacted_log(tmp_path, disk=on(disk), clean=False)
    assert [header.base_offset for header in headers(again)] == [3]
    assert again.log_end_offset == 4


@pytest.mark.parametrize("seed", range(6))
def test_an_obsolete_record_is_not_lost_together_with_its_successor(tmp_path: Path, seed: int) -> None:
    disk = machine(tmp_path)
    log = compacted_log(tmp_path, disk=on(disk))
    put(log, "a=1", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    put(log, "b=1")
    closed(log)
    disk.keep_all()
    end_transaction(log, commit=False)
    clean_log(log)
    disk.lose_power(random.Random(seed))
    again = compacted_log(tmp_path, disk=on(disk), clean=False)
    there = [header.base_offset for header in headers(again) if header.records_count]
    assert there == [1, 2]
    again.update_high_watermark(again.log_end_offset)
    assert again.last_stable_offset == 3
