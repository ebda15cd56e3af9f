"""Bugs that Kafka's log had with transactions, each with its number."""

from pathlib import Path

import pytest

from protocol.errors import Error, KafkaError
from storage.log.partition_log import AppendOrigin, PartitionLog
from tests.support.partition_logs import (
    NOW_MS,
    append,
    batch,
    end_transaction,
    marker,
    open_log,
    transactional,
)

EXPIRATION_MS = 86_400_000


def test_kafka_9807_the_last_stable_offset_waits_for_the_high_watermark_at_every_step(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    steps = [
        (batch(2), AppendOrigin.CLIENT),
        (transactional(0), AppendOrigin.CLIENT),
        (transactional(0, producer_id=8), AppendOrigin.CLIENT),
        (marker(False), AppendOrigin.COORDINATOR),
        (batch(1), AppendOrigin.CLIENT),
        (marker(True, producer_id=8), AppendOrigin.COORDINATOR),
        (batch(1), AppendOrigin.CLIENT),
    ]
    for data, origin in steps:
        log.append(data, leader_epoch=0, now_ms=NOW_MS, origin=origin)
    assert (log.last_stable_offset, log.log_end_offset) == (0, 8)

    found = []
    for high_watermark in range(1, 9):
        log.update_high_watermark(high_watermark)
        found.append(log.last_stable_offset)

    # the markers of 7 and 8 are at 4 and 6; neither ends a transaction before it is itself replicated
    assert found == [1, 2, 2, 2, 3, 3, 7, 8]


def refused_marker(log: PartitionLog, **options: int) -> Error:
    with pytest.raises(KafkaError) as refused:
        end_transaction(log, False, **options)
    return refused.value.error


@pytest.mark.parametrize("clean", [True, False])
def test_kafka_9144_a_replaced_coordinator_stays_fenced_as_long_as_its_successors_marker_is_young(
    tmp_path: Path, clean: bool
) -> None:
    log = open_log(tmp_path)
    append(log, transactional(0, timestamp=NOW_MS))
    ended_ms = NOW_MS + EXPIRATION_MS - 1
    end_transaction(log, True, coordinator_epoch=5, timestamp=ended_ms)

    now_ms = NOW_MS + EXPIRATION_MS + 1
    assert log.expire_producers(now_ms) == 0
    assert refused_marker(log, coordinator_epoch=4) is Error.TRANSACTION_COORDINATOR_FENCED

    log.close()
    again = open_log(tmp_path, clean=clean, now_ms=now_ms)
    assert refused_marker(again, coordinator_epoch=4) is Error.TRANSACTION_COORDINATOR_FENCED
    assert again.expire_producers(ended_ms + EXPIRATION_MS) == 1
