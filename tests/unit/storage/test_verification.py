"""A transaction's first batch shows that its coordinator was asked (KIP-890)."""

from pathlib import Path

import pytest

from protocol.errors import Error, KafkaError
from storage.log.partition_log import PartitionLog
from tests.support.partition_logs import NOW_MS, append, end_transaction, open_log, produced, transactional


@pytest.fixture
def verifying(tmp_path: Path) -> PartitionLog:
    log = open_log(tmp_path)
    log.verifies_transactions = True
    return log


def test_an_unverified_transaction_is_refused(verifying: PartitionLog) -> None:
    with pytest.raises(KafkaError) as refused:
        append(verifying, transactional(0))
    assert refused.value.error is Error.INVALID_TXN_STATE


def test_a_transaction_opens_with_the_guard_and_goes_on_without(verifying: PartitionLog) -> None:
    guard = verifying.start_verification(7, 0, 0, False, NOW_MS)
    append(verifying, transactional(0), guard=guard)
    assert verifying.start_verification(7, 1, 0, False, NOW_MS) is None
    append(verifying, transactional(1))


def test_a_guard_from_before_a_marker_is_void(verifying: PartitionLog) -> None:
    guard = verifying.start_verification(7, 0, 0, False, NOW_MS)
    end_transaction(verifying, False)
    with pytest.raises(KafkaError) as refused:
        append(verifying, transactional(0), guard=guard)
    assert refused.value.error is Error.INVALID_TXN_STATE


def test_a_guard_of_version_2_outlives_the_marker_that_began_its_epoch(verifying: PartitionLog) -> None:
    guard = verifying.start_verification(7, 0, 4, True, NOW_MS)
    end_transaction(verifying, False, epoch=4, transaction_version=2)
    append(verifying, transactional(0, epoch=4), guard=guard)


def test_a_guard_of_version_2_is_void_where_another_epoch_ended(verifying: PartitionLog) -> None:
    guard = verifying.start_verification(7, 0, 4, True, NOW_MS)
    end_transaction(verifying, False, epoch=5, transaction_version=2)
    with pytest.raises(KafkaError) as refused:
        append(verifying, transactional(0, epoch=5), guard=guard)
    assert refused.value.error is Error.INVALID_TXN_STATE


def test_verification_refuses_an_old_epoch_at_once(verifying: PartitionLog) -> None:
    append(verifying, produced(0, epoch=4))
    with pytest.raises(KafkaError) as refused:
        verifying.start_verification(7, 0, 3, False, NOW_MS)
    assert refused.value.error is Error.INVALID_PRODUCER_EPOCH


def test_a_first_batch_of_version_2_must_begin_at_0(verifying: PartitionLog) -> None:
    guard = verifying.start_verification(7, 5, 0, True, NOW_MS)
    with pytest.raises(KafkaError) as refused:
        append(verifying, transactional(5), guard=guard)
    assert refused.value.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_first_batch_of_version_1_may_begin_anywhere(verifying: PartitionLog) -> None:
    guard = verifying.start_verification(7, 5, 0, False, NOW_MS)
    append(verifying, transactional(5), guard=guard)


def test_the_lowest_sequence_of_several_waiting_batches_goes_first(verifying: PartitionLog) -> None:
    verifying.start_verification(7, 3, 0, False, NOW_MS)
    guard = verifying.start_verification(7, 0, 0, False, NOW_MS)
    with pytest.raises(KafkaError) as refused:
        append(verifying, transactional(3), guard=guard)
    assert refused.value.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(verifying, transactional(0, 3), guard=guard)


def test_an_announcement_of_an_old_epoch_does_not_lower_the_first_sequence(verifying: PartitionLog) -> None:
    verifying.start_verification(7, 3, 5, False, NOW_MS)
    guard = verifying.start_verification(7, 0, 4, False, NOW_MS)
    append(verifying, transactional(3, epoch=5), guard=guard)


def test_an_announcement_that_came_to_nothing_expires(verifying: PartitionLog) -> None:
    guard = verifying.start_verification(7, 0, 0, False, NOW_MS)
    verifying.expire_producers(NOW_MS + 86_400_000)
    with pytest.raises(KafkaError):
        append(verifying, transactional(0), guard=guard)
