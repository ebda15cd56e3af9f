"""What the vectors of `tests/golden/test_produced_batches.py` don't show: texts, limits and missing codecs."""

import sys

import pytest

from protocol.errors import Error, KafkaError
from protocol.records import checks as record_errors
from protocol.records import compression
from protocol.records.batch import build_batch, crc_is_valid, patch_crc, read_header, read_records
from protocol.records.checks import (
    CheckedBatch,
    RecordRules,
    RecordValidationError,
    RequestFailedError,
    check_shape,
    validate,
)
from protocol.records.validation_budget import LITTLE, TooMuchEffortError
from tests.support.record_bytes import NOW_MS, batch, record

PLAIN = batch([record(0), record(1)])


def _validate(data: bytearray, **rules: object) -> CheckedBatch:
    return validate(memoryview(data), RecordRules(**rules), NOW_MS, "clicks", 3)  # type: ignore[arg-type]


def _error(data: bytearray, **rules: object) -> Error:
    with pytest.raises(KafkaError) as caught:
        _validate(data, **rules)
    return caught.value.error


def test_the_shape_of_a_batch_is_its_size() -> None:
    assert check_shape(memoryview(PLAIN), 9) == len(PLAIN)


def test_null_records_are_refused_where_kafka_never_answers() -> None:
    with pytest.raises(KafkaError) as caught:
        check_shape(None, 9)
    assert caught.value.error == Error.INVALID_RECORD


def test_bytes_on_which_kafka_fails_fail_the_whole_request() -> None:
    with pytest.raises(RequestFailedError) as caught:
        check_shape(PLAIN[:16] + b"\3" + PLAIN[17:], 9)
    assert (caught.value.error, caught.value.message) == (
        Error.CORRUPT_MESSAGE,
        "Invalid magic found in record: 3",
    )


@pytest.mark.parametrize(
    ("data", "version"),
    [
        pytest.param(
            batch([record(0)], attributes=0)[:22] + b"\5" + PLAIN[23:], 6, id="codec 5 before version 7"
        ),
        pytest.param(PLAIN[:8] + (38).to_bytes(4, "big") + PLAIN[12:50], 9, id="no room for a producer id"),
    ],
)
def test_bytes_that_kafka_stumbles_over_fail_the_whole_request(data: bytearray, version: int) -> None:
    with pytest.raises(RequestFailedError) as caught:
        check_shape(data, version)
    assert (caught.value.error, caught.value.message) == (Error.UNKNOWN_SERVER_ERROR, None)


def test_a_second_batch_is_refused_and_an_incomplete_one_counts_for_nothing() -> None:
    assert check_shape(PLAIN + PLAIN[:-1], 9) == len(PLAIN)
    with pytest.raises(KafkaError) as caught:
        check_shape(PLAIN + PLAIN, 9)
    assert caught.value.error == Error.INVALID_RECORD


def test_a_batch_that_is_right_is_not_written_to() -> None:
    data = bytearray(PLAIN)
    checked = _validate(data)
    assert data == PLAIN
    assert checked.header == read_header(PLAIN)


def test_the_header_returned_is_that_of_the_patched_batch() -> None:
    data = batch([record(0), record(1, timestamp_delta=9)], max_timestamp=5)
    checked = _validate(data)
    assert checked.header.max_timestamp == NOW_MS + 9
    assert checked.header == read_header(data)
    assert crc_is_valid(data, 0, len(data))


def test_the_largest_timestamp_is_that_of_any_record() -> None:
    for deltas in ([0, 70, 3], [0, -4, -4], [5000] * 40, [*range(40)], [*range(0, -40, -1)], [10**6, 0]):
        data = batch([record(index, timestamp_delta=delta) for index, delta in enumerate(deltas)])
        assert _validate(data).header.max_timestamp == NOW_MS + max(deltas)


def test_append_time_is_the_time_of_the_check() -> None:
    data = bytearray(PLAIN)
    assert _validate(data, message_timestamp_type="LogAppendTime").header.max_timestamp == NOW_MS
    assert {read.timestamp for read in read_records(data)} == {NOW_MS}


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
@pytest.mark.parametrize("count", [1, 3, 100])
def test_the_texts_name_topic_partition_and_every_bad_record(codec: int, count: int) -> None:
    data = batch([record(index, key=None) for index in range(count)], attributes=codec)
    with pytest.raises(RecordValidationError) as caught:
        _validate(data, compacted=True)
    text = "Compacted topic cannot accept message without key in topic partition clicks-3"
    assert caught.value.error == Error.INVALID_RECORD
    assert caught.value.record_errors == [(index, text) for index in range(count)]
    assert caught.value.message is not None
    assert f"due to {count} record errors" in caught.value.message
    assert caught.value.message.count(text) == min(count, 3)


