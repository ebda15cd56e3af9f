"""KIP-227's sessions, by the table of how Kafka answers requests."""

from typing import Any

import pytest

from broker.network import turns
from broker.replicas import fetch_sessions
from broker.replicas.fetch_sessions import EVICTION_MS, MAX_SESSION_EPOCH, FetchPlan, FetchSessions
from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, ForgottenTopic, PartitionData
from protocol.waiting import at_once

SLOTS = 8  # one a shard


class Sessions:
    """Sessions with ids that count up, and a clock that a test moves."""

    def __init__(self, slots: int = SLOTS) -> None:
        self.now_ms = 0
        self.sessions = FetchSessions(slots, lambda low, high: low + 5)

    def fetch(
        self,
        session_id: int,
        epoch: int,
        *partitions: tuple[str, int],
        forget: tuple[tuple[str, int], ...] = (),
        by_id: bool = False,
        offset: int = 0,
    ) -> FetchPlan:
        steps = self.sessions.begin(
            session_id=session_id,
            session_epoch=epoch,
            by_id=by_id,
            wanted=[
                (topic, [FetchPartition(partition=index, fetch_offset=offset)]) for topic, index in partitions
            ],
            forgotten=[ForgottenTopic(topic=topic, partitions=[index]) for topic, index in forget],
            now_ms=lambda: self.now_ms,
        )
        return at_once(steps)

    def answer(
        self, plan: FetchPlan, *, records: bytes = b"", high_watermark: int = 0, error: int = 0
    ) -> tuple[int, list[str]]:
        answers = [
            (
                target,
                PartitionData(
                    partition_index=target.index,
                    high_watermark=high_watermark,
                    error_code=error,
                    records=records,
                ),
            )
            for target in plan.targets
        ]
        session_id, listed = at_once(self.sessions.finish(plan, answers, lambda: self.now_ms))
        return session_id, [f"{target.topic}-{target.index}" for target, _ in listed]

    def open(self, *partitions: tuple[str, int]) -> int:
        return self.answer(self.fetch(0, 0, *partitions))[0]


def test_epoch_minus_one_makes_no_session() -> None:
    sessions = Sessions()
    assert sessions.answer(sessions.fetch(0, -1, ("a", 0))) == (0, ["a-0"])
    assert len(sessions.sessions) == 0


def test_epoch_zero_makes_a_session_and_lists_every_partition() -> None:
    sessions = Sessions()
    session_id, listed = sessions.answer(sessions.fetch(0, 0, ("a", 0), ("b", 1)))
    assert session_id > 0
    assert listed == ["a-0", "b-1"]


def test_a_session_may_begin_without_partitions() -> None:
    sessions = Sessions()
    assert sessions.answer(sessions.fetch(0, 0))[0] > 0


def test_epoch_zero_with_an_id_closes_that_session_and_makes_another() -> None:
    sessions = Sessions()
    first = sessions.open(("a", 0))
    second = sessions.answer(sessions.fetch(first, 0, ("a", 0)))[0]
    assert second not in (0, first)
    assert sessions.fetch(first, 1).error == Error.FETCH_SESSION_ID_NOT_FOUND


def test_epoch_minus_one_with_an_id_closes_the_session() -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0))
    assert sessions.answer(sessions.fetch(session_id, -1, ("a", 0)))[0] == 0
    assert len(sessions.sessions) == 0


@pytest.mark.parametrize("session_id", [12345, -1])
def test_an_unknown_session_is_reported_as_unknown(session_id: int) -> None:
    assert Sessions().fetch(session_id, 1).error == Error.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, -2, 7])
def test_a_wrong_epoch_is_refused_and_uses_nothing_up(epoch: int) -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0))
    assert sessions.fetch(session_id, epoch, ("b", 0)).error == Error.INVALID_FETCH_SESSION_EPOCH
    plan = sessions.fetch(session_id, 1)
    assert plan.error == Error.NONE
    assert [target.topic for target in plan.targets] == ["a"]


