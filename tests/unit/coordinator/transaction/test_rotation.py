"""The end of a producer id's epochs: 32765, 32766 and 32767, with everything that may bump them.

32766 is the last epoch that a producer gets; 32767 serves for fencing it. The next producer id is 8.
"""

from __future__ import annotations

from itertools import count

import pytest

from coordinator.transaction.state_manager import ProducerIdAndEpoch
from coordinator.transaction.states import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, ONGOING, TransactionState
from protocol.errors import Error
from tests.unit.coordinator.transaction.coordinator import TIMEOUT_MS, Coordinator


def open_at(epoch: int, *, level: int = 2) -> Coordinator:
    it = Coordinator(level=level)
    it.producer_ids = count(8)
    it.put(ONGOING, 7, epoch)
    it.shard.start()
    return it


COMMITS_V2 = {
    32764: ("PrepareCommit 7/32765", "commit 7/32765 TV2: t-0", "CompleteCommit 7/32765", (7, 32765)),
    32765: ("PrepareCommit 7/32766", "commit 7/32766 TV2: t-0", "CompleteCommit 7/32766", (7, 32766)),
    32766: ("PrepareCommit 7/32767", "commit 7/32767 TV2: t-0", "CompleteCommit 8/0", (8, 0)),
}
ABORTS_V2 = {
    32764: ("PrepareAbort 7/32765", "abort 7/32765 TV2: t-0", "CompleteAbort 7/32765", (7, 32765)),
    32765: ("PrepareAbort 7/32766", "abort 7/32766 TV2: t-0", "CompleteAbort 7/32766", (7, 32766)),
    32766: ("PrepareAbort 7/32767", "abort 7/32767 TV2: t-0", "CompleteAbort 8/0", (8, 0)),
    32767: ("PrepareAbort 7/32767", "abort 7/32767 TV2: t-0", "CompleteAbort 8/0", (8, 0)),
}


@pytest.mark.parametrize("epoch", COMMITS_V2)
def test_kafka_18660_a_commit_of_v2_brings_a_new_producer_id_where_the_epochs_are_used_up(epoch: int) -> None:
    it = open_at(epoch)
    prepared, marker, completed, answer = COMMITS_V2[epoch]
    assert it.end(7, epoch, commit=True) == answer
    assert (it.told(), it.marked()) == ([prepared, completed], [marker])


@pytest.mark.parametrize("epoch", ABORTS_V2)
def test_kafka_18660_so_does_an_abort_of_v2(epoch: int) -> None:
    it = open_at(epoch)
    prepared, marker, completed, answer = ABORTS_V2[epoch]
    assert it.end(7, epoch, commit=False) == answer
    assert (it.told(), it.marked()) == ([prepared, completed], [marker])


@pytest.mark.limit("protocol.records.batch.MAX_PRODUCER_EPOCH")
def test_a_commit_of_v2_at_32767_has_no_epoch_to_take() -> None:
    it = open_at(32767)
    assert it.end(7, 32767, commit=True) is Error.UNKNOWN_SERVER_ERROR
    assert (it.state, it.told()) == ("Ongoing", [])
    assert it.end(7, 32767, commit=True, version=0) == (-1, -1)


@pytest.mark.parametrize("epoch", [32765, 32766, 32767])
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_of_v1_leaves_the_epoch_as_it_is(epoch: int, commit: bool) -> None:
    it = open_at(epoch)
    word = "Commit" if commit else "Abort"
    assert it.end(7, epoch, commit=commit, version=0) == (-1, -1)
    assert it.told() == [f"Prepare{word} 7/{epoch}", f"Complete{word} 7/{epoch}"]
    assert it.marked() == [f"{word.lower()} 7/{epoch} TV0: t-0"]


# How the coordinator ends a transaction on its own, by the cluster's level, and what InitProducerId answers then.
FENCES = {
    (1, 32764): ("PrepareAbort 7/32765", "abort 7/32765 TV0: t-0", "CompleteAbort 7/32765", (7, 32766)),
    (1, 32765): ("PrepareAbort 7/32766", "abort 7/32766 TV0: t-0", "CompleteAbort 7/32766", (8, 0)),
    (1, 32766): ("PrepareAbort 7/32767", "abort 7/32767 TV0: t-0", "CompleteAbort 7/32767", (8, 0)),
    (1, 32767): ("PrepareAbort 7/32767", "abort 7/32767 TV0: t-0", "CompleteAbort 7/32767", (8, 0)),
    (2, 32764): ("PrepareAbort 7/32765", "abort 7/32765 TV2: t-0", "CompleteAbort 7/32765", (7, 32766)),
    (2, 32765): ("PrepareAbort 7/32766", "abort 7/32766 TV2: t-0", "CompleteAbort 7/32766", (8, 0)),
    (2, 32766): ("PrepareAbort 7/32767", "abort 7/32767 TV2: t-0", "CompleteAbort 8/0", (8, 1)),
    (2, 32767): ("PrepareAbort 7/32767", "abort 7/32767 TV2: t-0", "CompleteAbort 8/0", (8, 1)),
}


