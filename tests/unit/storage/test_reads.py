"""How much a read returns, and where a reader continues."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import Error, KafkaError
from protocol.records.batch import read_header, walk_batches
from storage.disk_files import DEFAULT_OPEN_FILES
from storage.log.log_state import REMEMBERED_POSITIONS
from storage.log.partition_log import AppendOrigin, PartitionLog
from storage.log.reads import ENOUGH_BYTES
from tests.support.disk import files
from tests.support.partition_logs import NOW_MS, append, batch, batch_of_bytes, headers, open_log


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Return a log with ten batches of one record and 1071 bytes each, as in the trial with Kafka."""
    log = open_log(tmp_path, index_interval_bytes=2000)
    for _ in range(10):
        append(log, batch_of_bytes(1071))
    return log


def read(log: PartitionLog, offset: int, max_bytes: int, **options: object) -> bytes:
    options.setdefault("upper_bound", log.log_end_offset)
    return log.read(offset, max_bytes, **options).records  # type: ignore[arg-type]


def refused(log: PartitionLog, offset: int) -> Error:
    with pytest.raises(KafkaError) as failure:
        read(log, offset, 10)
    return failure.value.error


def test_a_read_may_be_cut_inside_its_last_batch(log: PartitionLog) -> None:
    assert len(read(log, 0, 1500)) == 1500


def test_a_read_begins_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(3))
    append(log, batch(3))
    records = read(log, 4, 10_000)
    assert [header.base_offset for _position, header in walk_batches(records)] == [3]


def test_the_first_batch_comes_whole_where_that_is_wanted(log: PartitionLog) -> None:
    assert len(read(log, 4, 0, min_one_batch=True)) == 1071
    assert len(read(log, 4, 1070, min_one_batch=True)) == 1071


def test_without_the_minimum_a_first_batch_that_is_too_large_gives_nothing(log: PartitionLog) -> None:
    result = log.read(4, 1070, upper_bound=10)
    assert (result.records, result.first_batch_incomplete) == (b"", True)


def test_a_first_batch_that_just_fits_is_given(log: PartitionLog) -> None:
    result = log.read(4, 1071, upper_bound=10)
    assert (len(result.records), result.first_batch_incomplete) == (1071, False)


def test_at_most_the_wanted_bytes_come_where_the_first_batch_fits(log: PartitionLog) -> None:
    assert len(read(log, 0, 5000, min_one_batch=True)) == 5000


def test_a_read_stops_before_the_bound(log: PartitionLog) -> None:
    assert len(read(log, 2, 100_000, upper_bound=5)) == 3 * 1071


