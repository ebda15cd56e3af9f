"""How a restart continues from each state that the log may have."""

from __future__ import annotations

import pytest

from coordinator.transaction.state_manager import ProducerIdAndEpoch
from coordinator.transaction.states import PREPARE_COMMIT
from protocol.errors import Error
from tests.unit.coordinator.transaction.coordinator import T0, T1, TIMEOUT_MS, Coordinator


def test_an_empty_id_stays_and_the_producer_goes_on() -> None:
    it = Coordinator()
    it.init()
    again = it.restarted()
    assert again.state == "Empty"
    assert again.add(7, 0) is Error.NONE


@pytest.mark.parametrize("version", [0, 2])
def test_an_open_transaction_stays_open_and_can_be_committed(version: int) -> None:
    it = Coordinator()
    it.begun(T0, T1, version=version)
    again = it.restarted()
    assert again.state == "Ongoing"
    assert again.marked() == []
    assert again.end(7, 0, commit=True, version=version) == ((7, 1) if version == 2 else (-1, -1))
    assert again.markers.writes[0].partitions == [T0, T1]


def test_an_open_transaction_still_times_out() -> None:
    it = Coordinator()
    it.begun()
    it.runtime.pass_ms(TIMEOUT_MS - 1)
    again = it.restarted()
    again.runtime.pass_ms(10_000)
    assert again.state == "CompleteAbort"


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("version", "epoch"), [(0, 0), (2, 1)])
def test_a_prepared_one_is_driven_on_with_the_new_coordinator_epoch(
    commit: bool, version: int, epoch: int
) -> None:
    it = Coordinator()
    it.begun(T0, T1, version=version)
    it.markers.is_held = True
    it.end(7, 0, commit=commit, version=version)
    it.markers.writes[0].answer(Error.NONE, T0)
    again = it.restarted()
    word = "Commit" if commit else "Abort"
    assert again.marked() == [f"{word.lower()} 7/{epoch} TV{version}: t-0 t-1"], "also to those that have it"
    assert again.markers.writes[0].marker.coordinator_epoch == 4
    assert again.told(2) == [f"Prepare{word} 7/{epoch}", f"Complete{word} 7/{epoch}"]


def test_everybody_has_to_wait_while_it_is_completed() -> None:
    it = Coordinator()
    it.begun()
    it.markers.is_held = True
    it.end(7, 0, commit=True)
    again = it.restarted(is_held=True)
    assert again.state == "PrepareCommit→CompleteCommit"
    assert again.add(7, 1) is Error.CONCURRENT_TRANSACTIONS
    assert again.init() is Error.CONCURRENT_TRANSACTIONS
    again.markers.writes[0].answer()
    assert again.add(7, 1) is Error.NONE


@pytest.mark.parametrize("commit", [True, False])
def test_a_complete_one_answers_a_retry_as_before(commit: bool) -> None:
    it = Coordinator()
    it.begun()
    it.end(7, 0, commit=commit)
    again = it.restarted()
    assert again.marked() == []
    assert again.end(7, 0, commit=commit) == (7, 1)
    assert again.end(7, 0, commit=not commit) is Error.INVALID_TXN_STATE


def test_a_prepared_transaction_without_partitions_completes_immediately() -> None:
    it = Coordinator()
    it.init()
    it.end(7, 0, commit=False)
    it.runtime.log.pop()  # this is Complete*
    again = it.restarted()
    assert again.told() == ["Empty 7/0", "PrepareAbort 7/1", "CompleteAbort 7/1"]


def test_a_restart_writes_nothing_where_nothing_is_prepared() -> None:
    it = Coordinator()
    me = it.begun()
    it.end(*me, commit=True)
    it.begun()
    assert it.restarted().told() == it.told()


def test_the_replayed_state_is_the_one_that_was_live_but_for_the_last_epoch() -> None:
    it = Coordinator()
    for index in range(6):
        name = f"id-{index}"
        me = it.init(name=name)
        assert isinstance(me, ProducerIdAndEpoch)
        if index >= 1:
            it.add(*me, T0, T1, name=name, version=2 * (index % 2))
        if index >= 3:
            it.end(*me, commit=index % 2 == 0, name=name, version=2 * (index % 2))
    again = it.restarted()
    for live in it.shard.transactions.values():
        live.last_producer_epoch = -1
    assert again.shard.transactions == it.shard.transactions


def test_a_tombstone_forgets_the_id() -> None:
    it = Coordinator()
    it.init()
    it.runtime.log.append(((it.runtime.log[0][0][0], None), -1))
    again = it.restarted()
    assert again.shard.transactions == {}
    assert again.end(7, 0, commit=True) is Error.INVALID_PRODUCER_ID_MAPPING


def test_markers_in_the_shards_own_partition_mean_nothing() -> None:
    it = Coordinator()
    it.begun()
    it.shard.end_transaction(7, commit=True)
    assert it.state == "Ongoing"


def test_the_next_producer_id_counts_only_in_transactions_v2() -> None:
    it = Coordinator()
    it.put(PREPARE_COMMIT, 7, 32767, next_producer_id=8, client_transaction_version=0)
    it.shard.start()
    assert it.told() == ["CompleteCommit 7/32767"]
