"""What makes a partition uncleanable, and what only looks strange."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocol.records.batch import (
    BATCH_OVERHEAD,
    CRC_POS,
    DELETE_HORIZON_BIT,
    append_record,
    build_batch,
    compute_crc,
    patch_crc,
    read_header,
    seal_batch,
)
from storage.cleaning.cleaned_files import CleanedFiles
from storage.cleaning.plan import UncleanableError
from storage.log.partition_log import PartitionLog
from tests.support.cleaning import clean_log
from tests.support.partition_logs import NOW_MS, append, file, names
from tests.unit.storage.cleaning.compacted_logs import (
    closed,
    compacted_log,
    header_at,
    offsets,
    put,
    stored,
)


def test_a_batch_that_doesnt_match_its_crc_isnt_cleaned(log: PartitionLog) -> None:
    put(log, "a=1", "b=1")
    put(log, "a=2")
    closed(log)
    path = file(log, 0, ".log")
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        UncleanableError,
        match=r"orders-0/0+\.log at position 79: the batch at offset 2 doesn't match its CRC",
    ):
        clean_log(log)
    assert path.read_bytes() == data
    assert not [name for name in names(log) if name.endswith(".cleaned")]


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [(8, 2**30, "a batch of 1073741836 bytes"), (8, 10, "a batch of 22 bytes"), (16, 1 << 24, "format 1")],
)
def test_a_header_that_cant_be_one_makes_the_partition_uncleanable(
    log: PartitionLog, position: int, value: int, reason: str
) -> None:
    put(log, "a=1", "b=1")
    closed(log)
    path = file(log, 0, ".log")
    data = bytearray(path.read_bytes())
    data[position : position + 4] = value.to_bytes(4, "big")
    path.write_bytes(data)
    with pytest.raises(UncleanableError, match=reason):
        clean_log(log)


def test_a_segment_that_would_get_larger_than_its_index_can_say_makes_the_partition_uncleanable(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(log, "a=1")
    put(log, "b=1")
    closed(log)
    begin = CleanedFiles.__init__

    def begin_near_the_bound(self: CleanedFiles, *args: Any) -> None:
        begin(self, *args)
        self._written = 2**31 - 100  # nothing of that is on the disk

    monkeypatch.setattr(CleanedFiles, "__init__", begin_near_the_bound)
    with pytest.raises(UncleanableError, match=r"offset 1 it would have 21474836\d\d bytes, of 2147483647"):
        clean_log(log)
    assert not [name for name in names(log) if name.endswith(".cleaned")]
    assert offsets(log) == [0, 1]


def test_records_that_dont_parse_make_the_partition_uncleanable(log: PartitionLog) -> None:
    data = build_batch([(NOW_MS, b"a", b"1", ())])
    data[BATCH_OVERHEAD] = 0x7E
    patch_crc(data, 0, len(data))
    assert compute_crc(data, 0, len(data)) == int.from_bytes(data[CRC_POS : CRC_POS + 4], "big")
    append(log, data)
    with pytest.raises(UncleanableError, match="doesn't fit its size"):
        clean_log(closed(log))


def test_repeated_offsets_in_a_batch_are_cleaned_where_kafka_gives_the_partition_up(
    log: PartitionLog,
) -> None:
    payload = bytearray()
    for key, delta in ((b"a", 0), (b"b", 0), (b"c", 1)):
        append_record(payload, 0, delta, key, b"1", ())
    header = read_header(build_batch([(NOW_MS, b"a", b"1", ())] * 3))._replace(last_offset_delta=2)
    append(log, seal_batch(header, payload, None))
    put(log, "c=2")
    clean_log(closed(log))
    assert [(record.offset, record.key) for _, records in stored(log) for record in records] == [
        (0, b"a"),
        (0, b"b"),
        (3, b"c"),
    ]


def test_an_offset_past_its_batch_supersedes_nothing_later(log: PartitionLog) -> None:
    payload = bytearray()
    append_record(payload, 0, 1000, b"a", b"1", ())
    header = read_header(build_batch([(NOW_MS, b"a", b"1", ())]))
    append(log, seal_batch(header, payload, None))
    put(log, "a=2")
    clean_log(closed(log))
    assert b"2" in [record.value for _, records in stored(log) for record in records]


def test_a_negative_timestamp_hinders_nothing(log: PartitionLog) -> None:
    put(log, "a=1", "b=1", timestamp=-50)
    put(log, "a=2")
    clean_log(closed(log))
    header, records = stored(log)[0]
    assert [record.timestamp for record in records] == [-50]
    assert header.max_timestamp == -1


def test_a_batch_of_thousands_of_records_is_gone_through_piece_by_piece(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=10**7)
    put(log, *(f"k{number % 3000}={number}" for number in range(9000)))
    closed(log)
    assert clean_log(log).stats.records_written == 3000
    assert offsets(log) == list(range(6000, 9000))
    assert not header_at(log, 8000).attributes & DELETE_HORIZON_BIT


def test_a_compressed_record_above_the_topics_new_limit_is_not_cleaned(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for value in (b"v", bytes(100)):
        append(log, build_batch([(NOW_MS, b"a", value, ())], codec=1))
    closed(log)
    log.config = replace(log.config, max_decompressed_message_bytes=107)
    with pytest.raises(UncleanableError, match=r"one of 108 bytes is larger than max\.decompressed\.message"):
        clean_log(log)
    log.config = replace(log.config, max_decompressed_message_bytes=108)
    clean_log(log)
    assert offsets(log)[0] == 1


def test_an_uncompressed_record_may_be_larger_than_the_topic_takes_compressed(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for value in (b"v", bytes(100)):
        append(log, build_batch([(NOW_MS, b"a", value, ())]))
    closed(log)
    log.config = replace(log.config, max_decompressed_message_bytes=1)
    clean_log(log)
    assert offsets(log)[0] == 1
