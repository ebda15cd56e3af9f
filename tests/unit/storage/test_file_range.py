"""Ranges that are left in their file. They are readable whatever happens to the file, or refused."""

import errno
from pathlib import Path

import pytest

from storage.disk_files import DiskFiles
from storage.files import MOST_RETIRED_FILES, File, FileRange
from storage.log.partition_log import PartitionLog
from storage.log.reads import FIRST_READ_BYTES
from tests.support.partition_logs import NOW_MS, append, batch_of_bytes, open_log


@pytest.fixture
def files() -> DiskFiles:
    return DiskFiles()


@pytest.fixture
def log(tmp_path: Path, files: DiskFiles) -> PartitionLog:
    """Return a log with three segments of ten batches of 10,000 bytes."""
    log = open_log(tmp_path, disk=files)
    for _segment in range(3):
        for _ in range(10):
            append(log, batch_of_bytes(10_000))
        log.roll(NOW_MS)
    return log


def whole(log: PartitionLog, offset: int = 0) -> bytes:
    return log.read(offset, 100_000, upper_bound=log.log_end_offset).records


def left(log: PartitionLog, offset: int = 0) -> tuple[bytes, FileRange]:
    """Return what is read at once, and what is left in the file."""
    found = log.read(offset, 100_000, upper_bound=log.log_end_offset, at_once=FIRST_READ_BYTES)
    assert found.rest is not None
    return found.records, found.rest


def bytes_of(rest: FileRange) -> bytes:
    return rest.read(0, len(rest))


def test_the_rest_follows_the_bytes_read_at_once(log: PartitionLog) -> None:
    first, rest = left(log)
    assert len(first) == FIRST_READ_BYTES
    assert first + bytes_of(rest) == whole(log)


def test_a_read_that_fits_is_not_parted(log: PartitionLog) -> None:
    found = log.read(0, 100_000, upper_bound=log.log_end_offset, at_once=100_000)
    assert (len(found.records), found.rest) == (100_000, None)


def test_a_first_batch_that_is_larger_than_asked_for_is_left_in_part_too(
    tmp_path: Path, files: DiskFiles
) -> None:
    log = open_log(tmp_path, disk=files)
    append(log, batch_of_bytes(100_000))
    found = log.read(0, 10, upper_bound=1, min_one_batch=True, at_once=1_000)
    assert found.rest is not None
    assert found.size_bytes == 100_000
    assert found.records + bytes_of(found.rest) == whole(log)


@pytest.mark.parametrize("max_bytes", [35_000, 40_000, 45_000, 99_999, 100_000])
def test_the_next_read_begins_where_one_that_was_parted_ended(log: PartitionLog, max_bytes: int) -> None:
    parted = log.read(0, max_bytes, upper_bound=log.log_end_offset, at_once=1)
    assert parted.size_bytes == max_bytes
    assert log.read_positions is not None
    following = max_bytes // 10_000
    base, position = (0, following * 10_000) if following < 10 else (10, 0)
    assert log.read_positions[following] == (base, position)


def test_a_range_reads_on_from_any_place_and_ends_at_its_end(log: PartitionLog) -> None:
    _first, rest = left(log)
    assert rest.read(100, 50) == bytes_of(rest)[100:150]
    assert rest.read(len(rest) - 5, 50) == bytes_of(rest)[-5:]


def test_a_segment_deleted_meanwhile_is_read_to_its_end(log: PartitionLog) -> None:
    expected = whole(log)
    first, rest = left(log)
    log.move_log_start(30)
    log.apply_retention(NOW_MS)
    assert log.segments.base_offsets == [30]
    assert first + bytes_of(rest) == expected


def test_a_deleted_segment_without_an_open_descriptor_is_read_to_its_end(
    log: PartitionLog, files: DiskFiles
) -> None:
    expected = whole(log)
    first, rest = left(log)
    files.limit_open_files(1)
    whole(log, 20)
    assert log.segments[0].log.descriptor < 0
    log.move_log_start(30)
    log.apply_retention(NOW_MS)
    assert first + bytes_of(rest) == expected


def test_a_log_deleted_meanwhile_is_read_to_its_end(log: PartitionLog) -> None:
    expected = whole(log)
    first, rest = left(log)
    log.delete("unique")
    assert first + bytes_of(rest) == expected


