"""Transactions in a cleaned log: aborted records go, markers wait, and `.txnindex` goes along with them."""

from pathlib import Path

from protocol.records.batch import BATCH_OVERHEAD
from storage.log.partition_log import PartitionLog
from tests.support.cleaning import clean_log, plan_of
from tests.support.compacted_history import read_committed
from tests.support.partition_logs import NOW_MS, end_transaction, file
from tests.unit.storage.cleaning.compacted_logs import (
    RETENTION_MS,
    closed,
    compacted_log,
    header_at,
    offsets,
    put,
    stored,
)

LATER_MS = NOW_MS + RETENTION_MS


def send(log: PartitionLog, *pairs: str, producer_id: int = 7, epoch: int = 0, sequence: int = 0) -> int:
    result = put(
        log, *pairs, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    return result.base_offset


def bases(log: PartitionLog) -> list[int]:
    return [header.base_offset for header, _records in stored(log)]


def clean_on(log: PartitionLog, now_ms: int = NOW_MS, *, first_dirty: int = 0) -> int:
    """Add a record without a producer, so that the segment's end doesn't matter, and clean."""
    put(log, "end=1")
    return clean_log(closed(log), now_ms=now_ms, first_dirty=first_dirty).first_dirty_offset


def test_aborted_records_go_and_supersede_nothing(log: PartitionLog) -> None:
    put(log, "a=1")
    send(log, "a=2", "b=2")
    end_transaction(log, False, epoch=1, transaction_version=2)
    clean_on(log)
    assert offsets(log) == [0, 3, 4]
    assert [(found[1], found[2]) for _offset, found in read_committed(log)] == [(b"a", b"1"), (b"end", b"1")]


def test_committed_records_are_like_any(log: PartitionLog) -> None:
    put(log, "a=1")
    send(log, "a=2", "b=2")
    end_transaction(log, True, epoch=1, transaction_version=2)
    put(log, "b=3")
    clean_on(log)
    assert offsets(log) == [1, 3, 4, 5]


def test_the_marker_of_an_aborted_transaction_goes_in_its_third_pass(log: PartitionLog) -> None:
    send(log, "a=2")
    end_transaction(log, False, epoch=1, transaction_version=2)
    # a producer's state protects its marker, too
    log.expire_producers(NOW_MS + 10**9)
    end = clean_on(log)
    assert offsets(log) == [1, 2]
    assert not header_at(log, 1).has_delete_horizon
    [entry] = log.segments[0].txn_index.records
    assert entry == (7, 0, 1, 2)

    end = clean_on(log, first_dirty=end)
    assert header_at(log, 1).base_timestamp == LATER_MS
    assert log.segments[0].txn_index.records == []
    end = clean_on(log, LATER_MS - 1, first_dirty=end)
    assert 1 in offsets(log)
    clean_on(log, LATER_MS, first_dirty=end)
    assert 1 not in offsets(log)
    assert 1 not in bases(log)


def test_the_marker_of_a_committed_transaction_waits_until_its_data_is_gone(log: PartitionLog) -> None:
    send(log, "a=2")
    end_transaction(log, True, epoch=1, transaction_version=2)
    log.expire_producers(NOW_MS + 10**9)
    end = clean_on(log)
    end = clean_on(log, first_dirty=end)
    assert not header_at(log, 1).has_delete_horizon
    put(log, "a=3")
    end = clean_on(log, first_dirty=end)
    # this pass has still seen the data
    assert 0 not in offsets(log)
    assert not header_at(log, 1).has_delete_horizon
    end = clean_on(log, first_dirty=end)
    assert header_at(log, 1).has_delete_horizon
    clean_on(log, LATER_MS, first_dirty=end)
    assert 1 not in bases(log)


def test_the_marker_of_an_empty_transaction_gets_its_horizon_at_once(log: PartitionLog) -> None:
    end_transaction(log, False, epoch=1)
    end_transaction(log, True, epoch=1, producer_id=8)
    log.expire_producers(NOW_MS + 10**9)
    clean_on(log)
    assert [header.base_timestamp for header, _ in stored(log)[:2]] == [LATER_MS, LATER_MS]
    assert log.segments[0].txn_index.records == []


def test_if_the_epoch_rises_at_the_end_only_the_marker_is_kept_for_its_producer(
    log: PartitionLog,
) -> None:
    send(log, "a=1")
    end_transaction(log, False, epoch=1, transaction_version=2)
    end = clean_on(log)
    assert bases(log) == [1, 2]
    end = clean_on(log, first_dirty=end)
    end = clean_on(log, LATER_MS, first_dirty=end)
    # the marker's record is gone, and its header keeps the epoch
    header = header_at(log, 1)
    assert (header.is_control, header.records_count, header.producer_epoch) == (True, 0, 1)
    assert (header.size_bytes, header.has_delete_horizon) == (BATCH_OVERHEAD, False)
    end = clean_on(log, LATER_MS + 10**6, first_dirty=end)
    assert header_at(log, 1) == header
    log.expire_producers(NOW_MS + 10**9)
    clean_on(log, LATER_MS, first_dirty=end)
    assert 1 not in bases(log)


def test_if_the_epoch_stays_the_last_batch_is_kept_and_keeps_its_marker(log: PartitionLog) -> None:
    send(log, "a=1")
    send(log, "a=2", sequence=1)
    end_transaction(log, False)
    end = clean_on(log)
    for _pass in range(4):
        end = clean_on(log, LATER_MS + 10**6, first_dirty=end)
        assert bases(log)[:2] == [1, 2]
        assert header_at(log, 1).records_count == 0
        assert (header_at(log, 2).records_count, header_at(log, 2).has_delete_horizon) == (1, False)
        assert log.segments[0].txn_index.records == [(7, 0, 2, 3)]
    send(log, "b=1", sequence=2)
    end_transaction(log, True)
    end = clean_on(log, first_dirty=end)
    assert 1 not in bases(log)


def test_all_markers_of_the_current_epoch_are_kept_if_none_of_its_data_is_known(log: PartitionLog) -> None:
    for _ in range(3):
        end_transaction(log, True, epoch=4)
    end = clean_on(log)
    clean_on(log, LATER_MS, first_dirty=end)
    assert bases(log)[:3] == [0, 1, 2]
    assert [header.records_count for header, _ in stored(log)[:3]] == [0, 0, 0]


def test_an_open_transaction_leaves_the_segment_that_it_began_in(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    put(log, "a=1")
    put(log, "a=2")
    closed(log)
    put(log, "a=3")
    send(log, "b=1")
    closed(log)
    put(log, "a=4")
    closed(log)
    assert log.last_stable_offset == 3
    clean_log(log, plan_of(log, first_uncleanable=log.last_stable_offset))
    assert offsets(log) == [1, 2, 3, 4]


def test_aborted_data_is_removed_before_its_marker_is_reached(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    send(log, "a=1")
    put(log, "b=1")
    closed(log)
    put(log, "c=1")
    closed(log)
    end_transaction(log, False, epoch=1, transaction_version=2)
    put(log, "d=1")
    closed(log)
    plan = plan_of(log, first_uncleanable=log.base_offsets[1])
    clean_log(log, plan)
    assert offsets(log) == [1, 2, 3, 4]
    assert dict(read_committed(log)).keys() == {1, 2, 4}
    # the pass that reaches the marker doesn't see its data
    log.expire_producers(NOW_MS + 10**9)
    clean_log(log, first_dirty=plan.first_uncleanable_offset)
    assert header_at(log, 3).has_delete_horizon


def test_a_transaction_over_a_segments_end_keeps_its_entry_in_the_segment_of_its_marker(
    tmp_path: Path,
) -> None:
    log = compacted_log(tmp_path, segment_bytes=400)
    send(log, "a=1")
    put(log, "b=1", "c=" + "1" * 100)
    closed(log)
    end_transaction(log, False, epoch=1, transaction_version=2)
    put(log, "d=" + "1" * 100)
    closed(log)
    clean_log(log)
    assert log.base_offsets == [0, 3, 5]
    assert [segment.txn_index.records for segment in log.segments] == [[], [(7, 0, 3, 4)], []]


def test_kafkas_files_have_no_transaction_index_where_there_is_nothing_to_say(log: PartitionLog) -> None:
    put(log, "a=1")
    clean_log(closed(log), plan_of(log, keep_txn_index=False))
    assert not file(log, 0, ".txnindex").exists()


def test_a_partition_that_knows_transactions_keeps_an_empty_index(log: PartitionLog) -> None:
    send(log, "a=1")
    end_transaction(log, True)
    clean_log(closed(log))
    assert file(log, 0, ".txnindex").read_bytes() == b""


def test_a_transaction_that_ended_before_the_dirty_part_aborts_nothing_in_it(
    log: PartitionLog,
) -> None:
    put(log, "X=old")
    send(log, "b=1")
    end_transaction(log, False)
    put(log, "c=1", "d=1")
    send(log, "X=new", sequence=1)
    end_transaction(log, True)
    closed(log)
    # the first pass ends within the segment, behind the marker
    first = clean_log(log, max_keys=2)
    assert first.first_dirty_offset == 4
    clean_log(log, first_dirty=4, max_keys=100)
    assert [record.value for _, records in stored(log) for record in records if record.key == b"X"] == [
        b"new"
    ]


def test_aborted_transactions_that_ended_below_the_log_start_are_forgotten(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, cleanup_policy=frozenset({"compact", "delete"}))
    send(log, "a=1")
    end_transaction(log, False, epoch=1, transaction_version=2)
    send(log, "b=1", epoch=1)
    end_transaction(log, False, epoch=2, transaction_version=2)
    put(log, "c=1")
    closed(log)
    log.delete_records_before(3)
    clean_log(log)
    # Kafka does so, too: nobody reads it
    assert offsets(log) == [0, 1, 3, 4]
    assert header_at(log, 1).has_delete_horizon
    assert log.segments[0].txn_index.records == [(7, 2, 3, 4)]
