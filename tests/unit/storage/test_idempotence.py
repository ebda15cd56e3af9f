"""Sequences and epochs of producers: section 1 of what is known of Kafka's transactions."""

from pathlib import Path

import pytest

from protocol.errors import Error, KafkaError
from storage.log.partition_log import AppendOrigin, PartitionLog
from tests.support.partition_logs import NOW_MS, append, batch, open_log, produced

MAX_INT = 2**31 - 1


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path)


def refusal(log: PartitionLog, data: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> Error:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        append(log, data, origin=origin)
    assert log.log_end_offset == end
    return refused.value.error


def test_the_next_sequence_is_one_after_the_last(log: PartitionLog) -> None:
    append(log, produced(0, 3))
    append(log, produced(3, 2))
    assert log.producers.producers[7].last_sequence == 4


def test_a_gap_is_out_of_order(log: PartitionLog) -> None:
    append(log, produced(0, 3))
    assert refusal(log, produced(4)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_is_answered_with_its_original_offsets_and_stored_time(log: PartitionLog) -> None:
    append(log, batch(2))
    first = append(log, produced(0, 3, timestamp=NOW_MS + 4))
    again = append(log, produced(0, 3, timestamp=NOW_MS + 99))
    assert again == first._replace(duplicate=True, log_append_time_ms=NOW_MS + 4)
    assert log.log_end_offset == 5


def test_a_duplicate_is_recognized_by_its_sequences(log: PartitionLog) -> None:
    append(log, produced(0, value_bytes=5))
    assert append(log, produced(0, value_bytes=50)).duplicate


def test_the_last_five_batches_are_known(log: PartitionLog) -> None:
    for sequence in range(6):
        append(log, produced(sequence))
    assert [append(log, produced(sequence)).base_offset for sequence in range(1, 6)] == [1, 2, 3, 4, 5]


def test_the_sixth_last_batch_is_out_of_order(log: PartitionLog) -> None:
    for sequence in range(6):
        append(log, produced(sequence))
    assert refusal(log, produced(0)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_part_of_a_known_batch_is_out_of_order(log: PartitionLog) -> None:
    append(log, produced(0, 3))
    assert refusal(log, produced(0, 2)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_range_over_two_known_batches_is_out_of_order(log: PartitionLog) -> None:
    append(log, produced(0, 2))
    append(log, produced(2, 2))
    assert refusal(log, produced(0, 4)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_begin_again_at_0_after_the_largest(log: PartitionLog) -> None:
    append(log, produced(MAX_INT))
    append(log, produced(0))
    assert log.log_end_offset == 2


def test_a_batch_may_wrap_inside_and_is_then_a_known_duplicate_too(log: PartitionLog) -> None:
    append(log, produced(MAX_INT - 1))
    wrapping = append(log, produced(MAX_INT, 3))
    assert append(log, produced(MAX_INT, 3)) == wrapping._replace(duplicate=True, log_append_time_ms=NOW_MS)
    assert append(log, produced(2)).base_offset == 4


def test_after_the_largest_comes_0_and_nothing_else(log: PartitionLog) -> None:
    append(log, produced(MAX_INT))
    assert refusal(log, produced(1)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_with_any_sequence(log: PartitionLog) -> None:
    append(log, produced(12345))
    append(log, produced(12346))
    assert log.log_end_offset == 2


def test_an_older_epoch_is_refused(log: PartitionLog) -> None:
    append(log, produced(0, epoch=3))
    assert refusal(log, produced(1, epoch=2)) is Error.INVALID_PRODUCER_EPOCH


def test_an_old_epochs_duplicate_is_refused_too(log: PartitionLog) -> None:
    append(log, produced(0, epoch=2))
    append(log, produced(0, epoch=3))
    assert refusal(log, produced(0, epoch=2)) is Error.INVALID_PRODUCER_EPOCH


def test_a_negative_epoch_is_refused(log: PartitionLog) -> None:
    append(log, produced(0))
    assert refusal(log, produced(1, epoch=-1)) is Error.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_begins_at_0(log: PartitionLog) -> None:
    append(log, produced(0, 5))
    assert refusal(log, produced(5, epoch=1)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, produced(0, epoch=1))
    assert log.producers.producers[7].epoch == 1


def test_a_new_epoch_forgets_the_batches_of_the_old_one(log: PartitionLog) -> None:
    append(log, produced(0, 5))
    append(log, produced(0, epoch=1))
    assert [known.last_sequence for known in log.producers.producers[7].batches] == [0]


def test_producers_dont_mind_each_other(log: PartitionLog) -> None:
    append(log, produced(0, producer_id=1))
    append(log, produced(0, producer_id=2))
    append(log, produced(1, producer_id=1))
    assert log.log_end_offset == 3


def test_a_coordinators_sequences_are_not_checked_though_its_epochs_are(log: PartitionLog) -> None:
    append(log, produced(-1, epoch=1), origin=AppendOrigin.COORDINATOR)
    append(log, produced(-1, epoch=1), origin=AppendOrigin.COORDINATOR)
    assert log.log_end_offset == 2
    refused = refusal(log, produced(-1, epoch=0), AppendOrigin.COORDINATOR)
    assert refused is Error.INVALID_PRODUCER_EPOCH


def test_replicated_batches_are_never_refused(log: PartitionLog) -> None:
    append(log, produced(0, epoch=5))
    stale = produced(77, epoch=1, base_offset=1)
    append(log, stale, origin=AppendOrigin.REPLICATION)
    assert log.log_end_offset == 2


def test_a_refused_batch_changes_nothing(log: PartitionLog) -> None:
    append(log, produced(0, 2))
    refusal(log, produced(5, epoch=4))
    assert log.producers.producers[7].epoch == 0
    append(log, produced(2))


def test_a_producer_not_heard_of_for_the_expiration_is_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path, producer_id_expiration_ms=1000)
    append(log, produced(0, producer_id=1, timestamp=NOW_MS))
    append(log, produced(0, producer_id=2, timestamp=NOW_MS + 1))
    assert log.expire_producers(NOW_MS + 1000) == 1
    assert list(log.producers.producers) == [2]
    append(log, produced(55, producer_id=1))


def test_a_producer_with_an_open_transaction_is_not_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path, producer_id_expiration_ms=1000)
    append(log, produced(0, transactional=True))
    assert log.expire_producers(NOW_MS + 10_000) == 0


def test_the_last_batch_survives_a_restart_and_the_one_before_does_not(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, produced(0, 2))
    last = append(log, produced(2, 2, timestamp=NOW_MS + 3))
    log.close()
    log = open_log(tmp_path)
    assert append(log, produced(2, 2)) == last._replace(duplicate=True, log_append_time_ms=NOW_MS + 3)
    assert refusal(log, produced(0, 2)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, produced(4)).base_offset == 4


def test_an_expired_producer_is_not_loaded(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, produced(0))
    log.close()
    log = open_log(tmp_path, now_ms=NOW_MS + 86_400_000)
    assert log.producers.producers == {}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("snapshot", [True, False])
def test_producer_id_0_is_a_producer_like_any_other(tmp_path: Path, clean: bool, snapshot: bool) -> None:
    log = open_log(tmp_path)
    append(log, produced(0, 2, producer_id=0))
    append(log, produced(2, 2, producer_id=0, transactional=True))
    log.close(clean=clean)
    if clean and not snapshot:
        (tmp_path / "orders-0" / "00000000000000000004.snapshot").unlink()
    log = open_log(tmp_path, clean=clean)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 2
    assert append(log, produced(2, 2, producer_id=0, transactional=True)).duplicate
    assert refusal(log, produced(9, producer_id=0)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
