"""Truncating a log's end."""

from pathlib import Path

import pytest

from storage.log.partition_log import PartitionLog
from tests.support.partition_logs import (
    NOW_MS,
    HeldBackground,
    append,
    batch,
    batches,
    end_transaction,
    file,
    headers,
    ints,
    open_log,
    produced,
)
from tests.unit.storage.log_directories import log_of, opened


def filled(directory: Path, **options: object) -> PartitionLog:
    """Return a log with three segments of ten batches of one record, indexed at every batch."""
    log = open_log(directory, index_interval_bytes=0, **options)  # type: ignore[arg-type]
    for at in range(30):
        if at in (10, 20):
            log.roll(NOW_MS)
        append(log, batch(timestamp=NOW_MS + at), leader_epoch=at // 10)
    return log


@pytest.mark.parametrize("offset", [0, 1, 9, 10, 11, 19, 20, 25, 29])
def test_records_at_and_above_the_offset_are_gone_also_after_a_restart(tmp_path: Path, offset: int) -> None:
    log = filled(tmp_path)
    stored = list(batches(log))
    assert log.truncate_to(offset, NOW_MS)
    assert (log.log_end_offset, log.high_watermark) == (offset, offset)
    assert list(batches(log)) == stored[:offset]
    assert append(log, batch(timestamp=NOW_MS + 99)).base_offset == offset
    found = log.offset_for_timestamp(NOW_MS + 50)
    assert found is not None
    assert found.offset == offset
    log.close()
    assert list(batches(open_log(tmp_path)))[:-1] == stored[:offset]


def test_truncating_to_the_end_or_past_it_does_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert not log.truncate_to(30, NOW_MS)
    assert not log.truncate_to(99, NOW_MS)
    assert log.log_end_offset == 30


def test_an_offset_inside_a_batch_drops_the_whole_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(4))
    append(log, batch(4))
    log.truncate_to(6, NOW_MS)
    assert [header.base_offset for header in headers(log)] == [0]
    assert append(log, batch()).base_offset == 6


def test_the_indexes_are_cut_too(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.truncate_to(23, NOW_MS)
    assert [entry[0] for entry in ints(file(log, 20, ".index").read_bytes(), (4, 4))] == [1, 2]
    assert ints(file(log, 20, ".timeindex").read_bytes(), (8, 4))[-1] == (NOW_MS + 22, 2)


def test_leader_epochs_past_the_end_are_dropped(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.truncate_to(15, NOW_MS)
    assert log.leader_epochs.entries == [(0, 0), (1, 10)]


def test_producers_are_as_they_were_at_the_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, produced(0, 2))
    log.roll(NOW_MS)
    append(log, produced(2, 2, transactional=True))
    end_transaction(log, False)
    log.truncate_to(4, NOW_MS)
    assert log.last_stable_offset == 2
    assert ints(file(log, 2, ".txnindex").read_bytes(), (2, 8, 8, 8, 8)) == []
    log.truncate_to(2, NOW_MS)
    assert log.last_stable_offset == 2
    assert append(log, produced(2)).base_offset == 2


def test_truncating_below_the_log_start_begins_there(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.delete_records_before(15)
    log.truncate_to(12, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (12, 12)


def test_truncating_below_all_segments_starts_again(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.delete_records_before(25)
    log.apply_retention(NOW_MS)
    assert log.base_offsets == [20]
    log.truncate_to(7, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.base_offsets) == (7, 7, [7])
    assert append(log, batch()).base_offset == 7


@pytest.mark.parametrize("offset", [0, 20, 25, 100])
def test_everything_may_be_dropped_to_begin_at_any_offset(tmp_path: Path, offset: int) -> None:
    log = filled(tmp_path)
    log.truncate_fully_and_start_at(offset, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (offset, offset, offset)
    assert log.leader_epochs.entries == []
    append(log, batch(values=[b"anew"]))
    log.close()
    log = open_log(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (offset, offset + 1)


def test_a_log_without_a_directory_may_begin_anywhere(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.truncate_fully_and_start_at(50, NOW_MS)
    assert append(log, batch()).base_offset == 50
    assert log.base_offsets == [50]


def test_the_start_of_a_log_without_records_is_on_the_disk_before_it_is_reported(tmp_path: Path) -> None:
    """A follower is in sync as soon as it fetches at its leader's end. After a kill it must not begin at 0 again."""
    open_log(tmp_path).truncate_fully_and_start_at(50, NOW_MS)
    killed = open_log(tmp_path)
    assert (killed.log_start_offset, killed.log_end_offset, killed.high_watermark) == (50, 50, 50)


def test_a_sync_of_records_dropped_since_does_not_count(tmp_path: Path) -> None:
    background = HeldBackground()
    log = filled(tmp_path, background=background)
    log.flush(NOW_MS)
    log.truncate_to(5, NOW_MS)
    append(log, batch())
    background.run_one()
    assert log.recovery_point == 0
    background.run_all()
    assert log.recovery_point == 5


@pytest.mark.parametrize("offset", [5, 0])
def test_waiters_for_dropped_records_are_called_once_all_of_them_are_gone(
    tmp_path: Path, offset: int
) -> None:
    log = filled(tmp_path, background=HeldBackground())
    append(log, produced(0), leader_epoch=3)
    told: list[tuple[object, ...]] = []

    def then(failure: Exception | None) -> None:
        producers = len(log.producers.producers)
        told.append((type(failure), log.log_end_offset, log.leader_epochs.latest, producers))

    log.when_flushed(31, then)
    if offset:
        log.truncate_to(offset, NOW_MS)
    else:
        log.truncate_fully_and_start_at(offset, NOW_MS)
    assert told == [(OSError, offset, 0 if offset else -1, 0)]


@pytest.mark.parametrize("rolls", [False, True])
def test_records_that_a_power_loss_brings_back_keep_their_own_epoch(tmp_path: Path, rolls: bool) -> None:
    """The disk may have the new file of epochs, but the log as it was before the cut."""
    log = open_log(tmp_path)
    for epoch in (0, 0, 2):
        append(log, batch(), leader_epoch=epoch)
    if rolls:
        log.roll(NOW_MS)
    append(log, batch(), leader_epoch=2)
    before = {path: path.read_bytes() for path in Path(log.directory).glob("*.log")}
    log.truncate_to(1, NOW_MS)
    append(log, batch(3), leader_epoch=3)
    assert log.leader_epochs.entries == [(0, 0), (3, 1)]
    log.close(clean=False)
    for path, data in before.items():
        path.write_bytes(data)
    found = open_log(tmp_path, clean=False, recovery_point=1)
    assert [header.partition_leader_epoch for header in headers(found)] == [0, 0, 2, 2]
    assert found.leader_epochs.entries == [(0, 0), (2, 2)]


def test_a_log_that_is_cut_off_below_its_start_begins_there_after_a_crash_too(tmp_path: Path) -> None:
    background = HeldBackground()
    directory = opened(tmp_path, background)
    log = log_of(directory)
    for _ in range(10):
        append(log, batch())
    log.delete_records_before(8)
    directory.checkpoint_log_starts()
    background.run_all()
    assert log.truncate_to(3, NOW_MS)
    for _ in range(9):
        append(log, batch(), leader_epoch=1)
    directory.close(clean=False)  # no background work was done
    log = log_of(opened(tmp_path))
    assert (log.log_start_offset, log.log_end_offset) == (3, 12)
