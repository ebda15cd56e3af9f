"""Who waits at a partition that moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.replicas.fetch_wakeups import WOKEN_PER_TURN, WaitingFetches


class Waiting:
    """One of many, whose turns a test takes."""

    is_over = False

    def __init__(self, woken: list[int], turns: list[Callable[[], object]]) -> None:
        self._woken = woken
        self._turns = turns

    def recheck(self, place: int) -> None:
        self._woken.append(place)

    def call_soon(self, callback: Callable[[], object]) -> object:
        self._turns.append(callback)
        return None


@pytest.mark.limit("broker.replicas.fetch_wakeups.WOKEN_PER_TURN")
def test_of_very_many_so_many_are_woken_at_once_and_the_others_in_turns_of_their_own() -> None:
    woken: list[int] = []
    turns: list[Callable[[], object]] = []
    fetches = WaitingFetches()
    for place in range(2 * WOKEN_PER_TURN + 1):
        fetches.add(Waiting(woken, turns), place)
    fetches.wake()
    counts = [len(woken)]
    while turns:
        turns.pop()()
        counts.append(len(woken))
    assert counts == [WOKEN_PER_TURN, 2 * WOKEN_PER_TURN, 2 * WOKEN_PER_TURN + 1]
    assert woken == [*range(2 * WOKEN_PER_TURN + 1)]
    fetches.wake()
    assert len(turns) == 1