@pytest.mark.parametrize("where", [0, 50, 99])
def test_a_single_bad_record_among_many_alike_is_found(where: int) -> None:
    records = [record(index, key=None if index == where else b"k") for index in range(100)]
    with pytest.raises(RecordValidationError) as caught:
        _validate(batch(records), compacted=True)
    assert [index for index, _ in caught.value.record_errors] == [where]
    late = [record(index, timestamp_delta=64 if index == where else 0) for index in range(100)]
    with pytest.raises(RecordValidationError) as caught:
        _validate(batch(late), after_max_ms=63)
    assert [index for index, _ in caught.value.record_errors] == [where]
    _validate(batch(late), after_max_ms=64)


@pytest.mark.limit("protocol.records.checks.MOST_RECORD_ERRORS")
def test_bad_records_are_named_up_to_a_bound_and_none_is_looked_for_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = []
    look = record_errors._record_error
    monkeypatch.setattr(record_errors, "_record_error", lambda *given: looked_at.append(1) or look(*given))
    late = batch([record(index, timestamp_delta=64) for index in range(1000)])
    with pytest.raises(RecordValidationError) as caught:
        _validate(late, after_max_ms=63)
    most = record_errors.MOST_RECORD_ERRORS
    assert caught.value.error == Error.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == [*range(most)]
    assert len(looked_at) == most + 1


def test_records_are_looked_at_one_by_one_only_near_those_that_are_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = []
    look = record_errors._record_error
    monkeypatch.setattr(record_errors, "_record_error", lambda *given: looked_at.append(1) or look(*given))
    late = [record(index, timestamp_delta=64 if index == 700 else 0) for index in range(1000)]
    with pytest.raises(RecordValidationError) as caught:
        _validate(batch(late), after_max_ms=63)
    assert [index for index, _ in caught.value.record_errors] == [700]
    assert len(looked_at) == 32


def test_the_limits_of_time_are_inclusive() -> None:
    data = batch([record(0, timestamp_delta=-10), record(1, timestamp_delta=20)])
    _validate(data, before_max_ms=10, after_max_ms=20)
    assert _error(data, before_max_ms=9, after_max_ms=20) == Error.INVALID_TIMESTAMP
    assert _error(data, before_max_ms=10, after_max_ms=19) == Error.INVALID_TIMESTAMP


def test_records_that_do_not_parse_are_reported_before_those_that_break_a_rule() -> None:
    data = batch(record(0, key=None) + record(1)[:-1], records_count=2, last_offset_delta=1)
    with pytest.raises(KafkaError) as caught:
        _validate(data, compacted=True)
    assert not isinstance(caught.value, RecordValidationError)
    assert caught.value.error == Error.INVALID_RECORD
    assert caught.value.message is None


def test_a_refused_batch_is_not_written_to() -> None:
    data = batch([record(0, key=None)], max_timestamp=5)
    before = bytes(data)
    assert _error(data, compacted=True) == Error.INVALID_RECORD
    assert data == before


@pytest.mark.parametrize("size", [51, 60])
def test_a_batch_shorter_than_its_header_is_corrupt(size: int) -> None:
    data = bytearray(PLAIN[:size])
    data[8:12] = (size - 12).to_bytes(4, "big")
    assert check_shape(data, 9) == size
    assert _error(data) == Error.CORRUPT_MESSAGE


def test_every_flipped_bit_of_a_batch_is_noticed() -> None:
    for pos in range(17, len(PLAIN)):
        data = bytearray(PLAIN)
        data[pos] ^= 4
        assert _error(data) == Error.CORRUPT_MESSAGE


def test_a_batch_that_unpacks_to_too_much_is_too_large_so_that_producers_split_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compression, "MAX_DECOMPRESSED_BYTES", 1000)
    assert (
        _error(batch([record(0, value=bytes(1000))], attributes=compression.GZIP)) == Error.MESSAGE_TOO_LARGE
    )
    _validate(batch([record(0, value=bytes(900))], attributes=compression.GZIP))


def test_the_size_of_a_record_counts_in_a_compressed_batch_too_where_kafka_passes_over_it() -> None:
    data = batch(b"\x60" + record(0)[1:], attributes=compression.GZIP)
    assert _error(data) == Error.INVALID_RECORD


@pytest.fixture
def zstd_batch() -> bytearray:
    return batch(
        [record(0, key=None, timestamp_delta=7)], attributes=compression.ZSTD, max_timestamp=NOW_MS + 7
    )


@pytest.fixture
def no_library(zstd_batch: bytearray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)


