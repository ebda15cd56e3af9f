"""A check that may take only little effort gives up and changes nothing. What most producers send isn't too much."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest

from protocol.records import compression
from protocol.records.checks import RecordRules, RecordsShape, validate, walk_records
from protocol.records.stretches import MOST_AT_ONCE, MOST_HEADERS, layout_of
from protocol.records.validation_budget import ANY, LITTLE, TooMuchEffortError
from tests.support.record_bytes import NOW_MS, batch, record, varint

RULES = RecordRules(max_message_bytes=1 << 30)


def too_much(data: bytearray, rules: RecordRules = RULES) -> bool:
    """Return whether little effort isn't enough. If so, nothing may have changed, and a check without a limit has to
    succeed."""
    before = bytes(data)
    try:
        validate(data, rules, NOW_MS, "t", 0, LITTLE)
    except TooMuchEffortError:
        assert data == before
        validate(data, rules, NOW_MS, "t", 0)
        return True
    return False


def test_a_batch_of_a_megabyte_is_little_by_every_codec() -> None:
    records = [record(index, value=bytes(950)) for index in range(1000)]
    for codec in (compression.NONE, compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD):
        assert not too_much(batch(records, attributes=codec))


@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD])
def test_a_batch_that_unpacks_to_much_is_too_much(codec: int) -> None:
    large = record(0, value=bytes(LITTLE.unpacked_bytes))
    assert too_much(batch([large], attributes=codec))


def test_many_records_are_too_much() -> None:
    assert not too_much(batch([record(index) for index in range(LITTLE.records)]))
    assert too_much(batch([record(index) for index in range(LITTLE.records + 1)]))


def test_many_headers_of_one_record_or_of_all_are_too_much() -> None:
    none = (b"", None)
    assert too_much(batch([record(0, headers=[none] * (LITTLE.pieces + 1))]))
    assert too_much(batch([record(0, headers=[none] * LITTLE.pieces), record(1, headers=[none])]))
    assert not too_much(batch([record(0, headers=[none] * LITTLE.pieces)]))


def test_many_records_that_each_need_a_check_are_too_much() -> None:
    undated = [record(index, timestamp_delta=-NOW_MS - 1) for index in range(LITTLE.suspects + 1)]
    rules = RecordRules(before_max_ms=1000)
    assert too_much(batch(undated, max_timestamp=-1), rules)
    assert not too_much(batch(undated[:-1], max_timestamp=-1), rules)


def test_repacking_is_too_much_except_for_small_batches() -> None:
    rules = RecordRules(compression_type="zstd")
    assert not too_much(batch([record(0, value=bytes(1000))]), rules)
    assert too_much(batch([record(0, value=bytes(LITTLE.rebuilt_bytes))]), rules)


def test_many_blocks_of_lz4_and_many_members_of_gzip_are_too_much() -> None:
    from protocol.records.compressed_frames import compress_frame

    data = bytes(100)
    members = b"".join(compression.compress(compression.GZIP, b"x") for _ in range(LITTLE.pieces + 1))
    with pytest.raises(TooMuchEffortError):
        compression.decompress(compression.GZIP, members, LITTLE)
    assert compression.decompress(compression.GZIP, members, ANY) == b"x" * (LITTLE.pieces + 1)
    one = (1 | 0x80000000).to_bytes(4, "little") + b"x"
    blocks = compress_frame(data, 9)[:7] + one * (LITTLE.pieces + 1) + bytes(4)
    with pytest.raises(TooMuchEffortError):
        compression.decompress(compression.LZ4, blocks, LITTLE)
    assert compression.decompress(compression.LZ4, blocks) == b"x" * (LITTLE.pieces + 1)


def test_many_members_of_gzip_take_time_only_by_their_number() -> None:
    """The rest was copied for each member. A thousand copies of a megabyte took seconds."""
    member = compression.compress(compression.GZIP, b"")
    members = member * 20_000 + b"what follows is passed over"
    tracemalloc.start()
    try:
        assert compression.decompress(compression.GZIP, members) == b""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize("size", [0, 1, 16 * 1024, 5 << 20, (9 << 20) + 1])
def test_gzip_in_pieces_is_gzip(size: int) -> None:
    data = bytes(itertools.islice(itertools.cycle(b"0123456789abcdef!"), size))
    packed = compression.compress(compression.GZIP, data)
    assert compression.decompress(compression.GZIP, packed * 2) == data * 2


@pytest.mark.limit("protocol.records.stretches.MOST_AT_ONCE")
def test_a_run_is_measured_a_part_at_a_time() -> None:
    count = 2 * MOST_AT_ONCE + 100
    data = b"".join(record(index, timestamp_delta=index % 64) for index in range(count))
    assert walk_records(data, count) == RecordsShape(0, 63, False, True)


@pytest.mark.limit("protocol.records.stretches.MOST_HEADERS")
def test_a_record_of_many_headers_matches_no_pattern() -> None:
    def data(headers: int) -> bytes:
        return b"".join(record(index, headers=[(b"", b"")] * headers) for index in range(60))

    assert layout_of(data(MOST_HEADERS), 0) is not None
    assert layout_of(data(MOST_HEADERS + 1), 0) is None
    for headers in (MOST_HEADERS, MOST_HEADERS + 1):
        assert walk_records(data(headers), 60) == RecordsShape(0, 0, False, True)
    assert varint(1)