def test_a_bound_inside_a_batch_keeps_that_batch_back(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        append(log, batch(4))
    records = read(log, 0, 100_000, upper_bound=6)
    assert [header.base_offset for _position, header in walk_batches(records)] == [0]


def test_a_read_at_or_past_the_bound_is_empty(log: PartitionLog) -> None:
    assert [read(log, offset, 100, upper_bound=5, min_one_batch=True) for offset in (5, 6, 10)] == [b""] * 3


def test_an_offset_outside_of_the_log_is_out_of_range(log: PartitionLog) -> None:
    assert refused(log, 11) is Error.OFFSET_OUT_OF_RANGE
    log.delete_records_before(3)
    assert refused(log, 2) is Error.OFFSET_OUT_OF_RANGE
    assert read(log, 3, 2000)
    assert read(log, 10, 2000) == b""


def test_a_read_stops_at_the_segments_end(log: PartitionLog) -> None:
    log.roll(NOW_MS)
    append(log, batch_of_bytes(1071))
    assert len(read(log, 8, 100_000)) == 2 * 1071
    assert len(read(log, 10, 100_000)) == 1071


def test_a_gap_in_the_offsets_is_skipped(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for base_offset in (0, 10, 20):
        append(log, batch(2, base_offset=base_offset), origin=AppendOrigin.REPLICATION)
    records = read(log, 2, 100_000)
    assert [header.base_offset for _position, header in walk_batches(records)] == [10, 20]


def test_a_gap_at_a_segments_end_is_skipped(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(2), origin=AppendOrigin.REPLICATION)
    log.roll(NOW_MS)
    append(log, batch(2, base_offset=10), origin=AppendOrigin.REPLICATION)
    log.roll(NOW_MS)
    append(log, batch(2, base_offset=20), origin=AppendOrigin.REPLICATION)
    assert [header.base_offset for _p, header in walk_batches(read(log, 4, 100))] == [10]
    assert [header.base_offset for _p, header in walk_batches(read(log, 12, 100))] == [20]


def test_nothing_between_a_gap_and_the_bound_reads_as_empty(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(2), origin=AppendOrigin.REPLICATION)
    append(log, batch(2, base_offset=10), origin=AppendOrigin.REPLICATION)
    assert read(log, 2, 100, upper_bound=10, min_one_batch=True) == b""


def test_a_replay_yields_each_batch_of_all_segments_with_its_bytes(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for base_offset in (0, 10, 20):
        append(log, batch(value_bytes=600_000, base_offset=base_offset), origin=AppendOrigin.REPLICATION)
    log.roll(NOW_MS)
    append(log, batch(3, base_offset=30), origin=AppendOrigin.REPLICATION)
    append(log, batch(3, base_offset=40), origin=AppendOrigin.REPLICATION)
    given = [*log.batches(0, upper_bound=43)]
    assert [header.base_offset for header, _ in given] == [0, 10, 20, 30, 40]
    assert [read_header(whole) for _, whole in given] == [header for header, _ in given]
    assert [len(whole) for _, whole in given] == [header.size_bytes for header, _ in given]
    assert [header.base_offset for header, _ in log.batches(20, upper_bound=33)] == [20, 30]


def test_a_replay_begins_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(3))
    append(log, batch(3))
    assert [header.base_offset for header, _ in log.batches(4, upper_bound=6)] == [3]


def test_a_replay_reports_that_nothing_is_left_before_the_bound(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(2), origin=AppendOrigin.REPLICATION)
    append(log, batch(2, base_offset=10), origin=AppendOrigin.REPLICATION)
    given = log.batches(0, upper_bound=10)
    assert next(given)[0].base_offset == 0
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR: nothing can be read at offset 2 of orders-0"):
        next(given)


def test_a_replay_ends_where_power_loss_left_an_empty_segment_after_lost_records(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    append(log, batch(2))
    log.roll(NOW_MS)
    append(log, batch(3))
    log.roll(NOW_MS)
    log.close(clean=False)
    # the disk already had the last segment's name, but not the records before it
    (Path(log.directory) / "00000000000000000002.log").write_bytes(b"")
    again = open_log(tmp_path, clean=False, recovery_point=1)
    assert again.log_end_offset == 5
    assert [header.base_offset for header, _ in again.batches(0, upper_bound=5)] == [0]
    append(again, batch(1))
    assert [header.base_offset for header, _ in again.batches(0, upper_bound=6)] == [0, 5]


@pytest.mark.parametrize("max_bytes", [1, 1071, 1500, 2142, 5000, 9000, 1 << 20])
def test_a_consumer_gets_all_of_it_whatever_its_size_of_fetches(log: PartitionLog, max_bytes: int) -> None:
    log.roll(NOW_MS)
    for _ in range(12):
        append(log, batch_of_bytes(1071))
    seen = []
    offset = 0
    while offset < 22:
        records = read(log, offset, max_bytes, min_one_batch=True)
        for _position, header in walk_batches(records):
            seen.append(header.base_offset)
            offset = header.last_offset + 1
    assert seen == list(range(22))


@pytest.fixture
def reads_done() -> Iterator[list[str]]:
    """Collect the suffixes of the files that are read, in order."""
    done: list[str] = []

    def note(operation: str, path: str, _size: int) -> None:
        if operation in ("read", "read_whole"):
            done.append(path.rpartition(".")[2])

    files.set_fault_hook(note)
    yield done
    files.set_fault_hook(None)


@pytest.mark.parametrize("max_bytes", [1071, 2500, 1 << 20])
def test_a_consumer_that_reads_on_costs_one_read_of_the_log_and_none_of_an_index(
    log: PartitionLog, reads_done: list[str], max_bytes: int
) -> None:
    offset = 0
    while offset < 10:
        reads_done.clear()
        records = read(log, offset, max_bytes, min_one_batch=True)
        if offset:
            assert reads_done == ["log"]
        for _position, header in walk_batches(records):
            offset = header.last_offset + 1
    append(log, batch_of_bytes(1071))
    reads_done.clear()
    assert len(read(log, 10, max_bytes, min_one_batch=True)) == 1071
    assert reads_done == ["log"]


def test_a_consumer_reads_on_into_the_next_segment_without_a_search(
    log: PartitionLog, reads_done: list[str]
) -> None:
    read(log, 0, 1 << 20)
    log.roll(NOW_MS)
    append(log, batch_of_bytes(1071))
    reads_done.clear()
    assert len(read(log, 10, 1 << 20)) == 1071
    assert "index" not in reads_done


def test_several_consumers_read_on_beside_each_other(log: PartitionLog, reads_done: list[str]) -> None:
    for offset in (0, 3, 6):
        read(log, offset, 1071)
    reads_done.clear()
    for offset in (1, 4, 7):
        assert len(read(log, offset, 1071)) == 1071
    assert reads_done == ["log"] * 3


@pytest.mark.limit("storage.log.log_state.REMEMBERED_POSITIONS")
def test_remembered_positions_are_bounded(log: PartitionLog) -> None:
    for max_bytes in range(1071, 1071 + 40):
        for offset in range(9):
            read(log, offset, max_bytes)
    assert log.read_positions is not None
    assert len(log.read_positions) <= REMEMBERED_POSITIONS


def test_nothing_stale_is_remembered_after_a_truncation(log: PartitionLog) -> None:
    read(log, 0, 5 * 1071)
    log.truncate_to(3, NOW_MS)
    append(log, batch(10))
    records = read(log, 5, 10_000)
    assert [header.base_offset for _position, header in walk_batches(records)] == [3]


def test_available_bytes_run_from_the_offsets_batch_to_the_bound(log: PartitionLog) -> None:
    assert log.available_bytes(0, 10) == 10 * 1071
    assert log.available_bytes(7, 10) == 3 * 1071
    assert log.available_bytes(2, 5) == 3 * 1071
    assert log.available_bytes(5, 5) == 0
    assert log.available_bytes(8, 5) == 0


def test_available_bytes_grow_with_each_append_without_a_read(
    log: PartitionLog, reads_done: list[str]
) -> None:
    read(log, 9, 100_000)
    reads_done.clear()
    assert log.available_bytes(10, log.high_watermark) == 0
    append(log, batch_of_bytes(1071))
    assert log.available_bytes(10, log.high_watermark) == 1071
    append(log, batch_of_bytes(1071))
    assert log.available_bytes(10, log.high_watermark) == 2142
    assert reads_done == []


def test_bytes_of_an_earlier_segment_than_the_bounds_are_always_enough(log: PartitionLog) -> None:
    log.roll(NOW_MS)
    assert log.available_bytes(9, 10) == ENOUGH_BYTES
    append(log, batch_of_bytes(1071))
    assert log.available_bytes(9, 11) == ENOUGH_BYTES
    assert log.available_bytes(10, 11) == 1071
    assert log.available_bytes(8, 9) == 1071


def test_an_offset_outside_the_log_has_no_available_bytes(log: PartitionLog) -> None:
    log.delete_records_before(3)
    assert log.available_bytes(2, 10) == 0
    assert log.available_bytes(11, 12) == 0


def test_many_segments_share_few_descriptors(tmp_path: Path) -> None:
    files.limit_open_files(4)
    try:
        log = open_log(tmp_path, segment_bytes=1100)
        for _ in range(10):
            append(log, batch_of_bytes(1071))
        assert len(log.segments) == 10
        assert [header.base_offset for header in headers(log)] == list(range(10))
        assert files.open_files_count() <= 4
        append(log, batch_of_bytes(1071))
        assert log.log_end_offset == 11
    finally:
        files.limit_open_files(DEFAULT_OPEN_FILES)
