"""Written isn't committed. Each kind of move, and what others see, while its record is on its way to the other
replicas, and when it arrives or is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.transaction.producer_ids import TransactionalProducer
from coordinator.transaction.state_manager import ProducerIdAndEpoch
from protocol.errors import Error, KafkaError
from tests.unit.coordinator.transaction.coordinator import T0, T1, TIMEOUT_MS, Answer, Coordinator, answered

ME = TransactionalProducer("x", 7, 0)

Outcome = Answer[ProducerIdAndEpoch | KafkaError] | Answer[KafkaError | None]
Ask = Callable[[Coordinator], Outcome]


def init(it: Coordinator) -> Outcome:
    answer: Answer[ProducerIdAndEpoch | KafkaError] = Answer()
    answered(it.shard.init_producer_id(TransactionalProducer("x"), timeout_ms=TIMEOUT_MS), answer)
    return answer


def add(it: Coordinator, version: int = 2) -> Outcome:
    answer: Answer[KafkaError | None] = Answer()
    answered(it.shard.add_partitions(ME, [T0, T1], client_transaction_version=version), answer)
    return answer


def end(commit: bool, version: int) -> Ask:
    def ask(it: Coordinator) -> Outcome:
        answer: Answer[ProducerIdAndEpoch | KafkaError] = Answer()
        answered(it.shard.end_txn(ME, commit=commit, client_transaction_version=version), answer)
        return answer

    return ask


def empty(level: int = 2) -> Coordinator:
    it = Coordinator(level=level)
    it.init()
    return it


def ongoing(level: int = 2) -> Coordinator:
    it = Coordinator(level=level)
    it.begun(T0, version=min(level, 2) if level == 2 else 0)
    return it


MOVES: dict[str, tuple[Callable[[], Coordinator], Ask, str, str, str]] = {
    # setup, request, state meanwhile, state afterwards, final answer
    "InitProducerId anew": (Coordinator, init, "Empty→Empty", "Empty", "7/0"),
    "InitProducerId again": (empty, init, "Empty→Empty", "Empty", "7/1"),
    "InitProducerId V2 aborts": (ongoing, init, "Ongoing→PrepareAbort", "CompleteAbort", "51"),
    "InitProducerId V1 aborts": (
        lambda: ongoing(1),
        init,
        "Ongoing→PrepareAbort",
        "CompleteAbort",
        "51",
    ),
    "AddPartitions begins": (empty, add, "Empty→Ongoing", "Ongoing", "0"),
    "AddPartitions goes on": (ongoing, add, "Ongoing→Ongoing", "Ongoing", "0"),
    "EndTxn V2 commits": (ongoing, end(True, 2), "Ongoing→PrepareCommit", "CompleteCommit", "7/1"),
    "EndTxn V2 aborts": (ongoing, end(False, 2), "Ongoing→PrepareAbort", "CompleteAbort", "7/1"),
    "EndTxn V2 aborts nothing": (empty, end(False, 2), "Empty→PrepareAbort", "CompleteAbort", "7/1"),
    "EndTxn V1 commits": (
        lambda: ongoing(1),
        end(True, 0),
        "Ongoing→PrepareCommit",
        "CompleteCommit",
        "-1/-1",
    ),
    "EndTxn V1 aborts": (lambda: ongoing(1), end(False, 0), "Ongoing→PrepareAbort", "CompleteAbort", "-1/-1"),
}

each_move = pytest.mark.parametrize("move", MOVES)

LOST = [Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE]


def said(outcome: Outcome) -> str:
    """ "id/epoch", or the code of the error; "" where nothing is answered yet."""
    if not outcome.all:
        return ""
    [found] = outcome.all
    if isinstance(found, ProducerIdAndEpoch):
        return f"{found.producer_id}/{found.producer_epoch}"
    return str(0 if found is None else found.error.value)


def begun(move: str) -> tuple[Coordinator, Outcome]:
    """Begin a move. Its record is written, but not committed."""
    before, ask, *_ = MOVES[move]
    it = before()
    it.runtime.commit()
    it.runtime.lags = True
    return it, ask(it)


@each_move
def test_nothing_is_applied_answered_or_marked_before_the_record_is_committed(move: str) -> None:
    *_, meanwhile, _, _ = MOVES[move]
    it, outcome = begun(move)
    assert (it.state, said(outcome), it.marked()) == (meanwhile, "", [])


@each_move
def test_requests_during_an_uncommitted_change_have_to_retry(move: str) -> None:
    it, _ = begun(move)
    epoch = it.x.producer_epoch
    written = len(it.runtime.log)
    assert it.init() is Error.CONCURRENT_TRANSACTIONS
    assert it.add(7, epoch) is Error.CONCURRENT_TRANSACTIONS
    assert it.end(7, epoch, commit=True) is Error.CONCURRENT_TRANSACTIONS
    assert it.end(7, epoch, commit=False, version=0) is Error.CONCURRENT_TRANSACTIONS
    it.runtime.pass_ms(10 * TIMEOUT_MS)
    assert len(it.runtime.log) == written


@each_move
def test_readers_see_the_committed_state(move: str) -> None:
    before, *_ = MOVES[move]
    it, _ = begun(move)
    was = before()
    if was.shard.transactions:
        assert it.shard.describe("x").state is was.x.state
        assert it.verify(7, it.x.producer_epoch, T0, T1) == was.verify(7, was.x.producer_epoch, T0, T1)


@each_move
def test_a_change_is_applied_answered_and_finished_once_all_is_committed(move: str) -> None:
    *_, after, answer = MOVES[move]
    it, outcome = begun(move)
    it.runtime.commit()
    assert said(outcome) == answer
    it.runtime.commit()  # this commits Complete*
    assert it.state == after
    assert it.completions == {}
    assert it.told()[-1].startswith(after)


@each_move
@pytest.mark.parametrize("error", LOST)
def test_a_record_that_is_lost_takes_the_move_back(move: str, error: Error) -> None:
    before, *_ = MOVES[move]
    it, outcome = begun(move)
    it.runtime.fail_commits(error)
    assert said(outcome) == str(error.value)
    was = before()
    if was.shard.transactions:
        assert it.state == was.state
    assert (it.x.pending_state, it.marked(), it.completions) == (None, [], {})
    it.runtime.commit()  # this comes too late
    assert it.x.pending_state is None
    assert len(outcome.all) == 1


@each_move
def test_requests_waiting_when_the_shard_is_given_up_are_sent_to_another_coordinator(move: str) -> None:
    it, outcome = begun(move)
    it.shard.unload()
    assert said(outcome) == str(Error.NOT_COORDINATOR.value)
    it.runtime.commit()
    it.runtime.fail_commits()
    it.runtime.pass_ms(10 * TIMEOUT_MS)
    assert (len(outcome.all), it.marked(), it.shard.transactions) == (1, [], {})


ENDS = [move for move in MOVES if MOVES[move][3].startswith("Complete")]


@pytest.mark.parametrize("move", ENDS)
def test_the_answer_leaves_with_the_prepared_record_and_the_completion_waits_for_its_own(move: str) -> None:
    *_, after, answer = MOVES[move]
    it, outcome = begun(move)
    it.runtime.commit()
    prepared = after.replace("Complete", "Prepare")
    assert (it.state, said(outcome)) == (f"{prepared}→{after}", answer)
    assert it.add(7, it.x.producer_epoch) is Error.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("move", ENDS)
@pytest.mark.parametrize("error", LOST)
def test_a_completion_that_is_lost_is_logged_again(move: str, error: Error) -> None:
    *_, after, _ = MOVES[move]
    it, outcome = begun(move)
    it.runtime.commit()
    it.runtime.fail_commits(error)
    assert it.state.endswith(f"→{after}"), "nobody else comes in between"
    it.runtime.pass_ms(20)
    it.runtime.commit()
    assert it.state == after
    assert [told.split()[0] for told in it.told()[-2:]] == [after, after]
    assert len(it.marked()) <= 1
    assert len(outcome.all) == 1


@pytest.mark.parametrize("move", ENDS)
def test_a_shard_that_is_given_up_before_the_completion_is_committed_leaves_it_to_the_next(move: str) -> None:
    *_, after, _ = MOVES[move]
    it, outcome = begun(move)
    it.runtime.commit()
    it.shard.unload()
    it.runtime.commit()
    it.runtime.pass_ms(10 * TIMEOUT_MS)
    assert it.shard.transactions == {}
    it.runtime.log = it.runtime.log[:-1]  # only one replica had the record
    assert it.restarted().state == after
    assert len(outcome.all) == 1


def test_markers_that_answer_while_the_completion_is_on_its_way_complete_it_once() -> None:
    it = ongoing()
    it.markers.is_held = True
    it.end(7, 0, commit=True)
    it.runtime.commit()
    it.runtime.lags = True
    [write] = it.markers.writes
    write.answer()
    write.answer()
    assert it.told()[-1:] == ["CompleteCommit 7/1"]
    write.answer(Error.NOT_LEADER_OR_FOLLOWER)
    it.runtime.commit()
    it.runtime.pass_ms(1_000)
    assert (it.state, it.told().count("CompleteCommit 7/1")) == ("CompleteCommit", 1)


def test_a_fenced_epoch_holds_during_its_abort_and_is_bumped_once_if_that_is_lost() -> None:
    it = ongoing(1)
    it.runtime.commit()
    it.runtime.lags = True
    init(it)
    assert it.end(7, 0, commit=True, version=0) is Error.PRODUCER_FENCED
    it.runtime.fail_commits(Error.COORDINATOR_NOT_AVAILABLE)
    assert (it.state, it.x.producer_epoch) == ("Ongoing", 1)
    init(it)
    it.runtime.commit()
    assert it.told()[-2:] == ["PrepareAbort 7/1", "CompleteAbort 7/1"]


def test_an_expired_id_is_forgotten_once_its_tombstone_is_committed() -> None:
    it = Coordinator()
    it.configure(abort_timed_out_interval_ms=3_600_000)
    it.init()
    it.runtime.commit()
    it.runtime.lags = True
    it.shard.expiry.remove_expired()
    assert it.state == "Empty"
    it.runtime.pass_ms(8 * 24 * 3_600_000)
    assert (it.state, it.told()[-1]) == ("Empty→Dead", "tombstone")
    assert it.init() is Error.CONCURRENT_TRANSACTIONS
    it.runtime.fail_commits(Error.COORDINATOR_NOT_AVAILABLE)
    assert it.state == "Empty"
    it.runtime.pass_ms(3_600_000)
    it.runtime.commit()
    assert it.shard.transactions == {}


@pytest.mark.parametrize("question", ["add", "verify"])
def test_loaded_partitions_are_confirmed_once_they_are_committed(question: str) -> None:
    """Otherwise the next leader might not know of them, and their records would stay undecided for good."""
    before = Coordinator()
    before.begun(T0)
    producer = TransactionalProducer("x", 7, 0)
    for is_lost in (False, True):
        it = before.restarted(lags=True)
        told: list[object] = []
        if question == "add":
            answered(it.shard.add_partitions(producer, [T0], client_transaction_version=2), told.append)
        else:
            answered(it.shard.certain(), told.append)
        assert told == []
        if is_lost:
            it.shard.unload()
            [error] = told
            assert isinstance(error, KafkaError)
            assert error.error is Error.NOT_COORDINATOR
        else:
            it.runtime.commit()
            assert told == [None]
            it.runtime.lags = True  # later records don't hold up questions about earlier ones
            answered(it.shard.add_partitions(producer, [T0], client_transaction_version=2), told.append)
            assert told == [None, None]
