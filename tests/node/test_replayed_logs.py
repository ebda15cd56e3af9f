"""The check of a node's logs that ends each test notices what a log no longer knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.server import Server
from protocol.errors import Error
from storage.log.partition_log import PartitionLog
from tests.node.compacted import cleaned, fill, partition_of, with_topic
from tests.node.transactional import Producer, coordinating
from tests.support.nodes import check_logs
from tests.support.replay import check_log
from tests.support.whole_server import clock_of, crash

INTERVAL = "log.index.interval.bytes=100"
"""The batches here have some 70 bytes each."""
IN_CLOSED, IN_ACTIVE = 0, 1


async def written(folder: Path) -> tuple[Server, PartitionLog]:
    """Start a node with a log of two segments: one with an aborted transaction, and one with an open transaction."""
    node = await coordinating(folder, INTERVAL)
    log = node.partitions.get("t", 0).log
    for transactional_id in ("aborted", "open"):
        producer = Producer(node, transactional_id).begin()
        for _ in range(4):
            assert producer.send() is Error.NONE
            clock_of(node).advance_ms(1)
        if transactional_id == "aborted":
            assert producer.end(commit=False) is Error.NONE
            log.roll(node.clock.now_ms())
    check_logs(node)
    assert [log.producers.producers[id_].txn_first_offset for id_ in log.producers.producers] == [-1, 5]
    return node, log


def emptied(suffix: str, slot: int) -> Callable[[PartitionLog], object]:
    return lambda log: sorted(Path(log.directory).glob(f"*{suffix}"))[slot].write_bytes(b"")


def forget_producer(slot: int) -> Callable[[PartitionLog], object]:
    return lambda log: log.producers.producers.pop([*log.producers.producers][slot])


def forget_transaction(log: PartitionLog) -> None:
    [*log.producers.producers.values()][1].txn_first_offset = -1


def forget_sequence(log: PartitionLog) -> None:
    [*log.producers.producers.values()][1].batches.clear()


def forget_unstable(log: PartitionLog) -> None:
    log.first_unstable_offset = -1


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(emptied(".index", IN_CLOSED), id="index"),
        pytest.param(emptied(".timeindex", IN_CLOSED), id="time index"),
        pytest.param(emptied(".txnindex", IN_CLOSED), id="transaction index"),
        pytest.param(emptied(".index", IN_ACTIVE), id="active index"),
        pytest.param(emptied(".timeindex", IN_ACTIVE), id="active time index"),
        pytest.param(forget_producer(0), id="producer"),
        pytest.param(forget_producer(1), id="producer with an open transaction"),
        pytest.param(forget_transaction, id="open transaction"),
        pytest.param(forget_sequence, id="sequence"),
        pytest.param(forget_unstable, id="last stable offset"),
    ],
)
async def test_records_missing_from_a_log_are_noticed(
    tmp_path: Path, harm: Callable[[PartitionLog], object]
) -> None:
    node, log = await written(tmp_path)
    harm(log)
    with pytest.raises(AssertionError, match=r"t-0"):
        check_logs(node)
    crash(node)


@pytest.mark.parametrize("harm", [forget_producer(1), forget_transaction, forget_sequence])
async def test_missing_records_are_noticed_though_the_log_starts_later(
    tmp_path: Path, harm: Callable[[PartitionLog], object]
) -> None:
    node, log = await written(tmp_path)
    log.update_high_watermark(log.log_end_offset)
    log.delete_records_before(6)
    log.apply_retention(node.clock.now_ms())
    assert log.base_offsets == [5]
    check_logs(node)
    harm(log)
    with pytest.raises(AssertionError, match=r"t-0"):
        check_logs(node)
    crash(node)


async def test_a_producer_whose_batches_lie_below_the_log_start_may_be_forgotten(tmp_path: Path) -> None:
    node, log = await written(tmp_path)
    log.delete_records_before(5)
    forget_producer(0)(log)
    check_logs(node)
    crash(node)


async def test_a_producer_that_is_silent_for_long_may_be_forgotten(tmp_path: Path) -> None:
    node, log = await written(tmp_path)
    clock_of(node).advance_ms(log.config.producer_id_expiration_ms)
    log.expire_producers(node.clock.now_ms())
    assert len(log.producers.producers) == 1
    check_logs(node)
    crash(node)


async def test_rebuilt_indexes_lack_nothing(tmp_path: Path) -> None:
    node, _ = await written(tmp_path)
    crash(node)
    node = await coordinating(tmp_path, INTERVAL)
    check_log(node.partitions.get("t", 0).log, node.clock.now_ms())


async def test_indexes_of_cleaned_segments_lack_nothing(tmp_path: Path) -> None:
    node = await with_topic(tmp_path, INTERVAL)
    fill(node, keys=20)
    assert await cleaned(node) is None
    log = partition_of(node).log
    first = min(Path(log.directory).glob("*.index"))
    assert first.stat().st_size > 0
    check_logs(node)
    first.write_bytes(b"")
    with pytest.raises(AssertionError, match="entries are missing"):
        check_logs(node)
    crash(node)


async def test_a_start_counts_the_bytes_to_the_next_entry_again(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, INTERVAL)
    producer = Producer(node, "before").begin()
    assert [producer.send(), producer.send()] == [Error.NONE] * 2
    await node.stop()
    node = await coordinating(tmp_path, INTERVAL)
    producer = Producer(node, "behind").begin()
    assert [producer.send(), producer.send()] == [Error.NONE] * 2
    check_logs(node)
    with pytest.raises(AssertionError, match="entries are missing"):
        check_log(node.partitions.get("t", 0).log, node.clock.now_ms())