@pytest.mark.parametrize(("level", "epoch"), FENCES)
@pytest.mark.parametrize("cause", ["timeout", "InitProducerId"])
@pytest.mark.parametrize("restart", ["no restart", "restarted"])
def test_kafka_19367_20090_a_fence_bumps_the_epoch_once_and_rotates_as_an_end_does(
    level: int, epoch: int, cause: str, restart: str
) -> None:
    it = open_at(epoch, level=level)
    prepared, marker, completed, next_one = FENCES[level, epoch]
    if cause == "timeout":
        it.runtime.pass_ms(TIMEOUT_MS + 10_000)
    else:
        assert it.init() is Error.CONCURRENT_TRANSACTIONS
    assert (it.told(), it.marked()) == ([prepared, completed], [marker])
    if restart == "restarted":
        it = it.restarted()
        it.producer_ids = count(8)
    assert it.init() == next_one


@pytest.mark.parametrize(
    ("epoch", "answer"), [(32764, (7, 32765)), (32765, (7, 32766)), (32766, (8, 0)), (32767, (8, 0))]
)
@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
@pytest.mark.parametrize("given", [False, True])
def test_init_producer_id_rotates_where_nothing_is_open(
    state: TransactionState, epoch: int, answer: tuple[int, int], given: bool
) -> None:
    it = Coordinator()
    it.producer_ids = count(8)
    it.put(state, 7, epoch)
    assert it.init(*((7, epoch) if given else ())) == answer
    if given and epoch != 32765:
        assert it.init(7, epoch) == answer, "asked again"


def test_a_producer_that_gave_no_epoch_cannot_retry_across_the_rotation() -> None:
    it = Coordinator()
    it.put(EMPTY, 7, 32766)
    it.producer_ids = count(8)
    assert it.init() == (8, 0)
    assert it.init(7, 32766) is Error.PRODUCER_FENCED


def test_the_check_for_used_up_epochs_precedes_the_one_for_a_retry() -> None:
    it = Coordinator()
    it.put(EMPTY, 7, 32766, last_producer_epoch=32765)
    assert it.init(7, 32765) is Error.UNKNOWN_SERVER_ERROR
    assert (it.state, it.told()) == ("Empty", [])


@pytest.mark.parametrize("commit", [True, False])
def test_kafka_20310_an_end_may_be_asked_for_again_across_the_rotation_even_after_a_restart(
    commit: bool,
) -> None:
    it = Coordinator()
    it.producer_ids = count(8)
    it.put(EMPTY, 7, 32766)
    it.add(7, 32766)
    assert it.end(7, 32766, commit=commit) == (8, 0)
    for each in (it, it.restarted(), it.restarted().restarted()):
        assert each.end(7, 32766, commit=commit) == (8, 0)
        assert each.end(7, 32766, commit=not commit) is Error.INVALID_TXN_STATE
        assert each.end(7, 32765, commit=commit) is Error.INVALID_PRODUCER_ID_MAPPING
    assert it.init(7, 32766) == (8, 0)


def test_after_a_restart_init_producer_id_does_not_know_the_last_epoch_across_the_rotation() -> None:
    it = open_at(32766)
    it.end(7, 32766, commit=True)
    assert it.restarted().init(7, 32766) is Error.PRODUCER_FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_kafka_20310_a_restart_in_the_middle_of_the_rotation_brings_the_same_producer_id(
    commit: bool,
) -> None:
    it = Coordinator()
    it.producer_ids = count(8)
    it.put(EMPTY, 7, 32766)
    it.add(7, 32766)
    it.markers.is_held = True
    assert it.end(7, 32766, commit=commit) == (8, 0)
    assert it.end(7, 32766, commit=commit) is Error.CONCURRENT_TRANSACTIONS
    assert it.add(8, 0) is Error.CONCURRENT_TRANSACTIONS
    again = it.restarted()
    word = "commit" if commit else "abort"
    assert again.marked() == [f"{word} 7/32767 TV2: t-0"]
    assert (again.x.producer_id, again.x.producer_epoch, again.x.previous_producer_id) == (8, 0, 7)
    assert again.end(7, 32766, commit=commit) == (8, 0)
    assert again.add(8, 0) is Error.NONE


def test_the_id_before_is_forgotten_with_the_next_transaction() -> None:
    it = open_at(32766)
    it.end(7, 32766, commit=True)
    it.add(8, 0)
    assert it.end(7, 32766, commit=True) is Error.INVALID_PRODUCER_ID_MAPPING


def test_without_a_new_producer_id_the_transaction_stays_open() -> None:
    it = open_at(32766)
    it.producer_id_error = Error.COORDINATOR_LOAD_IN_PROGRESS
    assert it.end(7, 32766, commit=True) is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert it.init() is Error.COORDINATOR_LOAD_IN_PROGRESS
    it.runtime.pass_ms(TIMEOUT_MS + 10_000)
    assert it.state == "Ongoing"
    it.producer_id_error = None
    assert it.end(7, 32766, commit=True) == (8, 0)


def test_a_thousand_ends_of_v2_cross_the_rotation_without_a_gap() -> None:
    it = Coordinator()
    it.put(EMPTY, 7, 32266)
    it.producer_ids = count(8)
    me = ProducerIdAndEpoch(7, 32266)
    for _ in range(1000):
        assert it.add(*me) is Error.NONE
        answer = it.end(*me, commit=True)
        assert isinstance(answer, ProducerIdAndEpoch)
        assert answer == ((8, 0) if me.producer_epoch == 32766 else (me.producer_id, me.producer_epoch + 1))
        me = answer
    assert me == (8, 499)