def test_the_same_epoch_twice_is_refused() -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0))
    sessions.fetch(session_id, 1)
    assert sessions.fetch(session_id, 1).error == Error.INVALID_FETCH_SESSION_EPOCH


def test_a_session_of_names_refuses_ids_and_lives_on() -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0))
    assert sessions.fetch(session_id, 1, by_id=True).error == Error.FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.fetch(session_id, 1).error == Error.NONE


@pytest.mark.limit("broker.replicas.fetch_sessions.MAX_SESSION_EPOCH")
def test_after_the_largest_epoch_comes_one() -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0))
    plan = sessions.fetch(session_id, 1)
    assert plan.session is not None
    plan.session.epoch = MAX_SESSION_EPOCH
    assert sessions.fetch(session_id, MAX_SESSION_EPOCH).error == Error.NONE
    assert plan.session.epoch == 1


def test_an_incremental_request_adds_and_updates_then_forgets() -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0), ("b", 0))
    plan = sessions.fetch(session_id, 1, ("a", 0), ("c", 0), ("d", 0), forget=(("b", 0), ("d", 0)), offset=9)
    assert [(target.topic, target.fetch_offset) for target in plan.targets] == [("a", 9), ("c", 9)]


def test_a_session_left_with_nothing_is_closed() -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0))
    plan = sessions.fetch(session_id, 1, forget=(("a", 0),))
    assert sessions.answer(plan) == (0, [])
    assert len(sessions.sessions) == 0


def test_an_incremental_answer_leaves_out_unchanged_partitions() -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0))
    assert sessions.answer(sessions.fetch(session_id, 1)) == (session_id, [])


def test_a_partition_with_records_is_listed_and_then_read_last() -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0), ("b", 0))
    plan = sessions.fetch(session_id, 1)
    answers = [
        (target, PartitionData(partition_index=0, records=b"x" if target.topic == "a" else b""))
        for target in plan.targets
    ]
    _, listed = at_once(sessions.sessions.finish(plan, answers, lambda: 0))
    assert [target.topic for target, _ in listed] == ["a"]
    assert [target.topic for target in sessions.fetch(session_id, 2).targets] == ["b", "a"]


def test_a_moved_high_watermark_is_news_once() -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0))
    assert sessions.answer(sessions.fetch(session_id, 1), high_watermark=4)[1] == ["a-0"]
    assert sessions.answer(sessions.fetch(session_id, 2), high_watermark=4)[1] == []


def test_a_partition_without_records_keeps_its_place_whatever_is_news_of_it() -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0), ("b", 0))
    plan = sessions.fetch(session_id, 1)
    answers = [(each, PartitionData(high_watermark=4 if each.topic == "a" else 0)) for each in plan.targets]
    _, listed = at_once(sessions.sessions.finish(plan, answers, lambda: 0))
    assert [target.topic for target, _ in listed] == ["a"]
    assert [target.topic for target in sessions.fetch(session_id, 2).targets] == ["a", "b"]


def test_a_failed_partition_is_listed_each_time_and_once_more_when_healthy() -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0))
    for epoch in (1, 2):
        assert sessions.answer(sessions.fetch(session_id, epoch), error=3, high_watermark=-1)[1] == ["a-0"]
    assert sessions.answer(sessions.fetch(session_id, 3), high_watermark=0)[1] == ["a-0"]
    assert sessions.answer(sessions.fetch(session_id, 4), high_watermark=0)[1] == []


def test_fewer_slots_than_shards_make_no_session() -> None:
    sessions = Sessions(slots=7)
    assert sessions.answer(sessions.fetch(0, 0, ("a", 0))) == (0, ["a-0"])


def fill(sessions: Sessions, *partitions: tuple[str, int]) -> list[int]:
    return [sessions.open(*partitions) for _ in range(SLOTS)]


def test_a_full_cache_makes_no_session_while_the_others_are_young() -> None:
    sessions = Sessions()
    assert 0 not in fill(sessions, ("a", 0))
    sessions.now_ms = EVICTION_MS
    assert sessions.open(("a", 0)) == 0


