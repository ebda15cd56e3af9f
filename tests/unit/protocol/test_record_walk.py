"""The walk finds the same as reading every record, especially on its faster paths."""

from collections.abc import Callable

import pytest

from protocol.records.batch import CorruptRecordError, build_batch, parse_records, read_header
from protocol.records.checks import RecordSizeVarintError, RecordsShape, walk_records
from tests.support.examples import TIMES
from tests.support.record_bytes import record, varint

COUNT = 120
CHANGED = 90
"""The record in which a byte is changed. Its offset delta takes two bytes."""

# Each makes a record from its index.
SHAPES: dict[str, Callable[[int], bytes]] = {
    "one size": lambda i: record(i, key=None, value=bytes(70)),
    "one size, keys": lambda i: record(i, key=b"key", value=bytes(30)),
    "one size, headers": lambda i: record(i, value=b"v", headers=[(b"h", None), (b"i", b"xy")]),
    "one size, null values": lambda i: record(i, key=b"key-of-a-tombstone", value=None),
    "one size, times that differ": lambda i: record(i, timestamp_delta=i % 60 - 30, value=b"v"),
    "one size, larger times that differ": lambda i: record(i, timestamp_delta=64 + i % 3 * 1000, value=b"v"),
    "one size, negative times that differ": lambda i: record(
        i, timestamp_delta=-70 - i % 5 * 1000, value=b"v"
    ),
    "sizes that differ": lambda i: record(i, key=None, value=bytes(70 + i * 7 % 90)),
    "sizes that differ, keys": lambda i: record(i, key=b"k" * (1 + i % 63), value=bytes(70 + i * 7 % 90)),
    "sizes that differ, small": lambda i: record(i, value=bytes(i * 7 % 50)),
    "sizes that differ, small and large": lambda i: record(i, value=bytes(40 + i * 7 % 50)),
    "sizes that differ, times too": lambda i: record(i, timestamp_delta=i % 5, value=bytes(70 + i % 9)),
    "sizes that differ, larger times": lambda i: record(i, timestamp_delta=99 + i, value=bytes(70 + i % 9)),
    "sizes that differ, negative times": lambda i: record(
        i, timestamp_delta=-99 - i, value=bytes(70 + i % 9)
    ),
    "sizes that differ, null values": lambda i: record(i, key=b"k" * (i * 7 % 60), value=None),
    "sizes that differ, large keys": lambda i: record(i, key=b"k" * (64 + i % 3), value=bytes(i % 5)),
    "sizes that differ, headers": lambda i: record(i, value=bytes(i % 9), headers=[(b"h" * (i % 70), b"x")]),
}


HEADER = read_header(build_batch([(0, None, None, ())]))


def _read(data: bytes, count: int, first: int = 0) -> RecordsShape | None:
    """Return what the walk should find, from records read one by one. It is None if they don't parse."""
    try:
        records = parse_records(HEADER._replace(records_count=count), data)
    except CorruptRecordError:
        return None
    return RecordsShape(
        min(read.timestamp for read in records),
        max(read.timestamp for read in records),
        any(read.key is None for read in records),
        [read.offset for read in records] == [*range(first, first + count)],
    )


def _read_on(before: RecordsShape, data: bytes) -> RecordsShape | None:
    """Return the same for all records. Those before the changed one have already been read."""
    rest = _read(data, COUNT - CHANGED, CHANGED)
    return rest and RecordsShape(
        min(before.min_timestamp_delta, rest.min_timestamp_delta),
        max(before.max_timestamp_delta, rest.max_timestamp_delta),
        before.has_null_key or rest.has_null_key,
        before.offsets_are_consecutive and rest.offsets_are_consecutive,
    )


def _walk(data: bytes, count: int) -> RecordsShape | None:
    try:
        return walk_records(data, count)
    except CorruptRecordError:
        return None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, 2, 19, 20, 21, 63, 64, 65, 66, 200, 8192 + 64])
def test_records_alike_are_walked_as_they_are_read(shape: str, count: int) -> None:
    data = b"".join(map(SHAPES[shape], range(count)))
    expected = _read(data, count)
    assert expected is not None
    assert walk_records(data, count) == expected
    assert walk_records(memoryview(bytearray(data)), count) == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_one_changed_byte_among_similar_records_is_judged_as_in_reading(shape: str) -> None:
    records = [*map(SHAPES[shape], range(COUNT))]
    before, after = b"".join(records[:CHANGED]), b"".join(records[CHANGED + 1 :])
    read_before = _read(before, CHANGED)
    assert read_before is not None
    assert _read_on(read_before, records[CHANGED] + after) == _read(b"".join(records), COUNT)
    changed = bytearray(records[CHANGED])
    # Only the ends of values are changed.
    for pos in [*range(min(16, len(changed))), *range(max(16, len(changed) - 12), len(changed))]:
        right = changed[pos]
        neighbours = (right ^ 0x80, right - 2, right - 1, right + 1, right + 2)
        found = {0, 1, 2, 3, 0x3E, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF, *(n & 0xFF for n in neighbours)}
        # Each place tries half of these bytes, and the next place the other half. `make property` tries all.
        for byte in sorted(found)[pos % 2 :: 2] if TIMES == 1 else found:
            changed[pos] = byte
            rest = bytes(changed) + after
            assert _walk(before + rest, COUNT) == _read_on(read_before, rest), (pos, byte)
        changed[pos] = right


