"""What cleaning does with a batch without transactions: it is copied, made anew, emptied or dropped."""

from array import array
from pathlib import Path

import pytest

from protocol.records import compression
from protocol.records.batch import (
    BATCH_OVERHEAD,
    build_batch,
)
from storage.log.partition_log import PartitionLog
from storage.producer_state import CachedBatch, Producer
from tests.support.cleaning import clean_log, plan_of
from tests.support.partition_logs import NOW_MS, append, batches, names
from tests.support.record_bytes import batch, record
from tests.unit.storage.cleaning.compacted_logs import (
    closed,
    compacted_log,
    header_at,
    offsets,
    put,
    stored,
)


def test_the_latest_record_of_each_key_stays(log: PartitionLog) -> None:
    put(log, "a=1", "b=2")
    put(log, "a=3", "c=4")
    put(log, "b=5")
    result = clean_log(closed(log))
    assert offsets(log) == [2, 3, 4]
    assert result.first_dirty_offset == 5
    assert (result.stats.records_read, result.stats.records_written, result.stats.keys) == (5, 3, 3)
    assert log.log_start_offset == 0


def test_a_batch_kept_whole_is_copied_byte_for_byte(log: PartitionLog) -> None:
    put(log, "a=1", "b=2", leader_epoch=3, base_sequence=0)
    put(log, "c=1", codec=compression.GZIP)
    before = list(batches(log))
    clean_log(closed(log))
    assert list(batches(log)) == before


def test_a_batch_kept_in_part_keeps_its_offsets_and_its_writer(log: PartitionLog) -> None:
    put(log, "a=1", "b=2", "a=3", "c=4", producer_id=7, producer_epoch=2, base_sequence=5)
    put(log, "c=5")
    before = header_at(log, 0)
    clean_log(closed(log))
    header, records = stored(log)[0]
    assert [(record.offset, record.key, record.sequence) for record in records] == [
        (1, b"b", 6),
        (2, b"a", 7),
    ]
    assert header._replace(batch_length=0, crc=0) == before._replace(batch_length=0, crc=0, records_count=2)


def test_the_base_timestamp_becomes_that_of_the_first_record_that_stays(log: PartitionLog) -> None:
    append(
        log,
        build_batch([(NOW_MS, b"a", b"1", ()), (NOW_MS + 5, b"b", b"2", ()), (NOW_MS + 3, b"c", b"3", ())]),
    )
    put(log, "a=4")
    clean_log(closed(log))
    header, records = stored(log)[0]
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS + 5, NOW_MS + 5)
    assert [record.timestamp for record in records] == [NOW_MS + 5, NOW_MS + 3]


def test_headers_and_empty_values_stay_as_they_are(log: PartitionLog) -> None:
    kept = (NOW_MS + 9, b"b", b"", ((b"h", b"x"), (b"n", None)))
    append(log, build_batch([(NOW_MS, b"a", b"1", ()), kept]))
    put(log, "a=2")
    clean_log(closed(log))
    [record] = stored(log)[0][1]
    assert (record.timestamp, record.key, record.value, record.headers) == kept


@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD])
def test_a_compressed_batch_is_compressed_again(log: PartitionLog, codec: int) -> None:
    put(log, *(f"k{number % 50}={'x' * 40}{number}" for number in range(200)), codec=codec)
    clean_log(closed(log))
    [(header, records)] = stored(log)
    assert header.compression == codec
    assert [record.offset for record in records] == list(range(150, 200))
    assert header.last_offset == 199


@pytest.mark.parametrize("delta", [-2, -200])
def test_a_record_whose_offset_would_lie_before_its_batch_stays(log: PartitionLog, delta: int) -> None:
    """Kafka accepts such a batch if it is uncompressed, and so do we."""
    put(log, "x=1", "y=1", "z=1")
    append(log, batch([record(0, key=b"a"), record(delta, key=b"b")]))
    put(log, "a=2")
    clean_log(closed(log))
    assert [[found.key for found in records] for _header, records in stored(log)] == [
        [b"x", b"y", b"z"],
        [b"b"],
        [b"a"],
    ]


def test_more_keys_than_offsets_end_the_pass_where_the_map_is_full(log: PartitionLog) -> None:
    append(log, batch([record(9, key=b"k%d" % number) for number in range(10)]))
    result = clean_log(closed(log), first_dirty=8)
    assert result.first_dirty_offset == 10
    assert [len(records) for _header, records in stored(log)] == [10]


def test_records_without_a_key_go(log: PartitionLog) -> None:
    put(log, "=1", "a=2", "=3")
    clean_log(closed(log))
    assert offsets(log) == [1]


def test_the_empty_key_is_a_key(log: PartitionLog) -> None:
    append(log, build_batch([(NOW_MS, b"", b"1", ()), (NOW_MS, b"", b"2", ())]))
    clean_log(closed(log))
    assert offsets(log) == [1]


# ---- what stays empty


def test_the_batch_before_the_high_watermark_stays_though_it_is_empty(log: PartitionLog) -> None:
    put(log, "=1", "=2")
    put(log, "=3", "=4", leader_epoch=4, codec=compression.GZIP)
    clean_log(closed(log))
    [(header, records)] = stored(log)
    assert records == []
    assert (header.base_offset, header.last_offset, header.records_count) == (2, 3, 0)
    assert (header.size_bytes, header.attributes, header.base_timestamp) == (BATCH_OVERHEAD, 0, -1)
    assert header.max_timestamp == NOW_MS
    assert log.segments[0].next_offset() == 4