@pytest.mark.usefixtures("no_library")
class TestWithoutTheLibraryOfItsCodec:
    def test_a_batch_is_stored_unchanged(self, zstd_batch: bytearray) -> None:
        before = bytes(zstd_batch)
        for rules in ({}, {"compacted": True}, {"compression_type": "gzip"}, {"compression_type": "lz4"}):
            assert _validate(zstd_batch, **rules).batch == before

    def test_a_batch_gets_its_append_time(self, zstd_batch: bytearray) -> None:
        checked = _validate(zstd_batch, message_timestamp_type="LogAppendTime")
        assert checked.header.max_timestamp == NOW_MS
        assert crc_is_valid(zstd_batch, 0, len(zstd_batch))

    def test_a_time_too_far_off_in_the_header_is_refused(self, zstd_batch: bytearray) -> None:
        assert _error(zstd_batch, after_max_ms=6) == Error.INVALID_TIMESTAMP
        _validate(zstd_batch, after_max_ms=7)

    def test_append_time_set_by_the_client_is_refused(self, zstd_batch: bytearray) -> None:
        zstd_batch[22] |= 8
        patch_crc(zstd_batch, 0, len(zstd_batch))
        assert _error(zstd_batch, message_timestamp_type="LogAppendTime") == Error.INVALID_TIMESTAMP

    def test_the_checks_on_the_header_are_made(self, zstd_batch: bytearray) -> None:
        zstd_batch[60] = 2
        assert _error(zstd_batch) == Error.CORRUPT_MESSAGE
        patch_crc(zstd_batch, 0, len(zstd_batch))
        assert _error(zstd_batch) == Error.INVALID_RECORD

    def test_an_uncompressed_batch_stays_so(self) -> None:
        data = bytearray(PLAIN)
        assert _validate(data, compression_type="zstd").batch == PLAIN


@pytest.mark.parametrize(("name", "codec"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_a_batch_is_packed_as_the_topic_asks_and_keeps_its_producer(name: str, codec: int) -> None:
    data = build_batch(
        [(NOW_MS, b"k", bytes(500), ((b"h", b"x"),)), (NOW_MS + 1, None, None, ())],
        producer_id=4,
        producer_epoch=2,
        base_sequence=17,
        transactional=True,
    )
    checked = _validate(data, compression_type=name)
    assert checked.header.compression == codec
    assert len(checked.batch) < len(data)
    assert read_records(checked.batch) == read_records(data)
    assert crc_is_valid(checked.batch, 0, len(checked.batch))
    kept = ("producer_id", "producer_epoch", "base_sequence", "is_transactional", "max_timestamp")
    for field in kept:
        assert getattr(checked.header, field) == getattr(read_header(data), field)


def test_a_transactional_batch_without_a_producer_id_is_stored_but_cannot_be_packed() -> None:
    data = batch([record(0)], attributes=0x10)
    assert _validate(bytearray(data)).batch == data
    assert _error(data, compression_type="gzip") == Error.UNKNOWN_SERVER_ERROR


def test_the_level_of_the_topic_is_used() -> None:
    data = batch([record(index, value=b"%d" % (index * index)) for index in range(500)])
    sizes = [len(_validate(data, compression_type="gzip", compression_level=level).batch) for level in (1, 9)]
    assert sizes[1] < sizes[0]


def test_a_batch_in_the_topics_codec_is_not_packed_again() -> None:
    data = batch([record(0)], attributes=compression.GZIP)
    assert _validate(data, compression_type="gzip", compression_level=9).batch == data


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compressed_record_may_be_as_large_as_the_topic_takes(codec: int) -> None:
    records = [record(0), record(1, value=bytes(1000)), record(2)]
    body = len(records[1]) - 2  # the record without its size
    _validate(batch(records, attributes=codec), max_decompressed_message_bytes=body)
    sent = batch(records, attributes=codec)
    assert _error(sent, max_decompressed_message_bytes=body - 1) == Error.INVALID_RECORD


@pytest.mark.parametrize("target", ["producer", "gzip"])
def test_a_record_that_came_uncompressed_may_be_larger(target: str) -> None:
    _validate(batch([record(0)]), max_decompressed_message_bytes=1, compression_type=target)


def test_the_size_of_a_compressed_record_counts_before_its_time_and_its_key() -> None:
    sent = batch([record(0, key=None), record(1, value=bytes(100))], attributes=1)
    with pytest.raises(KafkaError) as caught:
        _validate(sent, max_decompressed_message_bytes=50, compacted=True)
    assert not isinstance(caught.value, RecordValidationError)


def test_many_compressed_records_are_measured_where_it_harms_nobody() -> None:
    sent = batch([record(index) for index in range(4_001)], attributes=1)
    rules = RecordRules(max_decompressed_message_bytes=100)
    with pytest.raises(TooMuchEffortError):
        validate(memoryview(sent), rules, NOW_MS, "clicks", 3, LITTLE)
    validate(memoryview(sent), rules, NOW_MS, "clicks", 3)
