"""InitProducerId with a transactional id: timeouts, new ids, KIP-360, fencing."""

from __future__ import annotations

import pytest

from coordinator.transaction.producer_ids import TransactionalProducer
from coordinator.transaction.states import EMPTY
from protocol.errors import Error
from tests.unit.coordinator.transaction.coordinator import Coordinator


def test_an_unknown_id_gets_a_new_producer_id_and_epoch_0() -> None:
    it = Coordinator()
    assert it.init() == (7, 0)
    assert it.told() == ["Empty 7/0"]
    assert it.init(name="y") == (8, 0)


def test_values_given_for_an_unknown_id_are_ignored() -> None:
    assert Coordinator().init(555, 12) == (7, 0)


def test_each_call_without_values_takes_the_next_epoch_and_the_new_timeout() -> None:
    it = Coordinator()
    assert [it.init(timeout_ms=each) for each in (1, 2, 900_000)] == [(7, 0), (7, 1), (7, 2)]
    assert it.x.timeout_ms == 900_000


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001, 2**31 - 1])
def test_a_timeout_out_of_range_is_refused_and_makes_no_entry(timeout_ms: int) -> None:
    it = Coordinator()
    assert it.init(timeout_ms=timeout_ms) is Error.INVALID_TRANSACTION_TIMEOUT
    assert it.shard.transactions == {}
    assert it.told() == []


def test_two_phase_commit_needs_its_setting_and_has_no_timeout() -> None:
    it = Coordinator()

    def ask(**flags: bool) -> object:
        return it.init_as(TransactionalProducer("x"), timeout_ms=0, **flags)

    assert ask(enable_2pc=True) is Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert ask(enable_2pc=True, keep_prepared_txn=True) is Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert ask(keep_prepared_txn=True) is Error.UNSUPPORTED_VERSION
    it.configure(two_phase_commit_enable=True, abort_timed_out_interval_ms=3_600_000)
    assert ask(enable_2pc=True) == (7, 0)
    assert it.x.timeout_ms == 2**31 - 1
    assert it.add(7, 0) is Error.NONE
    it.runtime.pass_ms(30 * 86_400_000)
    assert it.state == "Ongoing"


def test_a_producer_that_gives_the_current_epoch_gets_the_next_and_may_retry() -> None:
    it = Coordinator()
    it.init()
    assert it.init(7, 0) == (7, 1)
    assert it.init(7, 0) == (7, 1)
    assert it.init(7, 0) == (7, 1)
    assert it.told() == ["Empty 7/0", "Empty 7/1", "Empty 7/1", "Empty 7/1"]


def test_a_call_without_values_makes_the_epoch_before_it_useless() -> None:
    it = Coordinator()
    it.init()
    it.init(7, 0)
    assert it.init() == (7, 2)
    assert it.init(7, 1) is Error.PRODUCER_FENCED
    assert it.init(7, 0) is Error.PRODUCER_FENCED
    assert it.init(7, 2) == (7, 3)


def test_after_a_restart_the_epoch_before_is_not_known_any_more() -> None:
    it = Coordinator()
    it.init()
    it.init(7, 0)
    again = it.restarted()
    assert again.init(7, 0) is Error.PRODUCER_FENCED
    assert again.init(7, 1) == (7, 2)


def test_after_an_end_of_transactions_v2_the_ended_epoch_may_be_given() -> None:
    it = Coordinator()
    me = it.begun()
    assert it.end(*me, commit=True) == (7, 1)
    assert it.init(7, 0) == (7, 1)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_an_open_transaction_is_aborted_and_the_retry_gets_the_epoch_after(level: int) -> None:
    it = Coordinator(level=level)
    it.begun(version=0)
    assert it.init() is Error.CONCURRENT_TRANSACTIONS
    assert it.told(2) == ["PrepareAbort 7/1", "CompleteAbort 7/1"]
    assert it.marked() == [f"abort 7/1 TV{level if level == 2 else 0}: t-0"]
    assert it.init() == (7, 2)


