"""EndTxn of both versions, apart from the table of states."""

from __future__ import annotations

import pytest

from coordinator.transaction.states import COMPLETE_ABORT, COMPLETE_COMMIT, TransactionState
from protocol.errors import Error
from tests.unit.coordinator.transaction.coordinator import T0, T1, Coordinator


def test_each_end_of_v2_hands_out_the_next_epoch() -> None:
    it = Coordinator()
    it.init()
    for epoch in range(5):
        assert it.add(7, epoch, T0) is Error.NONE
        assert it.end(7, epoch, commit=epoch % 2 == 0) == (7, epoch + 1)
    assert it.marked()[-1] == "commit 7/5 TV2: t-0"


def test_ends_of_v1_keep_the_epoch_and_answer_nothing_to_go_on_with() -> None:
    it = Coordinator()
    it.init()
    for commit in (True, False, True):
        assert it.add(7, 0, T0, version=0) is Error.NONE
        assert it.end(7, 0, commit=commit, version=0) == (-1, -1)
    assert it.marked() == ["commit 7/0 TV0: t-0", "abort 7/0 TV0: t-0", "commit 7/0 TV0: t-0"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_retry_of_v2_gets_the_first_answer_and_nothing_is_written(commit: bool) -> None:
    it = Coordinator()
    it.begun()
    first = it.end(7, 0, commit=commit)
    told = it.told()
    assert it.end(7, 0, commit=commit) == first == (7, 1)
    assert it.told() == told


def test_a_retry_of_v1_is_well_as_long_as_nothing_new_began() -> None:
    it = Coordinator()
    it.begun(version=0)
    it.end(7, 0, commit=True, version=0)
    assert it.end(7, 0, commit=True, version=0) == (-1, -1)
    it.init(7, 0)
    assert it.end(7, 1, commit=True, version=0) is Error.INVALID_TXN_STATE


@pytest.mark.parametrize("begin_first", [False, True])
def test_a_client_of_v2_may_abort_a_transaction_that_it_never_began(begin_first: bool) -> None:
    it = Coordinator()
    me = it.begun() if begin_first else it.init()
    if begin_first:
        me = it.end(*me, commit=True)  # type: ignore[misc]
    assert not isinstance(me, Error)
    it.runtime.pass_ms(77)
    assert it.end(*me, commit=False) == (7, me.producer_epoch + 1)
    _, prepared = it.records()[-2]
    assert prepared is not None
    assert prepared.start_timestamp_ms == it.runtime.now_ms(), "it needs a start, and this is as good as any"
    assert it.end(7, 7, commit=False) is Error.PRODUCER_FENCED


@pytest.mark.parametrize("state", [COMPLETE_COMMIT, COMPLETE_ABORT])
@pytest.mark.parametrize("commit", [True, False])
def test_the_last_epoch_of_all_is_no_retry_where_the_producer_id_was_not_rotated(
    state: TransactionState, commit: bool
) -> None:
    it = Coordinator()
    it.put(state, 7, 5)
    assert it.end(7, 32766, commit=commit) is Error.PRODUCER_FENCED


def test_a_transaction_may_begin_in_v1_and_end_in_v2() -> None:
    it = Coordinator()
    it.begun(T0, T1, version=0)
    assert it.end(7, 0, commit=True) == (7, 1)
    assert it.marked() == ["commit 7/1 TV2: t-0 t-1"]


def test_a_transaction_may_begin_in_v2_and_end_in_v1() -> None:
    it = Coordinator()
    it.begun(T0)
    assert it.end(7, 0, commit=True, version=0) == (-1, -1)
    assert it.marked() == ["commit 7/0 TV0: t-0"]
    assert it.x.client_transaction_version == 0


def test_at_level_0_an_end_of_v2_is_refused_and_one_of_v1_goes_on() -> None:
    it = Coordinator(level=0)
    it.begun(version=0)
    assert it.end(7, 0, commit=True) is Error.UNSUPPORTED_VERSION
    assert it.end(7, 0, commit=True) is Error.UNSUPPORTED_VERSION, "nothing stays pending"
    assert it.end(7, 0, commit=True, version=0) == (-1, -1)


def test_at_level_1_the_request_decides_and_not_the_level() -> None:
    it = Coordinator(level=1)
    it.begun(version=0)
    assert it.end(7, 0, commit=True) == (7, 1)
    assert it.marked() == ["commit 7/1 TV2: t-0"]


def test_a_fence_at_level_1_forgets_the_epoch_before() -> None:
    it = Coordinator(level=1)
    it.init()
    assert it.init(7, 0) == (7, 1)
    it.add(7, 1, version=0)
    assert it.init(7, 1) is Error.CONCURRENT_TRANSACTIONS
    assert it.x.producer_epoch == 2
    assert it.init(7, 0) is Error.PRODUCER_FENCED
    assert it.init(7, 1) is Error.PRODUCER_FENCED
    assert it.init(7, 2) == (7, 3)


def test_fences_one_after_the_other_bump_the_epoch_once_each() -> None:
    for level, epochs in ((1, [1, 3, 5]), (2, [1, 3, 5])):
        it = Coordinator(level=level)
        seen = []
        for _ in range(3):
            me = it.init()
            assert not isinstance(me, Error)
            it.add(*me, version=0)
            assert it.init() is Error.CONCURRENT_TRANSACTIONS
            seen.append(it.x.producer_epoch)
        assert seen == epochs
