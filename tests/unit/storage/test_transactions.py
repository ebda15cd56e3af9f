"""Open transactions, markers, the last stable offset, and what a read_committed reader is told."""

from pathlib import Path

import pytest

from protocol.errors import Error, KafkaError
from storage.log.partition_log import AbortedTransaction, AppendOrigin, PartitionLog
from tests.support.partition_logs import (
    NOW_MS,
    append,
    batch,
    end_transaction,
    file,
    ints,
    marker,
    names,
    open_log,
    produced,
    transactional,
)

TXN_ENTRY = (2, 8, 8, 8, 8)


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path)


def refused_marker(log: PartitionLog, **options: object) -> Error:
    with pytest.raises(KafkaError) as refused:
        end_transaction(log, True, **options)  # type: ignore[arg-type]
    return refused.value.error


def test_without_transactions_the_last_stable_offset_is_the_high_watermark(log: PartitionLog) -> None:
    log.append(batch(5), leader_epoch=0, now_ms=NOW_MS)
    assert log.last_stable_offset == 0
    log.update_high_watermark(3)
    assert log.last_stable_offset == 3


def test_an_open_transaction_holds_the_last_stable_offset_at_its_first_record(log: PartitionLog) -> None:
    append(log, batch(2))
    append(log, transactional(0, 3))
    append(log, batch(4))
    append(log, transactional(3))
    assert (log.last_stable_offset, log.high_watermark) == (2, 10)


def test_the_end_of_the_transaction_lets_the_last_stable_offset_go(log: PartitionLog) -> None:
    append(log, transactional(0))
    end_transaction(log, True)
    assert log.last_stable_offset == 2


def test_the_earlier_of_two_open_transactions_counts(log: PartitionLog) -> None:
    append(log, transactional(0, producer_id=1))
    append(log, transactional(0, producer_id=2))
    end_transaction(log, True, producer_id=1)
    assert log.last_stable_offset == 1
    end_transaction(log, True, producer_id=2)
    assert log.last_stable_offset == log.log_end_offset


