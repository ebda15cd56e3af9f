"""Batches from columns: the bytes of the library's own builder, read back by two decoders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs pyarrow, of the extra `spark`")

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from barnabas.spark import wire as wire_records
from barnabas.spark.arrow_batches import Batch, Columns, binary, build, build_groups, from_bytes, spans, stamp
from barnabas.spark.errors import RowError
from barnabas.spark.settings import CODECS
from protocol.records.batch import crc_is_valid, read_header, read_records
from tests.support.examples import examples

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP_MS = 1_700_000_000_123
PRODUCER_ID, EPOCH, SEQUENCE = 1 << 40, 32_000, 2_000_000_000
NO_LIMIT = 1 << 30

few = settings(max_examples=examples(20))  # of up to a megabyte each

# Around the lengths at which a varint takes another byte.
LENGTHS = st.sampled_from([0, 1, 2, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192])
PIECES = st.none() | st.builds(lambda size, byte: bytes([byte]) * size, LENGTHS, st.integers(0, 255))
HEADER = st.tuples(st.text(max_size=5), PIECES)
ROWS = st.lists(st.tuples(PIECES, PIECES, st.none() | st.lists(HEADER, max_size=3)), min_size=1, max_size=150)

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def columns(rows: list[Row], *, keys: bool = True, headers: bool = True) -> Columns:
    dicts = [
        None if row[2] is None else [{"key": key, "value": value} for key, value in row[2]] for row in rows
    ]
    return Columns(
        pa.array([row[0] for row in rows], pa.binary()) if keys else None,
        pa.array([row[1] for row in rows], pa.binary()),
        pa.array(dicts, HEADERS) if headers else None,
    )


def stamped(batch: Batch) -> bytes:
    stamp(batch, PRODUCER_ID, EPOCH, SEQUENCE)
    return batch.data


def by_the_library(rows: list[Row], codec: int = 0) -> bytes:
    builder = MemoryRecordsBuilder(
        2,
        codec,
        NO_LIMIT,
        transactional=True,
        producer_id=PRODUCER_ID,
        producer_epoch=EPOCH,
        base_sequence=SEQUENCE,
    )
    for key, value, headers in rows:
        builder.append(TIMESTAMP_MS, key, value, headers or [])
    builder.close()
    return bytes(builder.buffer())


def encoder(name: str) -> Callable[[bytes], bytes] | None:
    return None if name == "none" else partial(wire_records.compress, name)


@few
@given(ROWS)
def test_any_columns_become_the_bytes_of_the_librarys_builder(rows: list[Row]) -> None:
    (batch,) = build(columns(rows), TIMESTAMP_MS, NO_LIMIT)
    assert stamped(batch) == by_the_library(rows)


@few
@given(ROWS)
def test_columns_that_are_missing_are_nulls(rows: list[Row]) -> None:
    (batch,) = build(columns(rows, keys=False, headers=False), TIMESTAMP_MS, NO_LIMIT)
    assert stamped(batch) == by_the_library([(None, value, None) for _, value, _ in rows])


@pytest.mark.parametrize("codec", ["snappy", "lz4", "zstd"])
@few
@given(rows=ROWS)
def test_compressed_batches_equal_the_librarys_too(codec: str, rows: list[Row]) -> None:
    (batch,) = build(columns(rows), TIMESTAMP_MS, NO_LIMIT, CODECS[codec], encoder(codec))
    assert stamped(batch) == by_the_library(rows, CODECS[codec])


@pytest.mark.parametrize("codec", CODECS)
@few
@given(rows=ROWS)
def test_two_decoders_read_the_columns_values(codec: str, rows: list[Row]) -> None:
    (batch,) = build(columns(rows), TIMESTAMP_MS, NO_LIMIT, CODECS[codec], encoder(codec))
    data = stamped(batch)
    wanted = [(key, value, headers or []) for key, value, headers in rows]
    ours = read_records(data)
    assert [(one.key, one.value, [(k.decode(), v) for k, v in one.headers]) for one in ours] == wanted
    assert {one.timestamp for one in ours} == {TIMESTAMP_MS}
    library = MemoryRecords(data).next_batch()
    assert library.validate_crc()
    assert [(one.key, one.value, one.headers) for one in library] == wanted


def test_the_header_has_the_stamped_values() -> None:
    (batch,) = build(columns([(None, b"v", None)] * 7), TIMESTAMP_MS, NO_LIMIT)
    data = stamped(batch)
    header = read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (PRODUCER_ID, EPOCH, SEQUENCE)
    assert (header.records_count, header.last_offset_delta, header.max_timestamp) == (7, 6, TIMESTAMP_MS)
    assert header.is_transactional
    assert crc_is_valid(data, 0, len(data))


def test_a_batch_can_be_stamped_again() -> None:
    rows: list[Row] = [(b"k", b"v", None)]
    (batch,) = build(columns(rows), TIMESTAMP_MS, NO_LIMIT)
    stamp(batch, 1, 1, 1)
    assert stamped(batch) == by_the_library(rows)


@few
@given(ROWS, st.integers(70, 20_000))
def test_batches_fit_the_limit_unless_a_single_record_does_not(rows: list[Row], limit: int) -> None:
    batches = build(columns(rows), TIMESTAMP_MS, limit)
    assert all(batch.size <= limit or batch.records == 1 for batch in batches)
    read = [record for batch in batches for record in read_records(stamped(batch))]
    assert [(one.key, one.value) for one in read] == [row[:2] for row in rows]


def test_batches_are_filled_as_far_as_they_go() -> None:
    batches = build(columns([(None, b"x" * 100, None)] * 1000), TIMESTAMP_MS, 10_000, 0, None)
    assert all(batch.size > 9_000 for batch in batches[:-1])


@few
@given(ROWS, st.data())
def test_no_batch_holds_rows_of_two_groups(rows: list[Row], data: st.DataObject) -> None:
    inner = data.draw(st.lists(st.integers(0, len(rows)), max_size=5))
    bounds = np.array([0, *sorted(inner), len(rows)])
    groups: list[list[Batch]] = [[] for _ in bounds[1:]]
    for number, batch in build_groups(columns(rows), bounds, TIMESTAMP_MS, 5_000):
        groups[number].append(batch)
    for group, first, end in zip(groups, bounds[:-1], bounds[1:], strict=True):
        read = [record for batch in group for record in read_records(stamped(batch))]
        assert [(one.key, one.value) for one in read] == [row[:2] for row in rows[first:end]]


def test_groups_take_turns() -> None:
    """So that what goes to one partition doesn't wait for itself."""
    bounds = np.array([0, 30, 40, 60])
    made = build_groups(columns([(None, b"x" * 100, None)] * 60), bounds, TIMESTAMP_MS, 1_300)
    assert [number for number, _ in made] == [0, 1, 2, 0, 2, 0]


