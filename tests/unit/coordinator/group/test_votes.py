from __future__ import annotations

import pytest

from coordinator.group.classic.group import candidates, select_protocol


def test_only_protocols_that_all_members_support_are_candidates() -> None:
    assert candidates([["a", "b", "c"], ["c", "b"], ["b", "d", "c"]]) == {"b", "c"}


def test_a_name_that_a_member_lists_twice_drops_out_while_there_is_another() -> None:
    # Kafka answers so, since it counts names
    assert select_protocol([["p", "p", "q"]]) == "q"
    assert select_protocol([["p", "p"]]) == "p"


def test_each_member_votes_for_its_first_candidate_and_most_votes_win() -> None:
    assert select_protocol([["x", "a", "b"], ["b", "a"], ["a", "b"]]) == "a"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # Kafka gave each of these answers
        ("range", "roundrobin", "range"),
        ("roundrobin", "sticky", "sticky"),
        ("sticky", "cooperative-sticky", "sticky"),
        ("cooperative-sticky", "a", "a"),
        ("b", "AaAa", "b"),
        ("AaAa", "range", "range"),
    ],
)
def test_a_tie_goes_to_the_first_in_javas_order(one: str, other: str, expected: str) -> None:
    assert select_protocol([[one, other], [other, one]]) == expected
    assert select_protocol([[other, one], [one, other]]) == expected


def test_nothing_in_common_is_an_error() -> None:
    with pytest.raises(ValueError, match="no protocol"):
        select_protocol([["a"], ["b"]])
