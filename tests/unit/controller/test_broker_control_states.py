"""The table of a broker's states, cell by cell, as in Kafka's BrokerHeartbeatManagerTest and its source."""

from __future__ import annotations

from itertools import product

import pytest

from broker.controller.broker_heartbeats import (
    NEXT_STATE,
    BrokerControlState,
    BrokerWish,
    Circumstances,
    asks_who_leads,
)

FENCED, UNFENCED, CONTROLLED_SHUTDOWN, SHUTDOWN_NOW = BrokerControlState

# The first letter of the next state, for each combination of circumstances:
# c: the broker has caught up, l: it leads something, p: the others have passed its shutdown
CELLS = """
                                         | -  c  l  cl p  cp lp clp
fenced              run                  | F  U  F  U  F  U  F  U
fenced              fence                | F  F  F  F  F  F  F  F
fenced              shut_down            | S  S  S  S  S  S  S  S
fenced              fence_and_shut_down  | S  S  S  S  S  S  S  S
unfenced            run                  | U  U  U  U  U  U  U  U
unfenced            fence                | F  F  F  F  F  F  F  F
unfenced            shut_down            | S  S  C  C  S  S  C  C
unfenced            fence_and_shut_down  | S  S  S  S  S  S  S  S
controlled_shutdown run                  | C  C  C  C  S  S  C  C
controlled_shutdown fence                | C  C  C  C  S  S  C  C
controlled_shutdown shut_down            | C  C  C  C  S  S  C  C
controlled_shutdown fence_and_shut_down  | C  C  C  C  S  S  C  C
shutdown_now        run                  | S  S  S  S  S  S  S  S
shutdown_now        fence                | S  S  S  S  S  S  S  S
shutdown_now        shut_down            | S  S  S  S  S  S  S  S
shutdown_now        fence_and_shut_down  | S  S  S  S  S  S  S  S
"""


def rows() -> list[tuple[BrokerControlState, BrokerWish, dict[str, str]]]:
    head, *lines = (line.split("|") for line in CELLS.splitlines() if line)
    found = []
    for where, cells in lines:
        state, wish = where.split()
        by_circumstances = dict(zip(head[1].split(), cells.split(), strict=True))
        found.append((BrokerControlState[state.upper()], BrokerWish[wish.upper()], by_circumstances))
    return found


@pytest.mark.table("broker.controller.broker_heartbeats.NEXT_STATE")
@pytest.mark.parametrize(("state", "wish", "expected"), rows())
def test_the_effect_of_a_heartbeat_on_a_broker(
    state: BrokerControlState, wish: BrokerWish, expected: dict[str, str]
) -> None:
    found = {
        met: NEXT_STATE[state, wish](Circumstances("c" in met, "l" in met, "p" in met)).name[0]
        for met in expected
    }
    assert found == expected


def test_the_table_has_each_state_with_each_wish() -> None:
    every = {*product(BrokerControlState, BrokerWish)}
    assert {(state, wish) for state, wish, _ in rows()} == every == NEXT_STATE.keys()


@pytest.mark.parametrize(("state", "wish", "cells"), rows())
def test_a_brokers_leaderships_are_looked_up_where_they_make_a_difference(
    state: BrokerControlState, wish: BrokerWish, cells: dict[str, str]
) -> None:
    differs = any(
        cells[met] != cells[other] for met, other in (("-", "l"), ("c", "cl"), ("p", "lp"), ("cp", "clp"))
    )
    assert asks_who_leads(state, wish) is differs


def test_the_flags_of_the_states() -> None:
    assert [state for state in BrokerControlState if state.fenced] == [FENCED, SHUTDOWN_NOW]
    assert [state for state in BrokerControlState if state.should_shut_down] == [SHUTDOWN_NOW]


def test_a_wish_is_two_flags_of_a_heartbeat() -> None:
    assert BrokerWish((False, False)) is BrokerWish.RUN
    assert BrokerWish((True, False)) is BrokerWish.FENCE
    assert BrokerWish((False, True)) is BrokerWish.SHUT_DOWN
    assert BrokerWish((True, True)) is BrokerWish.FENCE_AND_SHUT_DOWN