def test_an_ended_transaction_is_unstable_until_its_marker_is_replicated(log: PartitionLog) -> None:
    append(log, transactional(0, 3))
    log.append(marker(True), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(3)
    assert log.last_stable_offset == 0
    log.update_high_watermark(4)
    assert log.last_stable_offset == 4


def test_the_first_unstable_offset_is_not_below_the_batch_in_which_the_log_starts(log: PartitionLog) -> None:
    append(log, transactional(0, 3))
    append(log, transactional(3, 3))
    log.delete_records_before(4)
    assert log.last_stable_offset == 3, "as in Kafka, which looks the log start up"
    log.delete_records_before(6)
    assert log.last_stable_offset == 6


def test_plain_records_of_a_producer_during_its_transaction_are_refused(log: PartitionLog) -> None:
    append(log, transactional(0))
    with pytest.raises(KafkaError) as refused:
        append(log, produced(1))
    assert refused.value.error is Error.INVALID_TXN_STATE


def test_plain_records_after_its_transaction_are_taken(log: PartitionLog) -> None:
    append(log, transactional(0))
    end_transaction(log, True)
    append(log, produced(1))


def test_an_abort_is_written_to_the_transaction_index_and_a_commit_is_not(log: PartitionLog) -> None:
    append(log, transactional(0, 2))
    end_transaction(log, True)
    assert not file(log, 0, ".txnindex").exists()
    append(log, transactional(2, 2))
    end_transaction(log, False)
    assert ints(file(log, 0, ".txnindex").read_bytes(), TXN_ENTRY) == [(0, 7, 3, 5, 6)]


def test_an_abort_says_where_another_open_transaction_begins(log: PartitionLog) -> None:
    append(log, transactional(0, producer_id=1))
    append(log, transactional(0, producer_id=2))
    append(log, transactional(0, producer_id=3))
    end_transaction(log, False, producer_id=1)
    end_transaction(log, False, producer_id=3)
    assert ints(file(log, 0, ".txnindex").read_bytes(), TXN_ENTRY) == [(0, 1, 0, 3, 1), (0, 3, 2, 4, 1)]


def test_an_abort_without_data_is_written_nowhere(log: PartitionLog) -> None:
    append(log, batch())
    end_transaction(log, False)
    assert ".txnindex" not in "".join(names(log))


def test_a_marker_is_kept_in_the_segment_where_it_stands(log: PartitionLog) -> None:
    append(log, transactional(0))
    log.roll(NOW_MS)
    end_transaction(log, False)
    assert ints(file(log, 1, ".txnindex").read_bytes(), TXN_ENTRY) == [(0, 7, 0, 1, 2)]


def test_a_segment_of_a_partition_that_knows_transactions_leaves_an_empty_index_behind(
    log: PartitionLog,
) -> None:
    append(log, transactional(0))
    end_transaction(log, True)
    log.roll(NOW_MS)
    assert file(log, 0, ".txnindex").read_bytes() == b""


def test_a_partition_knows_transactions_while_a_producer_has_one_open_or_has_ended_one(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    append(log, produced(0))
    assert not log.producers.knows_transactions
    append(log, transactional(0, producer_id=8))
    assert log.producers.knows_transactions
    for epoch in (1, 2):
        end_transaction(log, True, producer_id=8, epoch=epoch)
        assert log.producers.knows_transactions
    log.close()
    log = open_log(tmp_path, clean=True)
    assert log.producers.knows_transactions
    log.producers.expire(NOW_MS + 10_000, 1_000)
    assert not log.producers.producers
    assert not log.producers.knows_transactions
    end_transaction(log, True, producer_id=9)
    assert log.producers.knows_transactions
    log.producers.forget(1)
    assert not log.producers.knows_transactions


# ---- markers


def test_a_marker_of_an_older_epoch_is_refused(log: PartitionLog) -> None:
    append(log, transactional(0, epoch=3))
    assert refused_marker(log, epoch=2) is Error.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", [0, 1])
def test_a_marker_of_the_same_epoch_ends_a_transaction_of_versions_0_and_1(
    log: PartitionLog, version: int
) -> None:
    append(log, transactional(0, epoch=3))
    end_transaction(log, True, epoch=3, transaction_version=version)
    assert log.last_stable_offset == 2


def test_a_marker_of_the_same_epoch_does_not_end_one_of_version_2(log: PartitionLog) -> None:
    append(log, transactional(0, epoch=3))
    assert refused_marker(log, epoch=3, transaction_version=2) is Error.INVALID_PRODUCER_EPOCH


def test_a_marker_of_the_next_epoch_ends_one_of_version_2(log: PartitionLog) -> None:
    append(log, transactional(0, epoch=3))
    end_transaction(log, True, epoch=4, transaction_version=2)
    assert log.producers.producers[7].epoch == 4


def test_a_retried_marker_of_version_2_is_appended_again(log: PartitionLog) -> None:
    append(log, transactional(0, epoch=3))
    end_transaction(log, True, epoch=4, transaction_version=2)
    assert end_transaction(log, True, epoch=4, transaction_version=2).base_offset == 2


@pytest.mark.limit("protocol.records.batch.MAX_PRODUCER_EPOCH")
def test_the_largest_epoch_ends_a_transaction_of_version_2_all_the_same(log: PartitionLog) -> None:
    append(log, transactional(0, epoch=32767))
    end_transaction(log, True, epoch=32767, transaction_version=2)


def test_a_marker_of_a_replaced_coordinator_is_fenced(log: PartitionLog) -> None:
    append(log, transactional(0))
    end_transaction(log, True, coordinator_epoch=5)
    assert refused_marker(log, coordinator_epoch=4) is Error.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_of_an_unknown_producer_is_taken_and_completes_nothing(log: PartitionLog) -> None:
    end_transaction(log, True, epoch=9)
    assert (log.log_end_offset, log.producers.producers[7].epoch) == (1, 9)


def test_after_a_marker_of_the_same_epoch_the_sequences_go_on(log: PartitionLog) -> None:
    append(log, transactional(0, 3))
    end_transaction(log, True)
    append(log, transactional(3))


def test_after_a_marker_of_a_higher_epoch_sequences_begin_at_0(log: PartitionLog) -> None:
    append(log, transactional(0, 3))
    end_transaction(log, True, epoch=1)
    with pytest.raises(KafkaError) as refused:
        append(log, transactional(3, epoch=1))
    assert refused.value.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, transactional(0, epoch=1))


def test_a_markers_time_counts_for_the_producers_expiration(log: PartitionLog) -> None:
    append(log, transactional(0))
    end_transaction(log, True, timestamp=NOW_MS + 500)
    assert log.producers.producers[7].last_timestamp_ms == NOW_MS + 500


def test_a_replicated_marker_is_never_refused(log: PartitionLog) -> None:
    append(log, transactional(0, epoch=3))
    stale = marker(True, epoch=1)
    stale[7] = 1
    append(log, stale, origin=AppendOrigin.REPLICATION)
    assert log.last_stable_offset == 2


# ---- reading committed


def test_a_reader_learns_of_the_aborted_transactions_in_its_records(log: PartitionLog) -> None:
    append(log, transactional(0, 2))
    end_transaction(log, False)
    append(log, batch(3))
    result = log.read(0, 10_000, upper_bound=log.last_stable_offset, min_one_batch=True)
    assert log.aborted_transactions(0, result) == [AbortedTransaction(7, 0)]


def test_a_fetch_between_first_record_and_marker_still_learns_of_the_abort(log: PartitionLog) -> None:
    append(log, transactional(0, 2))
    append(log, transactional(2, 2))
    end_transaction(log, False)
    result = log.read(2, 10_000, upper_bound=log.last_stable_offset, min_one_batch=True)
    assert log.aborted_transactions(2, result) == [AbortedTransaction(7, 0)]


def test_a_fetch_after_the_marker_does_not_learn_of_the_abort(log: PartitionLog) -> None:
    append(log, transactional(0, 2))
    end_transaction(log, False)
    append(log, batch(3))
    result = log.read(3, 10_000, upper_bound=log.last_stable_offset, min_one_batch=True)
    assert log.aborted_transactions(3, result) == []


def test_without_index_entries_later_aborts_are_listed_too_as_in_kafka(log: PartitionLog) -> None:
    first = batch(2)
    append(log, first)
    append(log, transactional(0))
    end_transaction(log, False)
    result = log.read(0, len(first), upper_bound=log.last_stable_offset)
    assert log.aborted_transactions(0, result) == [AbortedTransaction(7, 2)]


def test_an_index_entry_past_the_records_read_bounds_the_list(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    first = batch(2)
    append(log, first)
    append(log, batch(2))
    append(log, transactional(0))
    end_transaction(log, False)
    result = log.read(0, len(first), upper_bound=log.last_stable_offset)
    assert log.aborted_transactions(0, result) == []


def test_a_marker_in_a_later_segment_is_found(log: PartitionLog) -> None:
    append(log, transactional(0, 2))
    log.roll(NOW_MS)
    append(log, batch())
    end_transaction(log, False)
    result = log.read(0, 10_000, upper_bound=log.last_stable_offset, min_one_batch=True)
    assert log.aborted_transactions(0, result) == [AbortedTransaction(7, 0)]


def test_a_read_stops_before_an_open_transaction(log: PartitionLog) -> None:
    append(log, batch(2))
    append(log, transactional(0))
    append(log, batch(2))
    committed = log.read(0, 10_000, upper_bound=log.last_stable_offset)
    everything = log.read(0, 10_000, upper_bound=log.high_watermark)
    assert len(committed.records) == len(batch(2))
    assert len(everything.records) > len(committed.records)
    assert log.read(2, 10_000, upper_bound=log.last_stable_offset).records == b""


def test_transactions_survive_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(3))
    append(log, transactional(0, 2))
    log.close()
    log = open_log(tmp_path)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 3
    end_transaction(log, False)
    assert log.last_stable_offset == 6
    assert ints(file(log, 0, ".txnindex").read_bytes(), TXN_ENTRY) == [(0, 7, 3, 5, 6)]