def test_the_batch_before_the_uncleanable_part_goes_if_the_high_watermark_lies_after_it(
    log: PartitionLog,
) -> None:
    """KAFKA-20452. Up to Kafka 4.3 the batch stayed, empty."""
    put(log, "=1", "=2")
    put(log, "=3", "=4")
    log = closed(log)
    put(log, "k=5")
    log.update_high_watermark(log.log_end_offset)
    clean_log(log)
    assert [header.base_offset for header, _records in stored(log)] == [4]


def test_the_last_batch_of_an_idempotent_producer_stays_though_it_is_empty(log: PartitionLog) -> None:
    for sequence in range(3):
        put(log, "a=1", producer_id=5, producer_epoch=0, base_sequence=sequence)
    put(log, "a=9")
    clean_log(closed(log))
    assert offsets(log) == [3]
    header = header_at(log, 2)
    assert (header.producer_id, header.base_sequence, header.records_count) == (5, 2, 0)


def test_an_empty_batch_goes_when_its_producer_has_written_again_or_is_forgotten(log: PartitionLog) -> None:
    put(log, "a=1", producer_id=5, producer_epoch=0, base_sequence=0)
    put(log, "a=1", producer_id=6, producer_epoch=0, base_sequence=0)
    put(log, "a=9")
    clean_log(closed(log))
    assert [header.base_offset for header, _ in stored(log)] == [0, 1, 2]
    put(log, "b=1", producer_id=5, producer_epoch=0, base_sequence=1)
    put(log, "a=10")
    clean_log(closed(log))
    assert [header.base_offset for header, _ in stored(log)] == [1, 3, 4]
    log.expire_producers(NOW_MS + 10**9)
    put(log, "c=1")
    clean_log(closed(log))
    assert [header.base_offset for header, _ in stored(log)] == [3, 4, 5]


def test_a_producer_whose_last_batch_is_empty_is_known_from_the_log_alone(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    put(log, "a=1", "b=1", producer_id=5, producer_epoch=3, base_sequence=4)
    put(log, "a=2", "b=2")
    clean_log(closed(log))
    log.close(clean=False)
    for name in names(log):
        if name.endswith(".snapshot"):
            (Path(log.directory) / name).unlink()
    log = compacted_log(tmp_path, clean=False)
    [producer] = log.producers.producers.values()
    assert (producer.producer_id, producer.epoch, producer.last_sequence) == (5, 3, 5)
    repeated = put(log, "a=1", "b=1", producer_id=5, producer_epoch=3, base_sequence=4)
    assert (repeated.base_offset, repeated.duplicate) == (0, True)
    assert put(log, "a=1", producer_id=5, producer_epoch=3, base_sequence=6).base_offset == 4


# ---- how far a pass comes


def test_a_full_map_ends_the_pass_and_the_next_one_goes_on(log: PartitionLog) -> None:
    put(log, "a=1", "b=2", "c=3", "a=4")
    put(log, "c=5", "b=6")
    closed(log)
    first = clean_log(log, max_keys=2)
    # the third key is the first that doesn't fit
    assert first.first_dirty_offset == 2
    assert offsets(log) == [0, 1, 2, 3, 4, 5]
    second = clean_log(log, first_dirty=2, max_keys=2)
    assert second.first_dirty_offset == 4
    assert offsets(log) == [1, 2, 3, 4, 5]
    third = clean_log(log, first_dirty=4, max_keys=2)
    assert third.first_dirty_offset == 6
    assert offsets(log) == [3, 4, 5]


def test_records_above_a_full_map_stay_but_tombstones_there_get_their_horizon(log: PartitionLog) -> None:
    put(log, "a=1", "b=2")
    put(log, "=3", "c", "a=5")
    result = clean_log(closed(log), max_keys=2)
    # the batch behind it had added nothing when its key didn't fit
    assert result.first_dirty_offset == 2
    assert offsets(log) == [0, 1, 2, 3, 4]
    assert header_at(log, 3).has_delete_horizon


def test_clean_segments_lose_records_superseded_in_the_dirty_part(log: PartitionLog) -> None:
    put(log, "a=1", "b=1")
    clean_log(closed(log))
    put(log, "a=2")
    clean_log(closed(log), first_dirty=2)
    assert offsets(log) == [1, 2]


def test_a_pass_without_anything_dirty_changes_nothing(log: PartitionLog) -> None:
    put(log, "a=1", "a=2")
    closed(log)
    before = list(batches(log))
    assert clean_log(log, first_dirty=2).first_dirty_offset == 2
    assert list(batches(log)) == before


def test_the_uncleanable_offset_is_rounded_down_to_its_segment(log: PartitionLog) -> None:
    put(log, "a=1")
    closed(log)
    put(log, "a=2")
    put(log, "a=3")
    closed(log)
    plan = plan_of(log, first_uncleanable=2)
    assert plan.first_uncleanable_offset == 1
    assert clean_log(log, plan).first_dirty_offset == 1
    assert offsets(log) == [0, 1, 2]


def test_a_plan_describes_its_producers_in_numbers_only(log: PartitionLog) -> None:
    log.producers.producers[7] = Producer(
        7, 1, batches=[CachedBatch(0, 0, 9, 9, 0), CachedBatch(1, 2, 10, 11, 0)]
    )
    log.producers.producers[8] = Producer(8, 3)
    assert plan_of(log).producers == array("q", [7, 8, 1, 3, 11, -1])
