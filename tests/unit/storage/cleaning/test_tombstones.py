"""Tombstones, and the delete horizons that decide when they go."""

from pathlib import Path

from protocol.records.batch import (
    BATCH_OVERHEAD,
    append_record,
    build_batch,
    read_records,
    seal_batch,
)
from storage.log.partition_log import PartitionLog
from tests.support.cleaning import clean_log
from tests.support.partition_logs import NOW_MS, append, batches
from tests.unit.storage.cleaning.compacted_logs import (
    RETENTION_MS,
    closed,
    compacted_log,
    header_at,
    offsets,
    put,
    stored,
)


def test_a_tombstone_gets_a_horizon_first_and_goes_when_it_has_passed(log: PartitionLog) -> None:
    put(log, "a=1", "b=2")
    put(log, "a", "b=3")
    put(log, "z=1")
    clean_log(closed(log))
    header, records = stored(log)[0]
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert [(record.offset, record.timestamp, record.value) for record in records] == [
        (2, NOW_MS, None),
        (3, NOW_MS, b"3"),
    ]
    put(log, "x=1")
    clean_log(closed(log), now_ms=NOW_MS + RETENTION_MS - 1)
    assert offsets(log) == [2, 3, 4, 5]
    assert header_at(log, 2) == header
    put(log, "y=1")
    clean_log(closed(log), now_ms=NOW_MS + RETENTION_MS)
    assert offsets(log) == [3, 4, 5, 6]
    # the batch keeps the horizon after its tombstone has gone
    assert header_at(log, 3).base_timestamp == NOW_MS + RETENTION_MS


def test_even_without_retention_a_tombstone_goes_only_in_the_second_pass(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, delete_retention_ms=0)
    put(log, "a=1")
    put(log, "a")
    put(log, "b=1")
    clean_log(closed(log))
    assert offsets(log) == [1, 2]
    put(log, "c=1")
    clean_log(closed(log))
    assert offsets(log) == [2, 3]


def test_a_horizon_doesnt_move_over_a_restart(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    put(log, "a", "b=1")
    clean_log(closed(log))
    horizon_ms = header_at(log, 0).base_timestamp
    log.close()
    log = compacted_log(tmp_path)
    log.update_high_watermark(log.log_end_offset)
    put(log, "c=1")
    clean_log(closed(log), now_ms=NOW_MS + 500)
    assert header_at(log, 0).base_timestamp == horizon_ms == NOW_MS + RETENTION_MS


def test_a_tombstone_that_is_superseded_goes_like_any_record(log: PartitionLog) -> None:
    put(log, "a", "b=1")
    put(log, "a=2")
    clean_log(closed(log))
    assert offsets(log) == [1, 2]
    assert not header_at(log, 1).has_delete_horizon


def test_with_log_append_time_a_horizon_leaves_the_records_their_time(log: PartitionLog) -> None:
    put(log, "a", "b=1", "c=2", timestamp=5, log_append_time=NOW_MS - 7)
    put(log, "b=3")
    clean_log(closed(log))
    header, records = stored(log)[0]
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert header.max_timestamp == NOW_MS - 7
    assert [record.timestamp for record in records] == [NOW_MS - 7, NOW_MS - 7]
    # the records' own deltas lead from the horizon to the batch's time
    payload = next(batches(log))[BATCH_OVERHEAD:]
    as_created = seal_batch(header._replace(attributes=header.attributes & ~8), payload, None)
    assert [record.timestamp for record in read_records(as_created)] == [NOW_MS - 7, NOW_MS - 7]


def test_with_log_append_time_rebuilt_batches_have_no_deltas(log: PartitionLog) -> None:
    append(
        log,
        build_batch([(3, b"a", b"1", ()), (9, b"b", b"2", ()), (5, b"c", b"3", ())], log_append_time=NOW_MS),
    )
    put(log, "a=1")
    clean_log(closed(log))
    header = header_at(log, 1)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS)
    payload = bytearray()
    append_record(payload, 0, 1, b"b", b"2", ())
    append_record(payload, 0, 2, b"c", b"3", ())
    assert next(batches(log))[BATCH_OVERHEAD:] == payload
