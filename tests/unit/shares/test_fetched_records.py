"""Records that a share fetch has read, in memory or in a file: their batches, and the part that is cut out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.shares.share_fetching import FetchedRecords
from coordinator.share_partition.ports import AcquiredRecords
from protocol.records.batch import CorruptRecordError, walk_batches
from storage.files import FileRange
from storage.log.partition_log import PartitionLog
from tests.support.partition_logs import append, batch, end_transaction, open_log

FAR = 1 << 40


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Return a log of thirty batches of two records, with 5,000 bytes each."""
    log = open_log(tmp_path)
    for _ in range(30):
        append(log, batch(2, value_bytes=2_500))
    return log


def whole(log: PartitionLog) -> bytes:
    return log.read(0, 1 << 20, upper_bound=log.log_end_offset).records


def in_parts(log: PartitionLog, at_once: int) -> FetchedRecords:
    found = log.read(0, 1 << 20, upper_bound=log.log_end_offset, at_once=at_once)
    assert found.rest is not None
    return FetchedRecords([found.records, found.rest])


def bytes_of(chunks: Sequence[bytes | FileRange]) -> bytes:
    return b"".join(chunk.read(0, len(chunk)) if isinstance(chunk, FileRange) else chunk for chunk in chunks)


@pytest.mark.parametrize("at_once", [600, 5_000, 32_000])
def test_batches_in_memory_and_in_a_file(log: PartitionLog, at_once: int) -> None:
    expected = [(header.base_offset, position) for position, header in walk_batches(whole(log))]
    for records in (FetchedRecords(whole(log)), in_parts(log, at_once)):
        batches, positions = records.batches(lambda base_offset: FAR, with_markers=False)
        assert [(each.base_offset, at) for each, at in zip(batches, positions, strict=True)] == expected


def test_the_first_batch_past_the_reachable_offset_is_the_last(log: PartitionLog) -> None:
    batches, _ = in_parts(log, 600).batches(lambda base_offset: base_offset + 9, with_markers=False)
    assert [each.base_offset for each in batches] == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("at_once", [600, 12_000])
@pytest.mark.parametrize(
    ("acquired", "offsets"),
    [
        ([(0, 59)], range(0, 60, 2)),
        ([(7, 7)], [6]),
        ([(8, 8), (13, 14)], [8, 10, 12, 14]),
        ([(58, 70)], [58]),
    ],
)
def test_the_cut_out_bytes_begin_and_end_with_acquired_batches(
    log: PartitionLog, at_once: int, acquired: list[tuple[int, int]], offsets: Sequence[int]
) -> None:
    ranges = [AcquiredRecords(first, last, 1) for first, last in acquired]
    for records in (FetchedRecords(whole(log)), in_parts(log, at_once)):
        cut = bytes_of(records.cut(*records.batches(lambda base_offset: FAR, with_markers=False), ranges))
        assert [header.base_offset for _, header in walk_batches(cut)] == [*offsets]
        assert cut in whole(log)


def test_a_single_batch_is_sent_with_everything_behind_it(log: PartitionLog) -> None:
    torn = whole(log)[:7_000]
    records = FetchedRecords(torn)
    batches, positions = records.batches(lambda base_offset: FAR, with_markers=False)
    assert len(batches) == 1
    assert bytes_of(records.cut(batches, positions, [AcquiredRecords(0, 1, 1)])) == torn


def test_abort_markers_are_recognized_if_the_caller_asks(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.verifies_transactions = False
    for number, commit in enumerate((True, False)):
        append(log, batch(1, producer_id=7, producer_epoch=0, base_sequence=number, transactional=True))
        end_transaction(log, commit)
    for asked in (False, True):
        batches, _ = FetchedRecords(whole(log)).batches(lambda base_offset: FAR, with_markers=asked)
        assert [each.is_abort_marker for each in batches] == [False, False, False, asked]
        assert {(each.producer_id, each.is_transactional) for each in batches} == {(7, True)}


def test_bytes_that_are_no_batch() -> None:
    with pytest.raises(CorruptRecordError):
        FetchedRecords(bytes(100)).batches(lambda base_offset: FAR, with_markers=False)
