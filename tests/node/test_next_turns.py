"""One turn of the loop lets only some connections in again, however many have had their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from broker.environment.scheduler import TURN_S
from broker.network.memory import NextTurns


class ManualScheduler:
    """A scheduler that calls when the test says so."""

    def __init__(self) -> None:
        self.calls: deque[Callable[[], object]] = deque()

    def call_soon(self, call: Callable[[], object]) -> ManualScheduler:
        self.calls.append(call)
        return self

    def turn(self) -> None:
        self.calls.popleft()()


def line() -> tuple[NextTurns, ManualScheduler]:
    scheduler = ManualScheduler()
    return NextTurns(scheduler), scheduler  # type: ignore[arg-type]


def serving(name: str, took_s: float, served: list[str]) -> Callable[[], float]:
    def serve_on() -> float:
        served.append(name)
        return took_s

    return serve_on


def test_long_requests_are_let_in_some_at_a_time_in_their_order() -> None:
    turns, scheduler = line()
    served: list[str] = []
    for name in "abcde":
        turns.wait(serving(name, 0.6 * TURN_S, served))
    scheduler.turn()
    assert served == ["a", "b"]
    scheduler.turn()
    scheduler.turn()
    assert served == [*"abcde"]
    assert not scheduler.calls


def test_short_requests_are_let_in_together() -> None:
    turns, scheduler = line()
    served: list[str] = []
    for name in "abcde":
        turns.wait(serving(name, 0.01 * TURN_S, served))
    scheduler.turn()
    assert served == [*"abcde"]


def test_a_waiter_that_queues_again_is_not_let_in_in_the_same_turn_and_a_gone_one_never() -> None:
    turns, scheduler = line()
    served: list[str] = []

    def again() -> float:
        served.append("again")
        turns.wait(again)
        return 0.0

    turns.wait(again)
    turns.wait(serving("gone", 0.0, served)).cancel()
    scheduler.turn()
    assert served == ["again"]
    assert len(scheduler.calls) == 1


def test_a_waiter_that_fails_keeps_none_of_the_others_out() -> None:
    turns, scheduler = line()
    served: list[str] = []

    def fails() -> float:
        raise ValueError("it can't be served")

    turns.wait(fails)
    turns.wait(serving("other", 0.0, served))
    with pytest.raises(ValueError, match="can't be served"):
        scheduler.turn()
    scheduler.turn()
    assert served == ["other"]
