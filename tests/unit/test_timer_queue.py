from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.environment.scheduler import FORGOTTEN_BEFORE_SWEEP, TimerQueue


class Clockwork:
    """A queue, its clock, and which timer fired when."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.queue = TimerQueue(lambda: self.now_ms)
        self.fired: list[tuple[str, int]] = []

    def schedule(self, key: str, delay_ms: int, also: Callable[[], None] = lambda: None) -> None:
        def callback() -> None:
            self.fired.append((key, self.now_ms))
            also()

        self.queue.schedule(key, delay_ms, callback)

    def go_to(self, now_ms: int) -> list[tuple[str, int]]:
        self.now_ms = now_ms
        self.queue.fire_due()
        return self.fired


@pytest.fixture
def clockwork() -> Clockwork:
    return Clockwork()


def test_a_timer_fires_once_when_its_delay_has_passed(clockwork: Clockwork) -> None:
    clockwork.schedule("a", 10)

    assert clockwork.go_to(9) == []
    assert clockwork.go_to(10) == [("a", 10)]
    assert clockwork.go_to(100) == [("a", 10)]


def test_timers_fire_in_the_order_of_their_deadlines_and_then_of_scheduling(clockwork: Clockwork) -> None:
    for key, delay_ms in (("late", 9), ("first", 5), ("second", 5)):
        clockwork.schedule(key, delay_ms)

    assert [key for key, _ in clockwork.go_to(20)] == ["first", "second", "late"]


def test_a_rescheduled_timer_fires_only_at_the_new_deadline(clockwork: Clockwork) -> None:
    clockwork.schedule("a", 10)
    clockwork.now_ms = 5
    clockwork.schedule("a", 10)

    assert clockwork.go_to(14) == []
    assert clockwork.go_to(15) == [("a", 15)]
    assert clockwork.go_to(99) == [("a", 15)]


def test_a_timer_can_be_moved_forward(clockwork: Clockwork) -> None:
    clockwork.schedule("a", 1000)
    clockwork.schedule("a", 10)

    assert clockwork.queue.next_ms == 10
    assert clockwork.go_to(2000) == [("a", 2000)]


def test_a_cancelled_timer_never_fires(clockwork: Clockwork) -> None:
    clockwork.schedule("a", 10)
    clockwork.queue.cancel("a")

    assert clockwork.queue.next_ms is None
    assert clockwork.go_to(99) == []


def test_timers_can_be_cancelled_by_their_keys(clockwork: Clockwork) -> None:
    for key in ("a1", "a2", "b1"):
        clockwork.schedule(key, 10)

    clockwork.queue.cancel_where(lambda key: str(key).startswith("a"))

    assert clockwork.go_to(10) == [("b1", 10)]


def test_a_timer_that_reschedules_itself_at_once_delays_nobody(clockwork: Clockwork) -> None:
    def again() -> None:
        clockwork.schedule("a", 0, again)

    clockwork.schedule("a", 10, again)
    clockwork.schedule("b", 10)

    assert clockwork.go_to(10) == [("a", 10), ("b", 10)]
    assert clockwork.queue.next_ms == 10
    assert clockwork.go_to(10) == [("a", 10), ("b", 10), ("a", 10)]


def test_a_timer_can_cancel_and_put_off_those_that_are_due_with_it(clockwork: Clockwork) -> None:
    def meddle() -> None:
        clockwork.queue.cancel("cancelled")
        clockwork.schedule("put off", 5)

    clockwork.schedule("a", 10, meddle)
    for key in ("cancelled", "put off", "last"):
        clockwork.schedule(key, 10)

    assert clockwork.go_to(10) == [("a", 10), ("last", 10)]
    assert clockwork.go_to(15) == [("a", 10), ("last", 10), ("put off", 15)]
    assert len(clockwork.queue) == 0


def test_after_a_failure_the_other_timers_still_fire(clockwork: Clockwork) -> None:
    def fail() -> None:
        raise ValueError("no")

    clockwork.schedule("a", 1, fail)
    clockwork.schedule("b", 2)
    with pytest.raises(ValueError, match="no"):
        clockwork.go_to(5)

    assert clockwork.go_to(5) == [("a", 5), ("b", 5)]


def test_timers_left_when_the_turn_is_over_fire_in_the_next_turns_ahead_of_new_ones(
    clockwork: Clockwork,
) -> None:
    clockwork.schedule("a", 1, lambda: clockwork.schedule("at once", 0))
    for key in ("b", "c", "d"):
        clockwork.schedule(key, 1)
    clockwork.queue.cancel("c")
    clockwork.now_ms = 1
    fired = []
    while clockwork.queue.next_ms is not None:
        clockwork.queue.fire_due(lambda: True)
        fired.append([key for key, _ in clockwork.fired])
    assert fired == [["a"], ["a", "b"], ["a", "b", "d"], ["a", "b", "d", "at once"]]


@pytest.mark.limit("broker.environment.scheduler.FORGOTTEN_BEFORE_SWEEP")
def test_cancelled_timers_do_not_pile_up(clockwork: Clockwork) -> None:
    for number in range(10 * FORGOTTEN_BEFORE_SWEEP):
        clockwork.schedule(f"{number}", 1000)
        clockwork.queue.cancel(f"{number}")
        clockwork.schedule("kept", 2000 + number)

    assert len(clockwork.queue) == 1
    assert len(clockwork.queue._queue) <= FORGOTTEN_BEFORE_SWEEP + 2
    assert clockwork.go_to(10**6) == [("kept", 10**6)]
