"""Offsets by time."""

from pathlib import Path

import pytest

from protocol.errors import Error, KafkaError
from protocol.records import compression
from protocol.records.effort import LITTLE, TooMuchEffortError
from storage.log import lookups
from storage.log.partition_log import PartitionLog, TimestampOffset
from tests.support.partition_logs import NOW_MS, append, batch, open_log


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path, index_interval_bytes=0)


def test_the_first_record_at_or_after_the_time_in_log_order_is_found(log: PartitionLog) -> None:
    append(log, batch(timestamps=[10, 30, 20]), leader_epoch=4)
    append(log, batch(timestamps=[25, 40]), leader_epoch=4)
    assert log.offset_for_timestamp(10) == TimestampOffset(10, 0, 4)
    assert log.offset_for_timestamp(15) == TimestampOffset(30, 1, 4)
    assert log.offset_for_timestamp(31) == TimestampOffset(40, 4, 4)


def test_a_time_behind_all_records_finds_none(log: PartitionLog) -> None:
    append(log, batch(timestamps=[10, 30]))
    assert log.offset_for_timestamp(31) is None


def test_with_log_append_time_every_record_has_its_batchs_time(log: PartitionLog) -> None:
    append(log, batch(timestamps=[10, 20, 30], log_append_time=100))
    append(log, batch(timestamps=[10, 20, 30], log_append_time=200))
    assert log.offset_for_timestamp(25) == TimestampOffset(100, 0, 0)
    assert log.offset_for_timestamp(101) == TimestampOffset(200, 3, 0)


def test_records_below_the_log_start_are_not_found(log: PartitionLog) -> None:
    append(log, batch(timestamps=[10, 20, 30]))
    log.delete_records_before(1)
    assert log.offset_for_timestamp(5) == TimestampOffset(20, 1, 0)


def test_the_first_segment_that_reaches_the_time_is_searched(log: PartitionLog) -> None:
    append(log, batch(timestamps=[10]))
    log.roll(NOW_MS)
    append(log, batch(timestamps=[30]))
    log.roll(NOW_MS)
    append(log, batch(timestamps=[20]))
    assert log.offset_for_timestamp(20) == TimestampOffset(30, 1, 0)


def test_the_search_goes_through_the_indexes_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    for at in range(50):
        append(log, batch(timestamps=[1000 + 10 * at]))
    log.close()
    log = open_log(tmp_path, index_interval_bytes=0)
    for at in range(50):
        assert log.offset_for_timestamp(1000 + 10 * at - 3) == TimestampOffset(1000 + 10 * at, at, 0)


def test_a_compressed_batch_is_looked_into(log: PartitionLog) -> None:
    append(log, batch(timestamps=[10, 20, 30], codec=compression.GZIP))
    assert log.offset_for_timestamp(15) == TimestampOffset(20, 1, 0)


def test_without_its_codec_a_batch_is_found_at_its_first_record(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, batch(timestamps=[10]))
    append(log, batch(timestamps=[10, 20, 30], codec=compression.GZIP), leader_epoch=2)

    def decompress(*_: object) -> None:
        raise compression.CodecUnavailableError("no codec")

    monkeypatch.setattr(compression, "decompress", decompress)
    assert log.offset_for_timestamp(15) == TimestampOffset(30, 1, 2)


def test_the_largest_time_is_found_with_the_first_record_that_has_it(log: PartitionLog) -> None:
    append(log, batch(timestamps=[10, 90, 20]))
    append(log, batch(timestamps=[90, 50]), leader_epoch=3)
    assert log.offset_of_max_timestamp() == TimestampOffset(90, 1, 0)


def test_the_largest_time_may_be_in_an_earlier_segment(log: PartitionLog) -> None:
    append(log, batch(timestamps=[10, 90]))
    log.roll(NOW_MS)
    append(log, batch(timestamps=[50]))
    assert log.offset_of_max_timestamp() == TimestampOffset(90, 1, 0)


def test_the_largest_time_is_found_below_the_log_start_too_as_in_kafka(log: PartitionLog) -> None:
    append(log, batch(timestamps=[10, 90]))
    log.delete_records_before(2)
    assert log.offset_of_max_timestamp() == TimestampOffset(90, 1, 0)


def test_a_log_whose_records_were_all_deleted_has_no_largest_time(log: PartitionLog) -> None:
    append(log, batch(timestamps=[10]))
    log.apply_retention(10**15)
    assert log.log_start_offset == 1
    assert log.offset_of_max_timestamp() is None


def test_a_search_breaks_off_where_it_takes_more_than_is_allowed(log: PartitionLog) -> None:
    little = LITTLE._replace(records=2, unpacked_bytes=100)
    append(log, batch(timestamps=[10, 20, 30]))
    append(log, batch(timestamps=[40], values=[b"x" * 1000], codec=compression.ZSTD))
    assert log.offset_for_timestamp(31, LITTLE) == TimestampOffset(40, 3, 0)
    for timestamp in (15, 31):
        with pytest.raises(TooMuchEffortError):
            log.offset_for_timestamp(timestamp, little)
    with pytest.raises(TooMuchEffortError):
        log.offset_of_max_timestamp(little)


def test_a_search_over_many_batches_pauses_and_ends_where_its_segment_has_gone(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "HEADERS_PER_STEP", 2)
    append(log, batch(timestamps=[10]))
    for _ in range(5):
        append(log, batch(timestamps=[5]))
    append(log, batch(timestamps=[20]))
    with pytest.raises(TooMuchEffortError):
        log.offset_for_timestamp(15, LITTLE)
    assert log.offset_for_timestamp(15) == TimestampOffset(20, 6, 0)
    search = lookups.search_for_timestamp(log, 15)
    assert next(search) is None
    log.close()
    with pytest.raises(KafkaError) as raised:
        next(search)
    assert raised.value.error is Error.NOT_LEADER_OR_FOLLOWER
