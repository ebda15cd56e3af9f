"""Who becomes leader of one partition: every kind of election in every case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.controller.image import NO_LEADER, NO_LEADER_CHANGE, RECOVERED, RECOVERING
from broker.controller.partition_changes import Election, Wish
from tests.unit.controller.one_partition import (
    EVERY,
    FOO,
    NOTHING,
    OFFLINE,
    OFFLINE_WITH_ELR,
    after,
    change,
    everybody,
    nobody,
    only,
    partition,
    record,
)

PREFERRED, ONLINE, UNCLEAN = Election.PREFERRED, Election.ONLINE, Election.UNCLEAN


@EVERY
@pytest.mark.parametrize(
    ("election", "isr", "leader"),
    [
        (PREFERRED, None, 2),
        (ONLINE, None, NO_LEADER_CHANGE),
        (UNCLEAN, None, NO_LEADER_CHANGE),
        (ONLINE, [1, 3], NO_LEADER_CHANGE),
        (UNCLEAN, [1, 3], NO_LEADER_CHANGE),
        (ONLINE, [3], NO_LEADER),
        (PREFERRED, [3], NO_LEADER),
        (ONLINE, [2, 3], 2),
    ],
)
def test_an_election_among_replicas_in_sync(
    election: Election, isr: list[int] | None, leader: int, where: dict[str, Any]
) -> None:
    wish = Wish(isr=isr, election=election)
    found = change(FOO, wish, **where)
    assert (NO_LEADER_CHANGE if found is None else found.leader) == leader
    assert found is None or found.leader_recovery_state == -1


def test_a_leader_is_found_among_the_replicas_that_are_wanted() -> None:
    found = change(FOO, Wish(isr=[4], replicas=[2, 1, 3, 4], election=UNCLEAN), min_isr=1)
    assert found is not None
    assert (found.leader, found.isr, found.leader_recovery_state) == (4, [4], -1)


# The outcome of each kind of election. Replicas are 1 2 3: who is online, ISR, ELR, last leader → leader, is it
# unclean?
# The leader was 3. It loses the leadership if `leader` is another one.
CELLS = [
    # the preferred replica can lead
    (PREFERRED, only(1, 2, 3), [2, 1, 3], [], [], 1, False),
    (ONLINE, only(1, 2, 3), [2, 1, 3], [], [], 3, False),
    (UNCLEAN, only(1, 2, 3), [2, 1, 3], [], [], 3, False),
    # the preferred replica is online, but not in sync
    (PREFERRED, only(1, 2, 3), [2, 3], [], [], 3, False),
    # the preferred replica is in sync, but not online
    (PREFERRED, only(2, 3), [2, 1, 3], [], [], 3, False),
    # the leader can't lead either: the first of the other replicas, in their order, does
    (PREFERRED, only(2), [3, 2, 1], [], [], 2, False),
    (ONLINE, only(1, 2), [3, 2, 1], [], [], 1, False),
    (UNCLEAN, only(1, 2), [3, 2, 1], [], [], 1, False),
    (ONLINE, only(2), [3, 2, 1], [], [], 2, False),
    # there are replicas in sync: eligible ones don't count
    (PREFERRED, only(2), [3], [2], [], NO_LEADER, False),
    (ONLINE, only(2), [3], [2], [], NO_LEADER, False),
    (UNCLEAN, only(2), [3], [2], [], 2, True),
    # nor does the last leader
    (ONLINE, only(2), [3], [], [2], NO_LEADER, False),
    # no replica is in sync: an eligible one leads
    (PREFERRED, only(1, 2), [], [1, 2], [], 1, False),
    (PREFERRED, only(1, 2), [], [2], [], 2, False),
    (ONLINE, only(1, 2), [], [2], [1], 2, False),
    (UNCLEAN, only(1, 2), [], [2], [1], 2, False),
    # no eligible replica is online
    (ONLINE, only(1), [], [2], [1], NO_LEADER, False),
    (UNCLEAN, only(1), [], [2], [2], 1, True),
    # no replica is eligible: the last leader leads, whatever records it lacks
    (PREFERRED, only(1, 2, 3), [], [], [2], 2, True),
    (ONLINE, only(1, 2, 3), [], [], [2], 2, True),
    (UNCLEAN, only(1, 2, 3), [], [], [2], 2, True),
    # the last leader isn't online
    (PREFERRED, only(1, 3), [], [], [2], NO_LEADER, False),
    (ONLINE, only(1, 3), [], [], [2], NO_LEADER, False),
    (UNCLEAN, only(1, 3), [], [], [2], 1, True),
    # the last leader isn't known
    (ONLINE, only(1, 3), [], [], [1, 3], NO_LEADER, False),
    (ONLINE, only(1, 3), [], [], [], NO_LEADER, False),
    (UNCLEAN, only(2, 3), [], [], [], 2, True),
    # no replica is online
    (PREFERRED, nobody, [1], [], [1], NO_LEADER, False),
    (ONLINE, nobody, [1], [], [1], NO_LEADER, False),
    (UNCLEAN, nobody, [1], [], [1], NO_LEADER, False),
]


@pytest.mark.parametrize(("election", "online", "isr", "elr", "last_known", "leader", "is_unclean"), CELLS)
def test_every_kind_of_election(
    election: Election,
    online: Callable[[int], bool],
    isr: list[int],
    elr: list[int],
    last_known: list[int],
    leader: int,
    is_unclean: bool,
) -> None:
    before = partition(
        [1, 2, 3],
        isr,
        3 if 3 in isr else NO_LEADER,
        eligible_leader_replicas=elr,
        last_known_elr=last_known,
    )
    found = change(before, Wish(election=election), online, min_isr=3)
    now = before if found is None else after(before, found)
    assert now.leader == leader
    assert now.leader_recovery_state == (RECOVERING if is_unclean else RECOVERED)
    if is_unclean:
        assert (now.isr, now.elr, now.last_known_elr) == ([leader], [], [])
    if not isr and leader != NO_LEADER:
        assert now.isr == [leader]
        assert leader not in now.elr
        assert now.last_known_elr == []


def test_without_eligible_replicas_a_replica_that_just_left_cannot_lead() -> None:
    assert change(partition([1, 2], [1], 1), Wish(isr=[]), everybody, elr=False) == record(leader=NO_LEADER)


def test_without_eligible_replicas_the_last_leader_is_not_elected() -> None:
    left = partition([1, 2], [], NO_LEADER, last_known_elr=[1])
    assert change(left, NOTHING, everybody, elr=False) is None


@EVERY
@pytest.mark.parametrize(("isr", "elected"), [(None, 1), ([2], 1)])
def test_an_unclean_election_leaves_one_in_sync_that_recovers(
    isr: list[int] | None, elected: int, where: dict[str, Any]
) -> None:
    before = OFFLINE_WITH_ELR if where["elr"] else OFFLINE
    cleared = {"eligible_leader_replicas": [], "last_known_elr": []} if where["elr"] else {}
    assert change(before, Wish(isr=isr, election=UNCLEAN), only(1), **where) == record(
        isr=[elected], leader=elected, leader_recovery_state=RECOVERING, **cleared
    )


@EVERY
def test_an_unclean_election_takes_the_first_replica_that_is_online(where: dict[str, Any]) -> None:
    assert change(FOO, Wish(isr=[3], election=UNCLEAN), **where) == record(
        isr=[2], leader=2, leader_recovery_state=RECOVERING
    )


def test_a_leader_that_comes_and_goes_changes_nothing_about_its_recovery() -> None:
    recovering = partition([1, 2, 3], [1], 1, leader_recovery_state=RECOVERING)
    gone = change(recovering, Wish(isr=[]), nobody, elr=False)
    assert gone == record(leader=NO_LEADER)
    offline = after(recovering, gone)
    assert (offline.leader, offline.isr, offline.leader_recovery_state) == (NO_LEADER, [1], RECOVERING)
    back = change(offline, NOTHING, everybody, elr=False)
    assert back == record(leader=1)
    assert after(offline, back).leader_recovery_state == RECOVERING


def test_another_unclean_election_does_not_change_the_recovery_state() -> None:
    recovering = partition([1, 2, 3], [1], 1, leader_recovery_state=RECOVERING)
    found = change(recovering, Wish(isr=[], election=UNCLEAN), only(2), elr=False)
    assert found == record(leader=2, isr=[2])


@pytest.mark.parametrize(
    ("before", "wanted", "said"),
    [(RECOVERING, RECOVERED, RECOVERED), (RECOVERED, RECOVERING, RECOVERING), (RECOVERING, RECOVERING, -1)],
)
def test_the_wanted_recovery_state_is_recorded_if_it_differs(before: int, wanted: int, said: int) -> None:
    found = change(
        partition([2, 1], [2], 2, leader_recovery_state=before),
        Wish(isr=[2, 1], leader_recovery_state=wanted),
    )
    assert found == record(isr=[2, 1], leader_recovery_state=said)
