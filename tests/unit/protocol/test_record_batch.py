import pytest

from protocol.records.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    MAX_SEQUENCE,
    CorruptRecordError,
    UnsupportedMagicError,
    crc_is_valid,
    decrement_sequence,
    increment_sequence,
    patch_max_timestamp,
    patch_offset_and_epoch,
    read_header,
    walk_batches,
)
from tests.support.record_bytes import NOW_MS, batch, record

BATCH = batch(
    [record(0), record(1, timestamp_delta=5)], attributes=0x10, producer_id=7, max_timestamp=NOW_MS + 5
)


def test_offset_and_leader_epoch_are_patched_in_place_and_outside_the_crc() -> None:
    data = bytearray(b"before" + BATCH)
    patch_offset_and_epoch(data, 6, 2**40, 3)
    assert read_header(data, 6) == read_header(BATCH)._replace(base_offset=2**40, partition_leader_epoch=3)
    assert crc_is_valid(data, 6, len(BATCH))
    assert data[:6] == b"before"
    assert data[6 + 61 :] == BATCH[61:]


def test_a_batch_with_the_right_times_is_left_as_it_is() -> None:
    data = batch([record(0)], attributes=0x7FC0)
    before = bytes(data)
    assert not patch_max_timestamp(data, 0, len(data), CREATE_TIME, NOW_MS)
    assert data == before


def test_another_largest_timestamp_brings_another_crc_and_clears_the_unknown_attributes() -> None:
    data = batch([record(0)], attributes=0x7FF0)
    assert patch_max_timestamp(data, 0, len(data), CREATE_TIME, NOW_MS + 1)
    header = read_header(data)
    assert (header.max_timestamp, header.attributes) == (NOW_MS + 1, 0x70)
    assert crc_is_valid(data, 0, len(data))


def test_the_type_of_the_timestamps_is_set_and_cleared() -> None:
    data = batch([record(0)], attributes=0x10)
    patch_max_timestamp(data, 0, len(data), LOG_APPEND_TIME, NOW_MS)
    assert read_header(data).attributes == 0x18
    assert read_header(data).timestamp_type == LOG_APPEND_TIME
    patch_max_timestamp(data, 0, len(data), CREATE_TIME, NOW_MS)
    assert read_header(data).attributes == 0x10
    assert crc_is_valid(data, 0, len(data))


@pytest.mark.parametrize("pos", [*range(21, 61), len(BATCH) - 1])
def test_every_byte_from_the_attributes_to_the_end_counts_for_the_crc(pos: int) -> None:
    data = bytearray(BATCH)
    data[pos] ^= 1
    assert not crc_is_valid(data, 0, len(data))


def test_the_crc_of_a_batch_within_a_larger_buffer_ends_with_the_batch() -> None:
    assert crc_is_valid(bytes(9) + BATCH + b"more", 9, len(BATCH))


@pytest.mark.parametrize("cut", [1, 12, 60, len(BATCH) - 1])
def test_a_walk_ends_silently_before_an_incomplete_batch(cut: int) -> None:
    assert [pos for pos, _ in walk_batches(BATCH + BATCH[:cut])] == [0]


def test_a_walk_goes_over_a_part_of_a_buffer() -> None:
    assert [pos for pos, _ in walk_batches(b"xx" + BATCH + BATCH, 2)] == [2, 2 + len(BATCH)]


@pytest.mark.limit("protocol.records.batch.MIN_BATCH_LENGTH")
@pytest.mark.parametrize("length", [-1, 0, 13, 48])
def test_a_walk_stops_loudly_at_a_batch_too_short_for_its_header(length: int) -> None:
    data = bytearray(BATCH)
    data[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecordError):
        next(walk_batches(data))


@pytest.mark.parametrize("magic", [3, 0x7F, 0xFF])
def test_a_walk_stops_loudly_at_an_unknown_format(magic: int) -> None:
    data = bytearray(BATCH)
    data[16] = magic
    with pytest.raises(CorruptRecordError):
        next(walk_batches(data))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_walk_names_the_formats_that_are_merely_old(magic: int) -> None:
    data = bytearray(BATCH)
    data[16] = magic
    with pytest.raises(UnsupportedMagicError):
        next(walk_batches(data))


@pytest.mark.limit("protocol.records.batch.MAX_SEQUENCE")
def test_after_the_largest_sequence_comes_zero() -> None:
    assert increment_sequence(MAX_SEQUENCE, 1) == 0
    assert increment_sequence(MAX_SEQUENCE - 1, 3) == 1
    assert increment_sequence(0, MAX_SEQUENCE) == MAX_SEQUENCE
    assert increment_sequence(5, 0) == 5


def test_before_sequence_zero_comes_the_largest() -> None:
    assert decrement_sequence(0, 1) == MAX_SEQUENCE
    assert decrement_sequence(1, 3) == MAX_SEQUENCE - 1
    assert decrement_sequence(5, 5) == 0


def test_the_last_sequence_of_a_batch_wraps_within_it() -> None:
    header = read_header(BATCH)._replace(base_sequence=MAX_SEQUENCE, last_offset_delta=2)
    assert header.last_sequence == 1
    assert header._replace(base_sequence=-1).last_sequence == -1


def test_the_flags_are_read_from_their_bits() -> None:
    header = read_header(BATCH)._replace(attributes=0x74)
    assert header.compression == 4
    assert header.is_transactional
    assert header.is_control
    assert header.has_delete_horizon
    assert header.timestamp_type == CREATE_TIME
    bare = header._replace(attributes=0)
    assert (bare.is_transactional, bare.is_control, bare.has_delete_horizon) == (False, False, False)
