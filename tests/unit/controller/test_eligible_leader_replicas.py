"""Which replicas stay eligible to lead a partition (KIP-966)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.controller.image import NO_LEADER, RECOVERING
from broker.controller.partition_changes import Election, Wish
from tests.unit.controller.one_partition import (
    EVERY,
    WITH_ELR,
    WITHOUT,
    after,
    all_but,
    change,
    everybody,
    home,
    nobody,
    only,
    partition,
    record,
)


@EVERY
def test_a_replica_that_leaves_an_isr_that_is_too_small_stays_eligible(where: dict[str, Any]) -> None:
    before = partition([1, 2, 3, 4], [1, 2, 3, 4], 1)
    kept = {"eligible_leader_replicas": [3, 4]} if where["elr"] else {}
    assert change(before, Wish(isr=[1, 2], election=Election.PREFERRED), min_isr=3, **where) == record(
        isr=[1, 2], **kept
    )


@EVERY
def test_no_replica_is_eligible_beside_a_large_enough_isr(where: dict[str, Any]) -> None:
    before = partition([1, 2, 3, 4], [1, 2], 1, eligible_leader_replicas=[3], last_known_elr=[4])
    assert change(before, Wish(isr=[1, 2, 3]), min_isr=3, **where) == record(
        isr=[1, 2, 3], eligible_leader_replicas=[]
    )


@pytest.mark.parametrize(("where", "now"), [(WITHOUT, []), (WITH_ELR, [3])])
def test_an_eligible_replica_stays_so_when_another_joins_an_isr_that_is_too_small(
    where: dict[str, Any], now: list[int]
) -> None:
    before = partition([1, 2, 3, 4], [1], 1, eligible_leader_replicas=[3])
    found = change(before, Wish(isr=[1, 4]), min_isr=3, **where)
    assert after(before, found).elr == now
    assert found is not None
    assert found.eligible_leader_replicas == (None if where is WITH_ELR else [])


@pytest.mark.parametrize(("where", "now"), [(WITHOUT, []), (WITH_ELR, [2])])
def test_a_replica_that_may_have_lost_something_is_no_longer_eligible(
    where: dict[str, Any], now: list[int]
) -> None:
    before = partition([1, 2, 3, 4], [1], 1, eligible_leader_replicas=[2, 3])
    assert change(before, Wish(unclean_shutdown=[3]), min_isr=3, **where) == record(
        eligible_leader_replicas=now
    )


def test_an_eligible_one_is_elected_and_in_sync_from_then_on() -> None:
    before = partition([1, 2, 3, 4], [1], 1, eligible_leader_replicas=[3])
    assert change(before, Wish(isr=[], election=Election.PREFERRED), all_but(1), min_isr=3) == record(
        isr=[3], eligible_leader_replicas=[1], leader=3
    )


def test_an_isr_may_become_empty_and_all_stay_eligible() -> None:
    before = partition([1, 2, 3, 4], [1, 2, 3, 4], 1)
    gone = change(before, Wish(isr=[], election=Election.PREFERRED), nobody, min_isr=3)
    assert gone == record(isr=[], leader=NO_LEADER, eligible_leader_replicas=[1, 2, 3, 4], last_known_elr=[1])
    unclean = change(after(before, gone), Wish(unclean_shutdown=[2]), nobody, min_isr=3)
    assert unclean == record(eligible_leader_replicas=[1, 3, 4])


def test_the_last_leader_is_elected_if_nobody_is_eligible() -> None:
    before = partition([1, 2, 3, 4], [], NO_LEADER, last_known_elr=[1])
    assert change(before, Wish(isr=[], election=Election.PREFERRED), everybody, min_isr=3) == record(
        isr=[1], leader=1, leader_recovery_state=RECOVERING, last_known_elr=[]
    )


def test_the_last_leader_is_not_elected_if_somebody_is_eligible() -> None:
    before = partition([1, 2, 3, 4], [], NO_LEADER, eligible_leader_replicas=[3], last_known_elr=[1])
    assert change(before, Wish(isr=[], election=Election.PREFERRED), all_but(3), min_isr=3) is None


def test_the_first_leader_that_went_stays_the_last_known_one() -> None:
    before = partition([1, 2], [2], 2, last_known_elr=[1])
    gone = change(before, Wish(isr=[]), nobody)
    assert gone == record(isr=[], leader=NO_LEADER, eligible_leader_replicas=[2])


def test_a_replica_leaving_a_leaderless_partition_makes_no_last_known_leader() -> None:
    """Kafka's does so, too: the record repeats the leader −1 for the sake of a new epoch."""
    before = partition([1, 2, 3], [1], NO_LEADER)
    assert change(before, Wish(replicas=[1, 2]), nobody, min_isr=1) == record(
        replicas=[1, 2], leader=NO_LEADER, last_known_elr=[-1], directories=[home(1), home(2)]
    )


def test_eligible_replicas_are_listed_in_the_order_of_kafkas_set() -> None:
    """Kafka has a HashSet of numbers. Its order here is by their last four bits, then by which came first."""
    before = partition([40, 17, 8, 33, 1], [40, 33, 1], 40, eligible_leader_replicas=[17, 8])
    found = change(before, Wish(isr=[]), nobody, min_isr=3)
    assert found is not None
    assert found.eligible_leader_replicas == [17, 33, 1, 8, 40]


def test_sixteen_comes_first_in_the_order_of_kafkas_set() -> None:
    before = partition([3, 16], [3, 16], 3)
    for isr, elr in ([3, 16], []), ([3], [16]), ([16], [3]):
        before.isr, before.elr = isr, elr
        found = change(before, Wish(isr=[]), nobody)
        assert after(before, found).elr == [16, 3]


def test_a_replica_that_went_while_too_few_were_in_sync_stays_eligible() -> None:
    """Kafka keeps it, too. It is never elected, since only a replica can be."""
    before = partition([2, 1], [1], 1, removing_replicas=[1], adding_replicas=[2])
    done = change(before, Wish(isr=[1, 2]), everybody, min_isr=2)
    assert done is not None
    assert (done.isr, done.replicas, done.eligible_leader_replicas) == ([2], [2], [1])
    gone = change(after(before, done), Wish(isr=[]), only(1), min_isr=2)
    assert gone is not None
    assert gone.leader == NO_LEADER
