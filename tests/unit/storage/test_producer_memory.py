"""The number of known producers is bounded. Those that wrote the longest ago are forgotten."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.disks.log_dirs import LogDirs
from storage import producer_snapshot, producer_state
from storage import producer_state as producer_memory
from storage.log.partition_log import PartitionLog
from storage.producer_state import MOST_IN_NODE, MOST_IN_PARTITION, CachedBatch, Producer
from tests.support.partition_logs import NOW_MS, append, end_transaction, open_log, produced
from tests.unit.storage.log_directories import UNIQUE, log_of, opened

KEPT, MANY = 999, 1000  # producer ids


@pytest.fixture
def _sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_IN_PARTITION == 100_000
    monkeypatch.setattr(producer_memory, "MOST_IN_PARTITION", 16)


@pytest.fixture
def _thirty_two_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_IN_NODE == 250_000
    monkeypatch.setattr(producer_memory, "MOST_IN_NODE", 32)


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def known(log: PartitionLog) -> list[int]:
    return sorted(log.producers.producers)


def made_up(log: PartitionLog, count: int, first: int = MANY) -> None:
    """Append one batch each of so many producers. Each timestamp is earlier than the one before."""
    for producer_id in range(first, first + count):
        append(log, produced(0, producer_id=producer_id, timestamp=NOW_MS - producer_id))


@pytest.mark.limit("storage.producer_state.MOST_IN_PARTITION")
@pytest.mark.usefixtures("_sixteen")
def test_past_the_bound_an_eighth_go_that_wrote_the_longest_ago(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    made_up(log, 16)
    assert known(log) == [*range(MANY, MANY + 16)]
    made_up(log, 1, MANY + 16)
    assert known(log) == [*range(MANY + 2, MANY + 17)]
    made_up(log, 100, MANY + 17)
    assert 14 <= len(known(log)) <= 16
    assert known(log)[-1] == MANY + 116


@pytest.mark.usefixtures("_sixteen")
def test_producers_that_keep_writing_or_have_an_open_transaction_stay(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, produced(0, producer_id=5, transactional=True, timestamp=1))
    for sequence in range(40):
        append(log, produced(sequence, producer_id=KEPT, timestamp=1))
        made_up(log, 10, MANY + 10 * sequence)
    assert {5, KEPT} <= {*known(log)}
    assert log.producers.first_unstable_offset == 0
    end_transaction(log, True, producer_id=5)
    made_up(log, 40, 10_000)
    assert 5 not in known(log)


@pytest.mark.usefixtures("_sixteen")
def test_a_forgotten_producer_goes_on_with_any_sequence(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, produced(0, producer_id=KEPT))
    made_up(log, 40)
    assert not append(log, produced(7, producer_id=KEPT)).duplicate
    assert log.producers.producers[KEPT].last_sequence == 7


@pytest.mark.usefixtures("_sixteen")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 1000])
def test_a_start_knows_the_same_producers(tmp_path: Path, clean: bool, segment_bytes: int) -> None:
    log = open_log(tmp_path, segment_bytes=segment_bytes)
    made_up(log, 50)
    append(log, produced(0, producer_id=1, transactional=True))
    # only a marker makes this producer known, as with transactions V2
    end_transaction(log, True, producer_id=1, epoch=1)
    before = known(log)
    log.close(clean=clean)
    again = open_log(tmp_path, clean=clean, segment_bytes=segment_bytes)
    assert known(again) == before
    made_up(again, 3, 3000)
    assert 1 not in known(again)


@pytest.mark.usefixtures("_sixteen")
def test_the_producers_are_not_searched_again_with_each_newcomer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    silent = producer_memory.longest_silent

    def counted(orders: dict[int, int], count: int) -> list[int]:
        looked.append(count)
        return silent(orders, count)

    monkeypatch.setattr(producer_state, "longest_silent", counted)
    log = open_log(tmp_path)
    for producer_id in range(40):
        append(log, produced(0, producer_id=producer_id, transactional=True))
    assert known(log) == [*range(40)]
    assert len(looked) == (40 - 16) // 2


@pytest.mark.usefixtures("_sixteen")
def test_of_a_snapshot_the_latest_writers_and_those_with_open_transactions_are_read() -> None:
    producers = [
        Producer(each, 0, -1, NOW_MS - each, -1, [CachedBatch(0, 0, each, each, NOW_MS - each)])
        for each in range(100)
    ]
    producers += [Producer(200, 1, 3, NOW_MS), Producer(201, 1, -1, 1, 0, [CachedBatch(0, 0, 0, 0, 1)])]
    read = producer_snapshot.decode(producer_snapshot.encode(producers))
    assert {producer.producer_id for producer in read} == {201, *range(85, 100)}


@pytest.mark.usefixtures("_sixteen")
def test_guards_of_verified_transactions_have_the_same_bound(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for producer_id in range(100):
        log.start_verification(producer_id, 0, 0, False, NOW_MS)
    verifications = log.producers.verifications
    assert 14 <= len(verifications) <= 16
    assert 99 in verifications


@pytest.mark.limit("storage.producer_state.MOST_IN_NODE")
@pytest.mark.usefixtures("_thirty_two_in_all")
def test_over_all_partitions_those_with_many_lose_producers(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    few, some, many = (log_of(directory, partition=each) for each in range(3))
    made_up(few, 2)
    made_up(some, 10)
    made_up(many, 200)
    assert known(few) == [MANY, MANY + 1]
    assert len(known(some)) == 10
    assert 28 <= sum(len(known(log)) for log in (few, some, many)) <= 32
    for producer_id in range(500):
        some.start_verification(producer_id, 0, 0, False, NOW_MS)
    assert sum(log.producers.held for log in (few, some, many)) <= 32
    assert known(few) == [MANY, MANY + 1]


@pytest.mark.usefixtures("_thirty_two_in_all")
def test_producers_found_at_a_start_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = opened(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(producer_memory, "MOST_IN_NODE", 1000)
        for each in range(4):
            made_up(log_of(directory, partition=each), 20)
        directory.close(clean=True)
    again = opened(tmp_path)
    logs = [log_of(again, partition=each) for each in range(4)]
    assert sum(len(known(log)) for log in logs) <= 32
    assert all(MANY + 19 in known(log) for log in logs)


@pytest.mark.usefixtures("_thirty_two_in_all", "_no_collector")
def test_producers_of_deleted_partitions_make_room(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    few = log_of(directory)
    made_up(few, 10)
    for each in range(1, 9):
        gone = log_of(directory, partition=each)
        made_up(gone, 20)
        directory.delete_log(gone, UNIQUE)
        del gone
    assert len(known(few)) == 10


def test_all_directories_of_a_node_share_the_bound(tmp_path: Path) -> None:
    first, second = (opened(tmp_path / name) for name in "ab")
    LogDirs(["a", "b"], {b"a": first, b"b": second}, first, "cluster")
    assert log_of(first).producers.memory is log_of(second, partition=1).producers.memory is not None