def test_a_full_cache_gives_up_a_session_that_is_long_unused() -> None:
    sessions = Sessions()
    fill(sessions, ("a", 0), ("b", 0))
    sessions.now_ms = EVICTION_MS + 1
    assert sessions.open(("a", 0)) > 0
    assert len(sessions.sessions) == SLOTS


def test_a_full_cache_gives_up_an_old_session_for_one_that_is_no_smaller() -> None:
    sessions = Sessions()
    kept_in_use = fill(sessions, ("a", 0), ("b", 0))
    sessions.now_ms = EVICTION_MS + 1
    for session_id in kept_in_use:
        assert sessions.fetch(session_id, 1).error == Error.NONE
    assert sessions.open(("a", 0)) == 0  # smaller than any of them
    assert sessions.open(("a", 0), ("b", 0)) > 0


def _in_turns(steps: Any) -> tuple[Any, int]:
    """Take all steps. Returns their result, and the number of turns that they took."""
    turns = 0
    while True:
        try:
            steps.send(None)
        except StopIteration as end:
            return end.value, turns
        turns += 1


def wanting(sessions: Sessions, session_id: int, epoch: int, count: int, **more: Any) -> dict[str, Any]:
    asked = [FetchPartition(partition=index, fetch_offset=0) for index in range(count)]
    fields = {"wanted": [("a", asked)], "forgotten": [], "now_ms": lambda: sessions.now_ms}
    return {"session_id": session_id, "session_epoch": epoch, "by_id": False} | fields | more


@pytest.fixture
def _two_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (turns, fetch_sessions):
        monkeypatch.setattr(module, "PER_TURN", 2)


@pytest.mark.usefixtures("_two_a_turn")
def test_many_partitions_join_a_session_and_are_answered_in_turns() -> None:
    sessions = Sessions()
    plan, taken = _in_turns(sessions.sessions.begin(**wanting(sessions, 0, 0, 7)))
    assert taken >= 4
    answers = [(target, PartitionData(partition_index=target.index)) for target in plan.targets]
    (session_id, listed), taken = _in_turns(sessions.sessions.finish(plan, answers, lambda: 0))
    assert taken >= 3
    assert listed == answers
    gone = [ForgottenTopic(topic="a", partitions=[*range(5)])]
    more = wanting(sessions, session_id, 1, 9, forgotten=gone)
    plan, taken = _in_turns(sessions.sessions.begin(**more))
    assert taken >= 7
    assert [target.index for target in plan.targets] == [5, 6, 7, 8]
    assert sessions.answer(plan) == (session_id, ["a-7", "a-8"])  # the others are no news
    assert sessions.sessions._partitions == 4


@pytest.mark.usefixtures("_two_a_turn")
@pytest.mark.parametrize("turns_taken", range(1, 5))
def test_hanging_up_before_the_partitions_are_taken_over_changes_nothing(turns_taken: int) -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0))
    steps = sessions.sessions.begin(**wanting(sessions, session_id, 1, 7))
    for _ in range(turns_taken):
        steps.send(None)
    steps.close()
    plan = sessions.fetch(session_id, 1)
    assert [target.index for target in plan.targets] == [0]
    assert sessions.sessions._partitions == 1


@pytest.mark.usefixtures("_two_a_turn")
def test_of_a_sessions_two_requests_the_first_taken_over_counts() -> None:
    sessions = Sessions()
    session_id = sessions.open(("a", 0))
    steps = sessions.sessions.begin(**wanting(sessions, session_id, 1, 7))
    steps.send(None)
    assert sessions.fetch(session_id, 1, ("a", 9)).error == Error.NONE
    plan, _ = _in_turns(steps)
    assert plan.error == Error.INVALID_FETCH_SESSION_EPOCH
    steps = sessions.sessions.begin(**wanting(sessions, session_id, 2, 7))
    steps.send(None)
    sessions.fetch(session_id, -1)
    plan, _ = _in_turns(steps)
    assert plan.error == Error.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.sessions._partitions == 0


