import struct

import pytest

from protocol.records.batch import (
    COMMIT,
    LOG_APPEND_TIME,
    CorruptRecordError,
    Record,
    UnsupportedMagicError,
    build_batch,
    build_end_txn_marker,
    compression,
    crc_is_valid,
    parse_from,
    read_control_type,
    read_coordinator_epoch,
    read_header,
    read_payload,
    read_records,
)
from tests.support.rebuilt_batches import rebuild_batch
from tests.support.record_bytes import NOW_MS, batch, record, varint

RECORDS = [
    (NOW_MS, b"a", b"1", ()),
    (NOW_MS - 7, None, b"", ((b"h", None), (b"", b"x"))),
    (NOW_MS + 3, b"c", None, ()),
]


def test_records_are_read_as_they_were_put_in() -> None:
    built = build_batch(
        RECORDS, base_offset=40, producer_id=9, producer_epoch=1, base_sequence=2**31 - 1, transactional=True
    )
    assert read_records(built) == [
        Record(40, NOW_MS, 2**31 - 1, b"a", b"1"),
        Record(41, NOW_MS - 7, 0, None, b"", ((b"h", None), (b"", b"x"))),
        Record(42, NOW_MS + 3, 1, b"c", None),
    ]
    assert read_header(built).max_timestamp == NOW_MS + 3


def test_bytes_after_the_batch_are_ignored() -> None:
    built = build_batch(RECORDS)
    assert read_records(built + b"more") == read_records(built)


def test_with_append_time_every_record_has_the_batchs_time_and_keeps_its_own_inside() -> None:
    built = build_batch(RECORDS, log_append_time=NOW_MS + 99)
    assert read_header(built).timestamp_type == LOG_APPEND_TIME
    assert {record.timestamp for record in read_records(built)} == {NOW_MS + 99}
    assert built[61:] == build_batch(RECORDS)[61:]


def test_the_largest_timestamp_of_records_without_one_is_minus_one() -> None:
    assert read_header(build_batch([(-5, None, b"", ())])).max_timestamp == -1


def test_a_control_batch_holds_any_key_and_value() -> None:
    built = build_batch([(NOW_MS, b"\0\0\0\2", b"value", ())], base_offset=3, leader_epoch=4, control=True)
    header = read_header(built)
    assert header.is_control
    assert not header.is_transactional
    assert (header.base_offset, header.partition_leader_epoch, header.base_sequence) == (3, 4, -1)
    assert read_records(built) == [Record(3, NOW_MS, -1, b"\0\0\0\2", b"value")]


def test_a_markers_type_and_coordinator_epoch_are_read_back() -> None:
    marker = build_end_txn_marker(
        COMMIT, coordinator_epoch=12, producer_id=1, producer_epoch=2, timestamp=NOW_MS
    )
    (read,) = read_records(marker)
    assert read_control_type(read.key) == COMMIT
    assert read_coordinator_epoch(read.value) == 12


def test_a_control_record_of_a_later_version_is_read_as_version_0() -> None:
    assert read_control_type(b"\0\7\0\1and more") == 1
    assert read_coordinator_epoch(b"\0\7\0\0\0\5and more") == 5


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0"])
def test_a_control_record_too_short_to_be_one_is_corrupt(data: bytes | None) -> None:
    with pytest.raises(CorruptRecordError):
        read_control_type(data)
    with pytest.raises(CorruptRecordError):
        read_coordinator_epoch(data)


def _log_of_four(**options: object) -> tuple[bytearray, list[Record]]:
    built = build_batch(
        [(NOW_MS + index, b"k%d" % index, b"v", ()) for index in range(4)],
        base_offset=100,
        leader_epoch=5,
        producer_id=9,
        producer_epoch=2,
        base_sequence=30,
        transactional=True,
        **options,  # type: ignore[arg-type]
    )
    return built, read_records(built)


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
def test_records_are_read_one_by_one_from_an_offset_on(codec: int) -> None:
    built, records = _log_of_four(codec=codec)
    for offset in range(99, 106):
        expected = [each for each in records if each.offset >= offset]
        assert [*parse_from(*read_payload(built), offset)] == expected
    holey = rebuild_batch(read_header(built), [records[1], records[3]])
    assert [*parse_from(*read_payload(holey), 102)] == [records[3]]


