"""Tests that each rule for share groups finds what breaks it."""

from __future__ import annotations

import pytest

from coordinator.share_partition.states import AcknowledgeType
from protocol.errors import Error
from tests.simulation.shares.deliveries import Acknowledgement, Deliveries, Delivery, Session

PLACE = ("orders", 0)
VALUE = b"value"
LOCK_S = 1.0
ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW


class Told:
    """A history of one record, at offset 3, in steps of a tenth of a second."""

    def __init__(self, *, is_latest: bool = False, may_lose: bool = False) -> None:
        self.deliveries = Deliveries("g", lock_s=LOCK_S, limit=3, is_latest=is_latest, may_lose=may_lose)
        self.sessions = {name: Session(name) for name in ("a", "b")}

    def given(
        self,
        at_s: float,
        member: str,
        count: int,
        *,
        term: object = "t",
        value: bytes | None = VALUE,
        is_old: bool = False,
    ) -> Delivery:
        session = self.sessions[member]
        return self.deliveries.delivered(
            session, PLACE, 3, count, value, at_s, at_s + 0.05, term, is_old=is_old
        )

    def said(
        self,
        at_s: float,
        delivery: Delivery,
        kind: int,
        error: Error | None = Error.NONE,
        *,
        term: object = "t",
    ) -> Acknowledgement:
        """Acknowledge; the answer comes a twentieth of a second later, or never."""
        [told] = self.deliveries.acknowledging(delivery.session, PLACE, {3: kind}, {3: delivery}, at_s)
        if error is not None:
            self.deliveries.acknowledged(told, error, at_s + 0.05, term)
        return told

    def complaints(
        self, there: bytes | None = VALUE, *, committed: dict[int, bytes] | None = None, begin: int = 0
    ) -> list[str]:
        log = {} if there is None else {3: there}
        found = self.deliveries.complaints(
            {PLACE: log}, None if committed is None else {PLACE: committed}, {PLACE: begin}
        )
        return [each.partition(": ")[2] for each in found]


def test_a_record_accepted_and_never_delivered_again_is_right() -> None:
    told = Told()
    told.said(0.2, told.given(0, "a", 1), ACCEPT)
    assert told.complaints() == []


@pytest.mark.parametrize(
    ("error", "is_right"),
    [(None, True), (Error.NOT_LEADER_OR_FOLLOWER, True), (Error.INVALID_RECORD_STATE, False)],
)
def test_a_record_with_an_acknowledgement_possibly_written_need_not_come_again(
    error: Error | None, is_right: bool
) -> None:
    told = Told()
    told.said(1.2, told.given(0, "a", 1), ACCEPT, error)
    assert (told.complaints() == []) is is_right


def test_a_record_that_comes_again_after_its_lock_and_after_a_release_is_right() -> None:
    told = Told()
    told.given(0, "a", 1)
    told.said(1.2, told.given(1.1, "b", 2), RELEASE)
    told.said(1.4, told.given(1.3, "a", 3), ACCEPT)
    assert told.complaints() == []


@pytest.mark.parametrize("term", ["t", "the next one"])
def test_a_done_record_that_comes_again_is_wrong(term: str) -> None:
    told = Told()
    told.said(0.2, told.given(0, "a", 1), ACCEPT)
    told.given(0.3, "b", 2, term=term)
    [complaint] = told.complaints()
    assert complaint.startswith("was done with by a at 0.25")


def test_a_done_record_may_come_from_an_old_leader() -> None:
    told = Told()
    told.said(0.2, told.given(0, "a", 1), ACCEPT)
    told.given(0.3, "b", 1, term="an old one", is_old=True)
    assert told.complaints() == []


def test_a_record_whose_lock_had_ended_may_come_again_from_the_next_leader() -> None:
    told = Told()
    told.said(1.2, told.given(0, "a", 1), ACCEPT)
    told.said(1.8, told.given(1.5, "b", 1, term="the next one"), ACCEPT, term="the next one")
    assert told.complaints() == []


def test_a_waiting_fetch_must_not_acquire_a_done_record_later_in_the_term() -> None:
    told = Told()
    told.said(0.2, told.given(0, "a", 1), ACCEPT)
    session = told.sessions["b"]
    told.deliveries.delivered(session, PLACE, 3, 2, VALUE, 0.1, 0.4, "t")
    assert [each.partition(" at ")[0] for each in told.complaints()] == ["was done with by a"]


def test_a_failed_or_unknown_acknowledgement_only_requires_the_record_to_be_done_or_delivered() -> None:
    told = Told()
    told.said(0.2, told.given(0, "a", 1), ACCEPT, None)
    assert told.complaints() == []
    told = Told()
    told.said(0.2, told.given(0, "a", 1), ACCEPT, Error.UNKNOWN_SERVER_ERROR)
    assert told.complaints() == ["is neither done with nor delivered 3 times"]


def test_a_record_never_delivered_is_wrong() -> None:
    assert Told().complaints() == ["is neither done with nor delivered 3 times"]
    assert Told(may_lose=True).complaints() == []


def test_lost_answers_count_as_deliveries() -> None:
    told = Told()
    told.given(0, "a", 1)
    told.deliveries.lost_answer(frozenset({PLACE}), 1.2)
    assert told.complaints() != []
    told.deliveries.lost_answer(frozenset({PLACE}), 2.4)
    assert told.complaints() == []


def test_deleted_records_need_not_be_delivered() -> None:
    told = Told()
    told.given(0, "a", 1)
    assert told.complaints(None) == []
    assert told.complaints(begin=4) == []
    assert told.complaints(begin=3) != []