def test_no_rows_make_no_batch() -> None:
    assert build(columns([]), TIMESTAMP_MS, NO_LIMIT) == []


def test_data_that_compression_does_not_shrink_stays_as_it_is() -> None:
    rows: list[Row] = [(None, bytes(range(256)), None)]
    (batch,) = build(columns(rows), TIMESTAMP_MS, NO_LIMIT, CODECS["lz4"], encoder("lz4"))
    assert read_header(batch.data).attributes & 7 == 0


def test_a_header_without_a_key_is_refused() -> None:
    headers = pa.array([[{"key": None, "value": b"v"}]], HEADERS)
    with pytest.raises(RowError, match="a header has no key"):
        build(Columns(None, pa.array([b"v"], pa.binary()), headers), TIMESTAMP_MS, NO_LIMIT)


@few
@given(ROWS, st.data())
def test_slices_of_columns_are_read_from_where_they_begin(rows: list[Row], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(rows) - 1))
    whole = columns(rows)
    part = Columns(whole.key[first:], whole.value[first:], whole.headers[first:])
    (batch,) = build(part, TIMESTAMP_MS, NO_LIMIT)
    assert stamped(batch) == by_the_library(rows[first:])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("chunks", [1, 2])
def test_strings_and_binaries_of_any_width_are_their_bytes(kind: Any, chunks: int) -> None:
    values = ["a", None, "ü", ""]
    raw = [None if value is None else value.encode() for value in values]
    column = pa.chunked_array([pa.array(raw, pa.binary()).cast(kind)] * chunks)
    assert binary(column).to_pylist() == raw * chunks


@given(st.lists(st.none() | st.binary(max_size=5), max_size=20))
def test_values_become_an_array_of_theirs(values: list[bytes | None]) -> None:
    made = from_bytes(values)
    made.validate(full=True)
    assert made.to_pylist() == values
    assert made.type == pa.binary()


def test_spans_point_into_the_bytes() -> None:
    offsets, data = spans(pa.array([b"ab", b"", None, b"c"], pa.binary()))
    assert (offsets.tolist(), data[:3].tobytes()) == ([0, 2, 2, 2, 3], b"abc")
