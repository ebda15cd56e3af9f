"""What a follower appends, and what it rejects."""

from pathlib import Path

import pytest

from protocol.records.batch import CorruptRecordError, crc32c
from storage.log.partition_log import append_as_follower
from tests.support.partition_logs import NOW_MS, batch, open_log


def fetched(*, base_offset: int = 0, last_offset_delta: int | None = None) -> bytes:
    data = batch(3)
    data[0:8] = base_offset.to_bytes(8, "big")
    if last_offset_delta is not None:
        data[23:27] = last_offset_delta.to_bytes(4, "big", signed=True)
        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def test_batches_are_appended_as_they_are(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = fetched() + fetched(base_offset=3)
    append_as_follower(log, data, leader_epoch=1, now_ms=NOW_MS, has_gaps=False)
    assert log.log_end_offset == 6
    assert b"".join(bytes(found) for _, found in log.batches(0, upper_bound=6)) == data


def test_a_batch_that_ends_before_it_begins_is_not_believed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append_as_follower(log, fetched(), leader_epoch=1, now_ms=NOW_MS, has_gaps=True)
    for delta in (-1, -3, -(1 << 31)):
        data = fetched(base_offset=10, last_offset_delta=delta)
        with pytest.raises(CorruptRecordError, match="ends before it begins"):
            append_as_follower(log, data, leader_epoch=1, now_ms=NOW_MS, has_gaps=True)
    assert log.log_end_offset == 3


@pytest.mark.parametrize(("base_offset", "has_gaps"), [(2, True), (4, False)])
def test_a_batch_that_does_not_follow_is_not_believed(
    tmp_path: Path, base_offset: int, has_gaps: bool
) -> None:
    log = open_log(tmp_path)
    append_as_follower(log, fetched(), leader_epoch=1, now_ms=NOW_MS, has_gaps=has_gaps)
    with pytest.raises(CorruptRecordError, match="and the log ends at 3"):
        append_as_follower(
            log, fetched(base_offset=base_offset), leader_epoch=1, now_ms=NOW_MS, has_gaps=has_gaps
        )


def test_an_empty_log_begins_inside_a_batch_where_the_leaders_does(tmp_path: Path) -> None:
    """Kafka's begins with the whole batch, too. Later the log start hides a part of it."""
    log = open_log(tmp_path)
    append_as_follower(log, fetched(), leader_epoch=1, now_ms=NOW_MS, has_gaps=True)
    log.truncate_fully_and_start_at(11, NOW_MS)
    data = fetched(base_offset=10) + fetched(base_offset=13)
    append_as_follower(log, data, leader_epoch=1, now_ms=NOW_MS, has_gaps=True)
    assert (log.log_start_offset, log.log_end_offset) == (10, 16)
    log.update_high_watermark(16)
    log.delete_records_before(11)
    assert b"".join(bytes(found) for _, found in log.batches(11, upper_bound=16)) == data
    log.close()
    again = open_log(tmp_path, log_start_offset=11)
    assert (again.log_start_offset, again.log_end_offset) == (11, 16)


@pytest.mark.parametrize("base_offset", [8, 12])
def test_an_empty_log_begins_with_no_batch_that_does_not_hold_its_offset(
    tmp_path: Path, base_offset: int
) -> None:
    log = open_log(tmp_path)
    log.truncate_fully_and_start_at(11, NOW_MS)
    with pytest.raises(CorruptRecordError, match="and the log ends at 11"):
        append_as_follower(
            log, fetched(base_offset=base_offset), leader_epoch=1, now_ms=NOW_MS, has_gaps=False
        )