def test_a_file_out_of_use_stays_open_for_as_long_as_it_is_held(log: PartitionLog, files: DiskFiles) -> None:
    _first, rest = left(log)
    _first, other = left(log)
    log.delete("unique")
    assert files.open_files_count() == 1
    del rest
    assert files.open_files_count() == 1
    del other
    assert files.open_files_count() == 0


def test_a_file_in_use_returns_to_normal_once_nobody_holds_it(log: PartitionLog) -> None:
    _first, rest = left(log)
    assert log.segments[0].log.held is not None
    del rest
    assert log.segments[0].log.held is None
    assert len(whole(log)) == 100_000


def test_bytes_cut_off_are_refused_though_others_have_taken_their_place(log: PartitionLog) -> None:
    _first, rest = left(log, 20)
    log.truncate_to(25, NOW_MS)
    for _ in range(5):
        append(log, batch_of_bytes(10_000))
    with pytest.raises(OSError, match="cut off before position 100000") as failure:
        bytes_of(rest)
    assert failure.value.errno == errno.ESTALE
    _first, fresh = left(log, 20)
    assert len(bytes_of(fresh)) == len(fresh)


def test_bytes_before_the_cut_are_read(log: PartitionLog) -> None:
    found = log.read(20, 50_000, upper_bound=30, at_once=1)
    assert found.rest is not None
    log.truncate_to(25, NOW_MS)
    assert len(bytes_of(found.rest)) == len(found.rest)


def test_a_file_that_ends_too_early_is_refused(log: PartitionLog) -> None:
    _first, rest = left(log)
    with Path(log.segments[0].log.path).open("r+b") as file:
        file.truncate(50_000)
    with pytest.raises(OSError, match="ends at position 50000"):
        bytes_of(rest)


def test_a_file_that_ends_before_the_first_read_leaves_no_rest(log: PartitionLog) -> None:
    with Path(log.segments[0].log.path).open("r+b") as file:
        file.truncate(20_000)
    found = log.read(0, 100_000, upper_bound=30, at_once=FIRST_READ_BYTES)
    assert (len(found.records), found.rest) == (20_000, None)


def test_if_nothing_may_be_read_at_once_a_header_is(log: PartitionLog) -> None:
    found = log.read(0, 20_000, upper_bound=30, at_once=0)
    assert found.rest is not None
    assert (len(found.records), len(found.rest)) == (512, 19_488)


def test_a_range_fills_its_readers_buffer(log: PartitionLog) -> None:
    _first, rest = left(log)
    buffer = memoryview(bytearray(7_000))
    came = b""
    while len(came) < len(rest):
        count = rest.read_into(len(came), buffer)
        came += buffer[:count]
    assert came == bytes_of(rest)


def test_a_reader_with_a_buffer_learns_of_a_file_that_ends_too_early(log: PartitionLog) -> None:
    _first, rest = left(log)
    with Path(log.segments[0].log.path).open("r+b") as file:
        file.truncate(FIRST_READ_BYTES)
    with pytest.raises(OSError, match="ends at position"):
        rest.read_into(0, memoryview(bytearray(100)))


@pytest.mark.limit("storage.files.MOST_RETIRED_FILES")
def test_the_oldest_of_too_many_unused_files_is_lost(tmp_path: Path, files: DiskFiles) -> None:
    assert MOST_RETIRED_FILES == 256
    files.limit_retired_files(2)
    ranges = []
    for number in range(3):
        file = File(str(tmp_path / str(number)))
        files.create(file)
        files.append(file, b"some bytes", 0)
        ranges.append(FileRange(files, file, 0, 10))
        files.close(file)
    assert files.open_files_count() == 2
    with pytest.raises(OSError, match="too many files out of use"):
        ranges[0].read(0, 10)
    assert [rest.read(0, 10) for rest in ranges[1:]] == [b"some bytes"] * 2
    ranges.clear()
    assert files.open_files_count() == 0


def test_a_part_of_the_rest(log: PartitionLog) -> None:
    _, rest = left(log)
    whole_of_it = bytes_of(rest)
    part = rest.part(5_000, 7_000)
    del rest
    assert (len(part), bytes_of(part)) == (7_000, whole_of_it[5_000:12_000])


def test_no_part_of_cut_off_bytes(log: PartitionLog) -> None:
    _, rest = left(log, 20)
    log.truncate_to(22, NOW_MS)
    with pytest.raises(OSError, match="cut off"):
        rest.part(0, 10)