@pytest.mark.parametrize("shape", SHAPES)
def test_a_batch_of_similar_records_cut_short_or_with_extra_bytes_is_corrupt(shape: str) -> None:
    data = b"".join(map(SHAPES[shape], range(COUNT)))
    for cut in (1, 2, 5, len(SHAPES[shape](COUNT - 1)), 3000):
        assert _walk(data[:-cut], COUNT) is None
    assert _walk(data + b"\0", COUNT) is None
    assert _walk(data, COUNT + 1) is None
    assert _walk(data, COUNT - 1) is None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wrong", [0, 21, 63, 64, 65, CHANGED, COUNT - 1])
def test_one_offset_delta_out_of_turn_is_noticed(shape: str, wrong: int) -> None:
    indexes = [*range(COUNT)]
    indexes[wrong] ^= 1
    shape_of = walk_records(b"".join(map(SHAPES[shape], indexes)), COUNT)
    assert not shape_of.offsets_are_consecutive


@pytest.mark.parametrize("first", [8150, 16300, 2**20 - 40])
def test_offset_deltas_of_more_bytes_are_followed(first: int) -> None:
    # The varint becomes one byte longer at 64, at 8192 and at 2**20.
    from protocol.records.stretches import layout_of, measure_run

    records = [record(index, value=b"v") for index in range(first, first + 81)]
    run = measure_run(b"".join(records), layout_of(records[0], 0), len(records[0]), first + 1, first + 81)
    assert run is not None
    alike = sum(len(each) == len(records[0]) for each in records) - 1
    assert (run.records, run.end) == (alike, len(records[0]) * (alike + 1))


def test_every_timestamp_of_a_run_counts() -> None:
    for least, largest in (
        (-64, 63),
        (-1, 1),
        (0, 63),
        (-64, -1),
        (64, 8191),
        (-8192, 8191),
        (-(10**9), 10**9),
    ):
        for where in (30, 60, 99):
            deltas = [(least + largest) // 2] * 100
            deltas[where], deltas[where // 2] = least, largest
            data = b"".join(record(index, timestamp_delta=delta) for index, delta in enumerate(deltas))
            found = walk_records(data, 100)
            assert (found.min_timestamp_delta, found.max_timestamp_delta) == (min(deltas), max(deltas))


@pytest.mark.parametrize("value_size", [63, 64, 8100, 8191, 8192, 100_000])
def test_values_of_any_size_are_walked(value_size: int) -> None:
    records = [record(index, key=b"k" * (index % 3), value=bytes(value_size)) for index in range(40)]
    assert walk_records(b"".join(records), 40) == RecordsShape(0, 0, False, True)


def test_a_size_of_more_than_five_bytes_has_its_own_error() -> None:
    with pytest.raises(RecordSizeVarintError):
        walk_records(b"\x80\x80\x80\x80\x80\0" + record(0), 1)
    with pytest.raises(CorruptRecordError) as caught:
        walk_records(varint(20) + b"\0" + b"\x80" * 10 + bytes(9), 1)
    assert not isinstance(caught.value, RecordSizeVarintError)


def test_an_offset_delta_with_a_needless_byte_misleads_nobody() -> None:
    for first in range(3):
        records = [record(index, key=b"", value=bytes(index % 5 * 2)) for index in range(60)]
        plain = record(first, key=b"", value=b"")
        wide = bytes((plain[0] + 2,)) + plain[1:3] + bytes((plain[3] | 0x80, 0)) + plain[4:]
        data = b"".join([*records[:first], wide, *records[first + 1 :]])
        assert walk_records(data, 60) == _read(data, 60) == RecordsShape(0, 0, False, True)
    # If it is read with the width of the previous record, its offset and empty key look like a valid record.
    plain = record(0, key=b"", value=b"")
    wide = bytes((plain[0] + 2,)) + plain[1:3] + b"\x80\0" + plain[4:]
    longer = [record(index, key=b"", value=b"xx") for index in range(1, 60)]
    longer[0] = bytes((longer[0][0] + 2,)) + longer[0][1:] + b"\0"
    assert _walk(wide + b"".join(longer), 60) is None