def test_a_record_that_is_damaged_is_met_when_it_comes_to_it() -> None:
    built, records = _log_of_four()
    header, payload = read_payload(built)
    of_one = len(payload) // 4
    damaged = payload[: 2 * of_one] + b"\x01" + payload[2 * of_one + 1 :]  # this byte is a length of −1
    found = parse_from(header, damaged, 101)
    assert next(found) == records[1]
    with pytest.raises(CorruptRecordError):
        next(found)
    for offset in (103, 200):
        with pytest.raises(CorruptRecordError):
            next(parse_from(header, damaged, offset))
    with pytest.raises(CorruptRecordError, match="after the last record"):
        [*parse_from(header, payload + b"x", 103)]
    with pytest.raises(CorruptRecordError):
        [*parse_from(header, payload[:-1], 103)]


def test_compaction_keeps_the_offsets_and_sequences_of_kept_records() -> None:
    built, records = _log_of_four()
    rebuilt = rebuild_batch(read_header(built), [records[1], records[2]])
    assert read_records(rebuilt) == [records[1], records[2]]
    header = read_header(rebuilt)
    assert crc_is_valid(rebuilt, 0, len(rebuilt))
    assert (header.base_offset, header.last_offset, header.last_sequence) == (100, 103, 33)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS + 1, NOW_MS + 2)
    assert header.is_transactional
    assert header.partition_leader_epoch == 5


def test_compaction_keeps_the_codec() -> None:
    built, records = _log_of_four(codec=compression.GZIP)
    rebuilt = rebuild_batch(read_header(built), records[3:])
    assert read_header(rebuilt).compression == compression.GZIP
    assert read_records(rebuilt) == records[3:]


def test_compaction_keeps_the_append_time() -> None:
    built, records = _log_of_four(log_append_time=NOW_MS + 50)
    rebuilt = rebuild_batch(read_header(built), records[:1])
    assert read_header(rebuilt).max_timestamp == NOW_MS + 50
    assert read_records(rebuilt) == records[:1]


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp_and_leaves_the_times_of_records() -> None:
    built, records = _log_of_four()
    rebuilt = rebuild_batch(read_header(built), records, delete_horizon_ms=NOW_MS + 10**7)
    header = read_header(rebuilt)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + 10**7
    assert read_records(rebuilt) == records
    assert not read_header(rebuild_batch(header, records)).has_delete_horizon


def test_with_no_record_left_a_batch_is_its_header_and_keeps_the_producers_sequence() -> None:
    built, _ = _log_of_four(codec=compression.GZIP)
    rebuilt = rebuild_batch(read_header(built), [])
    header = read_header(rebuilt)
    assert len(rebuilt) == 61
    assert crc_is_valid(rebuilt, 0, 61)
    assert read_records(rebuilt) == []
    assert (header.last_offset, header.producer_id, header.last_sequence) == (103, 9, 33)
    assert (header.base_timestamp, header.max_timestamp) == (-1, NOW_MS + 3)
    assert header.compression == compression.NONE


def test_a_timestamp_overflows_as_a_long_of_java_does() -> None:
    built = batch([record(0, timestamp_delta=2**63 - 1)], base_timestamp=2)
    assert read_records(built)[0].timestamp == -(2**63) + 1


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(record(0)[:-1], id="a record cut short"),
        pytest.param(record(0) + b"\0", id="a byte too many"),
        pytest.param(varint(-1) + record(0)[1:], id="a negative length"),
        pytest.param(b"\x80" * 6, id="a length without end"),
        pytest.param(varint(7) + b"\0\0\0" + varint(9) + b"abc", id="a key longer than its record"),
        pytest.param(record(0, headers=[(None, b"x")]), id="a null header key"),
        pytest.param(varint(6) + b"\0\0\0\1\1" + varint(1000), id="too many headers"),
        pytest.param(varint(6) + b"\0\0\0\1\1" + varint(-1), id="a negative count of headers"),
        pytest.param(varint(7) + b"\0\0\0\1\1\0x", id="a byte behind the headers"),
    ],
)
def test_records_that_do_not_parse_are_corrupt(payload: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        read_records(batch(payload))


@pytest.mark.parametrize("count", [-1, 2])
def test_a_count_that_the_records_contradict_is_corrupt(count: int) -> None:
    with pytest.raises(CorruptRecordError):
        read_records(batch(record(0), records_count=count))


@pytest.mark.parametrize("data", [b"", bytes(60), bytes(12) + bytes(4) + b"\2" + bytes(44)])
def test_bytes_that_hold_no_whole_batch_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        read_records(data)


def test_a_batch_cut_short_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError):
        read_records(build_batch(RECORDS)[:-1])


def test_an_older_format_is_named() -> None:
    built = build_batch(RECORDS)
    struct.pack_into(">b", built, 16, 1)
    with pytest.raises(UnsupportedMagicError):
        read_records(built)