def test_a_group_at_the_end_owes_the_records_after_its_first_write() -> None:
    told = Told(is_latest=True)
    told.given(0, "a", 1)
    assert told.complaints() == []
    told.said(1.5, told.given(1.3, "a", 2), RELEASE)
    assert told.complaints() == ["is neither done with nor delivered 3 times"]


@pytest.mark.parametrize("count", [0, 4])
def test_a_count_beyond_the_limit(count: int) -> None:
    told = Told(may_lose=True)
    told.given(0, "a", count)
    assert told.complaints()[0] == f"is delivered with count {count}, where 3 is the limit"


def test_a_count_that_does_not_grow_by_one() -> None:
    told = Told(may_lose=True)
    told.given(0, "a", 1)
    told.given(1.1, "b", 3)
    assert told.complaints()[0] == "is delivered with count 3 behind 1, and 0 answers were lost"
    told.deliveries.lost_answer(frozenset({PLACE}), 0.5)
    assert told.complaints() == []
    told.given(2.2, "b", 3)
    assert "is delivered twice with count 3" in told.complaints()


def test_counts_of_two_terms_are_two_things() -> None:
    told = Told()
    told.deliveries.lost_answer(frozenset({PLACE}), 0)
    told.given(0, "a", 2)
    told.said(0.4, told.given(0.3, "b", 1, term="the next one"), ACCEPT, term="the next one")
    assert told.complaints() == []


def test_a_count_of_deliveries_that_there_were_not() -> None:
    told = Told(may_lose=True)
    told.given(0, "a", 2)
    assert told.complaints() == ["is delivered with count 2 to a, the 1. time, and 0 answers were lost"]
    told.deliveries.lost_answer(frozenset({PLACE}), 0.01)
    assert told.complaints() == []


def test_a_count_that_was_written_is_forgotten() -> None:
    told = Told()
    told.said(0.2, told.given(0, "a", 1), RELEASE)
    told.said(0.5, told.given(0.3, "b", 2, term="u"), RELEASE, term="u")
    told.said(0.8, told.given(0.6, "a", 2, term="v"), ACCEPT, term="v")
    assert told.complaints() == [
        "was given back by b at 0.550000 with count 2, and is delivered with count 2 to a"
    ]


@pytest.mark.parametrize("why", ["late", "failed", "an old leader"])
def test_a_count_that_may_not_have_been_written(why: str) -> None:
    told = Told()
    error = None if why == "failed" else Error.NONE
    told.said(0.97 if why == "late" else 0.2, told.given(0, "a", 1), RELEASE, error)
    told.said(1.8, told.given(1.1, "b", 1, term="u", is_old=why == "an old leader"), ACCEPT, term="u")
    assert told.complaints() == []


def test_two_have_it_at_a_time() -> None:
    told = Told(may_lose=True)
    told.given(0, "a", 1)
    told.given(0.9, "b", 2)
    assert told.complaints() == ["is b's at 0.950000, and a's until 1.000000"]


@pytest.mark.parametrize("how", ["released", "session over"])
def test_a_member_that_gives_up_does_not_hold_the_record(how: str) -> None:
    told = Told(may_lose=True)
    delivery = told.given(0, "a", 1)
    if how == "released":
        told.said(0.8, delivery, RELEASE, None)
    else:
        delivery.session.over_s = 0.8
    told.given(0.9, "b", 2)
    assert told.complaints() == []


def test_a_renewed_lock_is_longer() -> None:
    told = Told(may_lose=True)
    told.said(0.5, told.given(0, "a", 1), RENEW)
    told.given(1.2, "b", 2)
    assert told.complaints() == ["is b's at 1.250000, and a's until 1.500000"]


def test_refusing_an_acknowledgement_of_the_holder_is_wrong() -> None:
    told = Told()
    told.said(0.2, told.given(0, "a", 1), RELEASE, Error.INVALID_RECORD_STATE)
    assert "is refused to a at 0.250000, which holds it" in told.complaints()


@pytest.mark.parametrize("why", ["late", "twice", "another term", "beside what it doesn't have"])
def test_refusing_an_acknowledgement_of_a_possible_nonholder_is_right(why: str) -> None:
    told = Told()
    delivery = told.given(0, "a", 1)
    if why == "twice":
        told.said(0.1, delivery, RELEASE, Error.UNKNOWN_SERVER_ERROR)
    at_s = 0.97 if why == "late" else 0.2
    refused = told.said(
        at_s, delivery, RELEASE, Error.INVALID_RECORD_STATE, term="u" if why == "another term" else "t"
    )
    if why == "beside what it doesn't have":
        refused.together.append(Acknowledgement(told.sessions["a"], ACCEPT, at_s, told.given(5, "b", 2), []))
    assert not [each for each in told.complaints() if "is refused" in each]


def test_acknowledging_anothers_record_is_wrong() -> None:
    told = Told()
    first = told.given(0, "a", 1)
    told.given(1.1, "b", 2)
    told.said(1.3, first, RELEASE)
    assert "is b's until 2.100000, and a acknowledges it at 1.350000" in told.complaints()


def test_values() -> None:
    told = Told()
    told.said(0.2, told.given(0, "a", 1), ACCEPT)
    assert told.complaints(b"another") == ["is given to a as b'value', and is b'another'"]
    assert told.complaints(committed={}) == ["is given to a, and was aborted"]
    told = Told()
    told.said(0.2, told.given(0, "a", 1, value=None), ACCEPT)
    assert told.complaints() == ["is given to a without its value, b'value'"]
    assert told.complaints(committed={}) == []
    assert told.complaints(None) == []
