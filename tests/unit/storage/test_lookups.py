"""Finding offsets by time."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import Error, KafkaError
from protocol.records import compression
from protocol.records.batch import BatchHeader, build_batch
from protocol.records.validation_budget import LITTLE, TooMuchEffortError
from storage.log import reads as lookups
from storage.log.partition_log import PartitionLog, TimestampOffset
from storage.log.segment import Segment
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


def test_a_time_after_all_records_finds_none(log: PartitionLog) -> None:
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


def test_a_log_without_records_left_has_no_largest_time(log: PartitionLog) -> None:
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
    assert search.send(None) is None
    log.close()
    with pytest.raises(KafkaError) as raised:
        search.send(None)
    assert raised.value.error is Error.NOT_LEADER_OR_FOLLOWER


def test_no_batch_below_the_log_start_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, index_interval_bytes=1 << 30)
    for _ in range(10):
        append(log, batch(timestamps=[20], codec=compression.ZSTD))
    log.delete_records_before(9)
    unpacked = []
    real = compression.decompress

    def decompress(*arguments: Any) -> Any:
        unpacked.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(compression, "decompress", decompress)
    assert log.offset_for_timestamp(15, LITTLE) == TimestampOffset(20, 9, 0)
    assert len(unpacked) == 1


def test_one_batch_is_looked_into_in_passing(log: PartitionLog) -> None:
    append(log, batch(timestamps=[50, 10]))
    append(log, batch(timestamps=[60]))
    assert log.offset_for_timestamp(40, LITTLE) == TimestampOffset(50, 0, 0)
    log.delete_records_before(1)
    assert log.offset_for_timestamp(40) == TimestampOffset(60, 2, 0)
    with pytest.raises(TooMuchEffortError):
        log.offset_for_timestamp(40, LITTLE)


def pauses(search: lookups.Search) -> int:
    """Count how often a search pauses, apart from the batches that it finds."""
    count = 0
    found = None
    while True:
        try:
            wanted = search.send(found)
        except StopIteration:
            return count
        count += wanted is None
        found = None if wanted is None else wanted.find()


def test_a_search_pauses_however_many_batches_below_the_log_start_reach_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, index_interval_bytes=1 << 30)
    for _ in range(100):
        append(log, batch(timestamps=[20]))
    log.delete_records_before(99)
    assert pauses(lookups.search_for_timestamp(log, 15)) == 0
    monkeypatch.setattr(lookups, "HEADERS_PER_STEP", 25)
    assert pauses(lookups.search_for_timestamp(log, 15)) == 4


def test_a_search_pauses_on_its_way_over_many_segments(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(11):
        append(log, batch(timestamps=[20 - at]))
        log.roll(NOW_MS)
    monkeypatch.setattr(lookups, "HEADERS_PER_STEP", 100)
    assert pauses(lookups.search_for_timestamp(log, 30)) == 2
    assert pauses(lookups.search_for_max_timestamp(log)) == 2


class CountedReads:
    """The disk, and a count of reads."""

    def __init__(self, disk: Any) -> None:
        self.count = 0
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def read(self, *arguments: Any) -> Any:
        self.count += 1
        return self._disk.read(*arguments)


def test_the_largest_time_is_looked_for_in_one_pass_where_times_grow_up_to_an_emptied_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, index_interval_bytes=1 << 30)
    for at in range(100):
        append(log, batch(timestamps=[at]))
    real = Segment.batches

    def emptied(
        segment: Segment, position: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        for at, header in real(segment, position, end):
            yield at, header._replace(records_count=0) if header.base_offset == 99 else header

    monkeypatch.setattr(Segment, "batches", emptied)
    assert log.offset_of_max_timestamp() == TimestampOffset(98, 98, 0)
    counted = CountedReads(log.segments[0].files)
    monkeypatch.setattr(log.segments[0], "files", counted)
    monkeypatch.setattr(lookups, "HEADERS_PER_STEP", 25)
    assert (
        pauses(lookups.search_for_max_timestamp(log)) == 9
    )  # the search goes over the hundred batches twice, and over the segment itself
    assert counted.count < 10


@pytest.mark.parametrize("index", ["index", "timeindex"])
def test_a_flipped_bit_of_an_index_leads_no_search_astray(tmp_path: Path, index: str) -> None:
    """The bit is in an entry in the middle. Opening a log checks the last entry."""
    log = open_log(tmp_path, index_interval_bytes=0)
    for number in range(20):
        append(log, batch(timestamps=[100 + 10 * number]))
    log.close()
    path = tmp_path / "orders-0" / f"{0:020}.{index}"
    whole = path.read_bytes()
    entry_size = {"index": 8, "timeindex": 12}[index]
    for bit in range(8 * 5 * entry_size, 8 * 6 * entry_size):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        log = open_log(tmp_path, index_interval_bytes=0)
        found = [log.offset_for_timestamp(95 + 10 * number) for number in range(20)]
        assert found == [TimestampOffset(100 + 10 * number, number, 0) for number in range(20)], bit
        log.close()


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
def test_a_compressed_record_above_the_topics_new_limit_ends_the_search(tmp_path: Path, codec: int) -> None:
    """Only the records up to the wanted one count. Uncompressed records may have any size."""
    written = open_log(tmp_path, index_interval_bytes=0)
    values = [(10, b"k", b"v", ()), (20, b"k", bytes(100), ()), (30, b"k", b"v", ())]
    append(written, build_batch(values, codec=codec))
    written.config = replace(written.config, max_decompressed_message_bytes=108)
    assert written.offset_for_timestamp(30) == TimestampOffset(30, 2, 0)
    written.config = replace(written.config, max_decompressed_message_bytes=107)
    assert written.offset_for_timestamp(10) == TimestampOffset(10, 0, 0)
    if codec == compression.NONE:
        assert written.offset_for_timestamp(15) == TimestampOffset(20, 1, 0)
        assert written.offset_of_max_timestamp() == TimestampOffset(30, 2, 0)
        return
    for search in (lambda: written.offset_for_timestamp(15), written.offset_of_max_timestamp):
        with pytest.raises(KafkaError) as refused:
            search()
        assert refused.value.error is Error.INVALID_RECORD
