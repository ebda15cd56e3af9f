"""Batches of any records go through unchanged, and any bytes fail in the ways that are documented, in no others."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import KafkaError
from protocol.records.batch import (
    BATCH_OVERHEAD,
    MAX_SEQUENCE,
    BatchHeader,
    CorruptRecordError,
    NewRecord,
    Record,
    build_batch,
    compression,
    crc_is_valid,
    decrement_sequence,
    increment_sequence,
    parse_records,
    patch_crc,
    read_header,
    read_records,
    walk_batches,
)
from protocol.records.checks import RecordRules, RequestFailedError, check_shape, validate, walk_records
from protocol.records.compression import DecompressionError
from protocol.wire.primitives import VarintTooLongError, append_varint, read_varint, read_varlong, to_int64
from tests.support.examples import examples
from tests.support.legacy_records import read_legacy_records
from tests.support.rebuilt_batches import rebuild_batch
from tests.support.record_bytes import NOW_MS, record, varint

exactly = settings(derandomize=True, deadline=None, max_examples=examples(50))
long_int = st.integers(-(2**63), 2**63 - 1)
codecs = st.integers(0, 4)
small_bytes = st.binary(max_size=12) | st.binary(min_size=60, max_size=70)
optional_bytes = st.none() | small_bytes
timestamps = st.integers(-1, 2**62)
headers = st.lists(st.tuples(small_bytes, optional_bytes), max_size=3)
new_records = st.lists(st.tuples(timestamps, optional_bytes, optional_bytes, headers), min_size=1, max_size=6)


@st.composite
def alike_payloads(draw: st.DrawFn) -> tuple[bytes, int]:
    """Many records of a few shapes, so that the walk takes its faster ways, and their count."""
    key = draw(st.sampled_from([None, b"", b"k", b"k" * 63, b"k" * 64]))
    count = draw(st.sampled_from([1, 19, 20, 40, 70, 200]))
    sizes = draw(st.lists(st.integers(0, 150) | st.just(9000), min_size=1, max_size=4))
    deltas = draw(
        st.lists(st.sampled_from([0, 1, -1, 63, 64, -65, 8191, 8192, 10**9]), min_size=1, max_size=3)
    )
    nulls = draw(st.sampled_from([0, 7, 50]))
    few_headers = draw(st.sampled_from([[], [(b"h", b"x")], [(b"h" * 70, None)]]))
    records = [
        record(
            index,
            timestamp_delta=deltas[index * len(deltas) // count],
            key=None if nulls and index % nulls == 3 else key,
            value=bytes(sizes[index % len(sizes)]),
            headers=few_headers,
        )
        for index in range(count)
    ]
    return b"".join(records), count


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with one to three of them changed, removed or added."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        pos = draw(st.integers(0, len(changed)))
        byte = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
        match draw(st.sampled_from(["change", "change", "remove", "add", "cut"])):
            case "change":
                changed[pos : pos + 1] = bytes((byte,))
            case "remove":
                del changed[pos : pos + 1]
            case "add":
                changed.insert(pos, byte)
            case "cut":
                del changed[pos:]
    return bytes(changed)


@st.composite
def mutated_alike_payloads(draw: st.DrawFn) -> tuple[bytes, int]:
    payload, count = draw(alike_payloads())
    return draw(mutated(payload)), count + draw(st.sampled_from([0, 0, 0, 1, -1]))


def _header(count: int) -> BatchHeader:
    built = read_header(build_batch([(0, None, None, ())]))
    return built._replace(records_count=count)


@exactly
@given(value=long_int)
def test_a_varlong_reads_as_it_was_written(value: int) -> None:
    assert read_varlong(varint(value) + b"x", 0) == (value, len(varint(value)))
    if -(2**31) <= value < 2**31:
        assert read_varint(varint(value) + b"x", 0) == (value, len(varint(value)))


@exactly
@given(data=st.binary(max_size=12))
def test_any_bytes_are_a_varint_or_fail_as_documented(data: bytes) -> None:
    for read, bits in ((read_varint, 32), (read_varlong, 64)):
        try:
            value, pos = read(data, 0)
        except (IndexError, VarintTooLongError):
            continue
        assert -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
        assert 0 < pos <= len(data)


@exactly
@given(value=st.integers())
def test_a_long_overflows_to_the_same_number_modulo_2_to_the_64(value: int) -> None:
    assert -(2**63) <= to_int64(value) < 2**63
    assert (to_int64(value) - value) % 2**64 == 0


@exactly
@given(sequence=st.integers(0, MAX_SEQUENCE), steps=st.integers(0, MAX_SEQUENCE))
def test_as_many_steps_back_lead_to_the_same_sequence(sequence: int, steps: int) -> None:
    on = increment_sequence(sequence, steps)
    assert on == (sequence + steps) % 2**31
    assert decrement_sequence(on, steps) == sequence


@exactly
@given(
    records=new_records,
    codec=codecs,
    base_offset=st.integers(0, 2**60),
    base_sequence=st.integers(-1, MAX_SEQUENCE),
    transactional=st.booleans(),
)
def test_records_are_read_as_they_were_written(
    records: Sequence[NewRecord], codec: int, base_offset: int, base_sequence: int, transactional: bool
) -> None:
    built = build_batch(
        records,
        base_offset=base_offset,
        base_sequence=base_sequence,
        producer_id=5,
        transactional=transactional,
        codec=codec,
    )
    assert crc_is_valid(built, 0, len(built))
    assert read_records(built) == [
        Record(
            base_offset + index,
            timestamp,
            -1 if base_sequence < 0 else (base_sequence + index) % 2**31,
            key,
            value,
            tuple(headers),
        )
        for index, (timestamp, key, value, headers) in enumerate(records)
    ]
    assert [*walk_batches(built + built)] == [(pos, read_header(built)) for pos in (0, len(built))]


@exactly
@given(records=new_records, codec=codecs, kept=st.sets(st.integers(0, 5)), horizon=st.none() | timestamps)
def test_compaction_leaves_kept_records_unchanged(
    records: Sequence[NewRecord], codec: int, kept: set[int], horizon: int | None
) -> None:
    built = build_batch(records, base_offset=77, base_sequence=3, producer_id=5, codec=codec)
    left = [read for index, read in enumerate(read_records(built)) if index in kept]
    rebuilt = rebuild_batch(read_header(built), left, delete_horizon_ms=horizon)
    assert read_records(rebuilt) == left
    assert crc_is_valid(rebuilt, 0, len(rebuilt))
    assert read_header(rebuilt).last_offset == read_header(built).last_offset


@settings(exactly, max_examples=examples(60))
@given(payload=alike_payloads() | mutated_alike_payloads())
def test_the_walk_finds_the_same_as_reading_every_record(payload: tuple[bytes, int]) -> None:
    data, count = payload
    if count <= 0:
        return
    for view in (data, memoryview(data)):
        try:
            records = parse_records(_header(count), data)
        except CorruptRecordError:
            with pytest.raises(CorruptRecordError):
                walk_records(view, count)
            continue
        shape = walk_records(view, count)
        assert shape.min_timestamp_delta == min(read.timestamp for read in records)
        assert shape.max_timestamp_delta == max(read.timestamp for read in records)
        assert shape.has_null_key == any(read.key is None for read in records)
        assert shape.offsets_are_consecutive == ([read.offset for read in records] == [*range(count)])


@settings(exactly, max_examples=examples(50))
@given(data=st.data(), records=new_records, codec=codecs)
def test_a_mutated_batch_fails_as_documented(
    data: st.DataObject, records: Sequence[NewRecord], codec: int
) -> None:
    sent = bytearray(data.draw(mutated(bytes(build_batch(records, codec=codec)))))
    if len(sent) >= BATCH_OVERHEAD and data.draw(st.booleans()):
        sent[8:12] = (len(sent) - 12).to_bytes(4, "big")
        patch_crc(sent, 0, len(sent))
    rules = RecordRules(compression_type=data.draw(st.sampled_from(["producer", "gzip", "uncompressed"])))
    _read_in_every_way(bytes(sent))
    _produce(sent, rules)


@exactly
@given(data=st.binary(max_size=200))
def test_any_bytes_fail_as_documented(data: bytes) -> None:
    _read_in_every_way(data)
    _produce(bytearray(data), RecordRules())


def _read_in_every_way(data: bytes) -> None:
    for read in (read_records, read_legacy_records, lambda data: [*walk_batches(data)]):
        with suppress(CorruptRecordError, DecompressionError):
            read(data)


def _produce(sent: bytearray, rules: RecordRules) -> None:
    try:
        size = check_shape(sent, 9)
        assert size <= len(sent)
        checked = validate(memoryview(sent)[:size], rules, NOW_MS, "topic", 0)
    except (KafkaError, RequestFailedError):
        return
    assert crc_is_valid(checked.batch, 0, len(checked.batch))
    assert len(read_records(bytes(checked.batch))) == checked.header.records_count


@exactly
@given(data=st.binary(max_size=100), codec=st.integers(0, 7))
def test_any_bytes_are_unpacked_or_refused(data: bytes, codec: int) -> None:
    with suppress(DecompressionError):
        compression.decompress(codec, data)


@settings(exactly, max_examples=examples(50))
@given(data=st.data(), plain=st.binary(max_size=300), codec=st.integers(1, 4))
def test_mutated_packed_bytes_are_unpacked_or_refused(data: st.DataObject, plain: bytes, codec: int) -> None:
    packed = data.draw(mutated(compression.compress(codec, plain * 3)))
    with suppress(DecompressionError):
        compression.decompress(codec, packed)


@exactly
@given(plain=st.binary(max_size=2000), repeat=st.sampled_from([1, 50, 500]), codec=codecs)
def test_data_is_unpacked_as_it_was_packed(plain: bytes, repeat: int, codec: int) -> None:
    assert compression.decompress(codec, compression.compress(codec, plain * repeat)) == plain * repeat


@exactly
@given(value=long_int)
def test_a_varint_has_no_needless_bytes(value: int) -> None:
    out = bytearray(b"before")
    append_varint(out, value)
    assert out == b"before" + varint(value)
    assert len(varint(value)) == max(1, -(-((value << 1) ^ (value >> 63)).bit_length() // 7))