@pytest.mark.limit("broker.replicas.fetch_sessions.MOST_SESSION_PARTITIONS")
def test_the_partitions_of_all_sessions_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_SESSION_PARTITIONS", 4)
    sessions = Sessions()
    first = sessions.open(("a", 0), ("a", 1))
    second = sessions.open(("a", 0), ("nowhere", 7))
    assert sessions.open(("a", 0)) == 0  # answered, without a session
    assert len(sessions.sessions) == 2
    assert sessions.fetch(first, 1, ("a", 0)).error == Error.NONE
    assert sessions.fetch(first, 2, ("a", 2)).error == Error.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.fetch(first, 2).error == Error.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.fetch(second, 1).error == Error.NONE
    assert sessions.open(("a", 0), ("a", 1), ("a", 2)) == 0
    assert sessions.open(("a", 0), ("a", 1)) > 0


@pytest.mark.usefixtures("_two_a_turn")
def test_a_session_that_grows_past_the_bound_in_turns_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_SESSION_PARTITIONS", 4)
    sessions = Sessions()
    session_id = sessions.open(("a", 0))
    plan, _ = _in_turns(sessions.sessions.begin(**wanting(sessions, session_id, 1, 5)))
    assert plan.error == Error.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.sessions._partitions == len(sessions.sessions) == 0


def test_past_the_bound_stale_sessions_go_and_then_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_SESSION_PARTITIONS", 6)
    sessions = Sessions()
    stale, large, small = (sessions.open(*(("a", i) for i in range(size))) for size in (1, 4, 1))
    sessions.now_ms = EVICTION_MS + 1
    for used in (large, small):
        sessions.fetch(used, 1)
    assert sessions.open(("a", 0)) > 0  # instead of the stale one
    assert sessions.fetch(stale, 1).error == Error.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.open(*(("a", i) for i in range(3))) == 0  # the small one alone would not be enough
    assert sessions.fetch(small, 2).error == Error.NONE
    assert sessions.open(*(("a", i) for i in range(4))) > 0
    assert [sessions.fetch(each, 3).error for each in (small, large)] == [
        Error.FETCH_SESSION_ID_NOT_FOUND,
        Error.FETCH_SESSION_ID_NOT_FOUND,
    ]


def test_past_the_bound_the_longest_unused_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_SESSION_PARTITIONS", 6)
    sessions = Sessions()
    ids = [sessions.open(("a", index)) for index in range(6)]
    for used in (3, 1, 5, 0, 4, 2):
        sessions.now_ms += 1
        sessions.fetch(ids[used], 1)
    sessions.now_ms += EVICTION_MS + 1
    assert sessions.open(("a", 0), ("a", 1), ("a", 2)) > 0
    assert [index for index, each in enumerate(ids) if not sessions.fetch(each, 2).error] == [0, 2, 4]


def test_a_stale_session_keeps_its_slot_if_the_new_one_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_SESSION_PARTITIONS", SLOTS + 1)
    sessions = Sessions()
    stale = sessions.open(("a", 0))
    sessions.now_ms = EVICTION_MS + 1
    others = [sessions.open(("a", 0)) for _ in range(SLOTS - 1)]
    assert sessions.open(("a", 0), ("a", 1), ("a", 2)) == 0  # the stale one leaves room for two
    assert [sessions.fetch(each, 1).error for each in (stale, *others)] == [Error.NONE] * SLOTS


def test_taking_a_sessions_slot_frees_its_partitions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_SESSION_PARTITIONS", SLOTS)
    sessions = Sessions()
    stale = sessions.open(("a", 0))
    sessions.now_ms = EVICTION_MS + 1
    others = [sessions.open(("a", 0)) for _ in range(SLOTS - 1)]
    assert sessions.open(("a", 0)) == stale  # the ids of a slot are the same here
    assert [sessions.fetch(each, 1).error for each in others] == [Error.NONE] * (SLOTS - 1)


def test_impossible_topic_names_start_no_session() -> None:
    sessions = Sessions()
    assert sessions.open(("a" * 250, 0)) == 0
    session_id = sessions.open(("a" * 249, 0))
    assert sessions.fetch(session_id, 1, ("b" * 250, 0)).error == Error.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions.sessions) == 0