def test_a_retry_has_to_come_again_while_the_aborts_markers_are_out() -> None:
    it = Coordinator()
    it.begun()
    it.markers.is_held = True
    assert it.init() is Error.CONCURRENT_TRANSACTIONS
    assert it.init() is Error.CONCURRENT_TRANSACTIONS
    assert len(it.markers.writes) == 1
    it.markers.writes[0].answer()
    assert it.init() == (7, 2)


@pytest.mark.parametrize("epoch", [0, 77])
def test_any_epoch_of_the_producer_id_aborts_the_open_transaction(epoch: int) -> None:
    it = Coordinator()
    it.put(EMPTY, 7, 4)
    it.add(7, 4)
    assert it.init(7, epoch) is Error.CONCURRENT_TRANSACTIONS
    assert it.state == "CompleteAbort"


def test_another_producer_id_is_fenced_and_aborts_nothing() -> None:
    it = Coordinator()
    it.begun()
    assert it.init(8, 0) is Error.PRODUCER_FENCED
    assert it.state == "Ongoing"


def test_the_fenced_epoch_counts_as_the_last() -> None:
    it = Coordinator()
    it.begun()
    assert it.init(7, 0) is Error.CONCURRENT_TRANSACTIONS
    assert it.init(7, 0) == (7, 1)
    assert it.init(7, 0) == (7, 1)


def test_without_a_producer_id_to_give_nothing_is_made() -> None:
    it = Coordinator()
    it.producer_id_error = Error.COORDINATOR_LOAD_IN_PROGRESS
    assert it.init() is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert it.shard.transactions == {}


def test_if_the_first_record_cannot_be_written_the_id_has_no_epoch() -> None:
    it = Coordinator()
    it.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    assert it.init() is Error.COORDINATOR_NOT_AVAILABLE
    assert (it.state, it.x.producer_id, it.x.producer_epoch) == ("Empty", 7, -1)
    it.runtime.failing = None
    assert it.init(4444, 3) == (7, 0), "whatever is given, as it has no epoch yet"
    assert it.restarted().x.producer_epoch == 0


def test_a_bump_that_cannot_be_written_changes_nothing() -> None:
    it = Coordinator()
    it.init()
    it.runtime.failing = Error.NOT_COORDINATOR
    assert it.init() is Error.NOT_COORDINATOR
    assert (it.state, it.x.producer_epoch) == ("Empty", 0)
    it.runtime.failing = None
    assert it.init() == (7, 1)


def test_the_error_of_a_fence_that_cannot_be_written_is_returned() -> None:
    it = Coordinator()
    it.begun()
    it.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    assert it.init() is Error.COORDINATOR_NOT_AVAILABLE
    assert it.state == "Ongoing"


def test_at_level_0_an_id_that_ended_a_transaction_of_v2_cannot_be_written() -> None:
    it = Coordinator()
    me = it.begun()
    it.end(*me, commit=True)
    it.level = 0
    assert it.init() is Error.UNSUPPORTED_VERSION
    assert it.state == "CompleteCommit"


def test_an_exception_while_appending_leaves_nothing_pending() -> None:
    it = Coordinator()
    it.init()

    def fail(*_: object, **__: object) -> int:
        raise OSError("the disk is gone")

    it.runtime.append = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="the disk is gone"):
        it.init(timeout_ms=1)
    assert it.state == "Empty"


def test_an_epoch_below_minus_one_is_fenced() -> None:
    it = Coordinator()
    it.init()
    assert it.init(7, -2) is Error.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("epoch", "expected"), [(0, Error.PRODUCER_FENCED), (4, Error.PRODUCER_FENCED), (32766, (8, 0))]
)
def test_the_previous_producer_id_is_known_only_with_its_last_epoch(epoch: int, expected: object) -> None:
    it = Coordinator()
    it.put(EMPTY, 8, 0, previous_producer_id=7, last_producer_epoch=32766)
    assert it.init(7, epoch) == expected


def test_a_zombie_of_the_previous_producer_id_is_fenced_though_it_has_the_current_epoch() -> None:
    it = Coordinator()
    it.put(EMPTY, 8, 4, previous_producer_id=7)
    assert it.init(7, 4) is Error.PRODUCER_FENCED
    assert (it.x.producer_id, it.x.producer_epoch) == (8, 4)
