"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

import pytest

from coordinator.transaction.state_manager import TransactionFilter, states_named
from coordinator.transaction.states import COMPLETE_COMMIT, DEAD, EMPTY, ONGOING
from protocol.errors import Error, KafkaError
from tests.unit.coordinator.transaction.coordinator import T0, T1, Coordinator, names


def listed(coordinator: Coordinator, wanted: TransactionFilter) -> list[str]:
    shard = coordinator.shard
    return names([each for each in shard.transactions.values() if shard.is_listed(each, wanted)])


@pytest.fixture
def three() -> Coordinator:
    """Have producer 7 empty, 8 open for 1000 ms, and 9 committed 500 ms after its transaction began."""
    it = Coordinator()
    it.init(name="empty")
    it.init(name="open")
    it.init(name="done")
    it.add(8, 0, T0, T1, name="open")
    it.runtime.pass_ms(500)
    it.add(9, 0, T0, name="done")
    it.runtime.pass_ms(500)
    it.end(9, 0, commit=True, name="done")
    return it


def test_an_open_transaction_shows_its_partitions_and_its_start(three: Coordinator) -> None:
    found = three.shard.describe("open")
    assert [*found.partitions] == [T0, T1]
    assert (found.producer_id, found.producer_epoch, found.timeout_ms) == (8, 0, 60_000)
    assert found.start_timestamp_ms == three.runtime.now_ms() - 1000


def test_an_empty_one_has_no_start_and_a_complete_one_keeps_it(three: Coordinator) -> None:
    assert three.shard.describe("empty").start_timestamp_ms == -1
    found = three.shard.describe("done")
    assert (found.start_timestamp_ms, [*found.partitions]) == (three.runtime.now_ms() - 500, [])


@pytest.mark.parametrize(
    ("name", "error"), [("", Error.INVALID_REQUEST), ("y", Error.TRANSACTIONAL_ID_NOT_FOUND)]
)
def test_a_missing_transaction_cannot_be_described(three: Coordinator, name: str, error: Error) -> None:
    with pytest.raises(KafkaError) as refused:
        three.shard.describe(name)
    assert refused.value.error is error


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (TransactionFilter(), ["done", "empty", "open"]),
        (TransactionFilter(producer_ids=frozenset({7, 9, 1234})), ["done", "empty"]),
        (TransactionFilter(states=frozenset({EMPTY, ONGOING})), ["empty", "open"]),
        (TransactionFilter(states=frozenset()), []),
        (TransactionFilter(longer_than_ms=0), ["done", "empty", "open"]),
        (TransactionFilter(longer_than_ms=499), ["done", "empty", "open"]),
        (TransactionFilter(longer_than_ms=500), ["empty", "open"]),
        (TransactionFilter(longer_than_ms=1000), ["empty"]),
        (TransactionFilter(states=frozenset({EMPTY}), producer_ids=frozenset({9})), []),
    ],
)
def test_a_filter_requires_all_its_parts(
    three: Coordinator, wanted: TransactionFilter, expected: list[str]
) -> None:
    assert listed(three, wanted) == expected


def test_the_dead_are_neither_listed_nor_described(three: Coordinator) -> None:
    three.put(DEAD, 12, 0)
    assert "x" not in listed(three, TransactionFilter())
    with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        three.shard.describe("x")


def test_names_of_states_are_case_sensitive_and_unknown_ones_are_returned() -> None:
    assert states_named([]) == (None, [])
    assert states_named(["Empty", "ongoing", "CompleteCommit"]) == (
        frozenset({EMPTY, COMPLETE_COMMIT}),
        ["ongoing"],
    )
    assert states_named(["nothing"]) == (frozenset(), ["nothing"])
    assert states_named(["Dead", "PrepareEpochFence"])[1] == []
