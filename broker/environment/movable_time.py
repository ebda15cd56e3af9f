"""Time that a test moves: the machine's, and so much more. It may stand still, too.

It is clock and scheduler at once, so that what is due and what the time is never disagree. To go an hour on it goes
from one deadline to the next: whatever a timer brings about happens, and sets its own timers, before the next is due.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from broker.environment.scheduler import LoopScheduler, Scheduled, SystemClock
from protocol.waiting import Later

MOST_STEPS = 20_000
"""Deadlines that one advance stops at. What is farther on is jumped to: a timer that comes each second has come 20,000
times by then, and comes once more."""

_TURNS_BETWEEN = 3
"""Of the loop, for what a timer has brought about."""


def _sum(way: Callable[[], Any], more: Any) -> Any:
    return way() + more


class _Timer:
    """One that isn't due yet, or was cancelled."""

    __slots__ = ("_time", "args", "callback", "deadline_s", "handle")

    def __init__(
        self, of: MovableTime, deadline_s: float, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self._time = of
        self.deadline_s = deadline_s
        self.callback = callback
        self.args = args
        self.handle: Scheduled | None = None

    def cancel(self) -> None:
        self._time.forget(self)

    def disarm(self) -> None:
        """The loop doesn't call it: it is over, or the time stands."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None


class _Switched:
    """A call of whatever function is there at the moment, through iterators of C: who has bound `call` once pays for no
    frame of ours, and goes by the next function all the same."""

    __slots__ = ("_functions", "call")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._functions = [function]
        which = iter(partial(self._functions.__getitem__, 0), None)
        self.call: Callable[[], Any] = map(operator.call, which).__next__

    def to(self, function: Callable[[], Any]) -> None:
        """It calls this one from now on."""
        self._functions[0] = function


class MovableTime(SystemClock):
    """A `Clock` and a `Scheduler`, on the loop that runs. As long as nobody moves it, it costs what the machine's
    does."""

    __slots__ = (
        "_loop",
        "_more_ns",
        "_stands_at",
        "_switched",
        "_timers",
        "call_soon",
        "guard",
        "tell_failures",
        "time",
    )

    def __init__(self) -> None:
        self._loop = LoopScheduler()
        self._more_ns = 0
        self._stands_at: tuple[float, float, int] | None = None  # loop's, monotonic, wall time: the machine's
        self._timers: dict[_Timer, None] = {}
        self._switched = tuple(map(_Switched, self._of_the_machine()))
        self.time: Callable[[], float]
        self.time, self.monotonic_s, self.time_ns = (each.call for each in self._switched)
        self.call_soon: Callable[..., Scheduled] = self._loop.call_soon
        self.tell_failures = self._loop.tell_failures
        self.guard = self._loop.guard

    def _of_the_machine(self) -> tuple[Callable[[], Any], ...]:
        return self._loop.time, time.monotonic, time.time_ns

    def _switch(self) -> None:
        """Behind each change of how the time goes."""
        stands_at, more_ns = self._stands_at, self._more_ns
        ways = self._of_the_machine()
        if stands_at is not None:
            ways = tuple(partial(operator.pos, each) for each in stands_at)
        if more_ns:
            in_each = more_ns / 1e9, more_ns / 1e9, more_ns
            ways = tuple(partial(_sum, way, more) for way, more in zip(ways, in_each, strict=True))
        for switched, way in zip(self._switched, ways, strict=True):
            switched.to(way)

    # --- timers ---------------------------------------------------------------------------------------------

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Scheduled:
        """Once so much time is over, by itself or because it was moved."""
        timer = _Timer(self, self.time() + delay_s, callback, args)
        self._timers[timer] = None
        self._arm(timer)
        return timer

    def _arm(self, timer: _Timer) -> None:
        if self._stands_at is None:
            timer.handle = self._loop.call_later(timer.deadline_s - self.time(), self._fire, timer)

    def _fire(self, timer: _Timer) -> None:
        if timer in self._timers:
            self.forget(timer)
            timer.callback(*timer.args)

    def forget(self, timer: _Timer) -> None:
        """It was cancelled, or is due."""
        self._timers.pop(timer, None)
        timer.disarm()

    def _arm_all(self) -> None:
        for timer in self._timers:
            timer.disarm()
            self._arm(timer)

    # --- what a test does -----------------------------------------------------------------------------------

    @property
    def stands(self) -> bool:
        """It moves only where somebody moves it."""
        return self._stands_at is not None

    def freeze(self) -> None:
        """It stands still from now on, and nothing comes due by itself."""
        if self._stands_at is None:
            self._stands_at = self._loop.time(), time.monotonic(), time.time_ns()
            self._switch()
            for timer in self._timers:
                timer.disarm()

    def run(self) -> None:
        """It goes on from where it stands."""
        if self._stands_at is not None:
            self._more_ns -= time.time_ns() - self._stands_at[2]
            self._stands_at = None
            self._switch()
            self._arm_all()

    def reset(self) -> None:
        """It is the machine's again. To be called where no node runs."""
        self._stands_at = None
        self._more_ns = 0
        self._switch()
        self._arm_all()

    def advance(self, by_ns: int, then: Callable[[], None]) -> None:
        """So much later `then` is called, and all that was due on the way has come."""
        self._go(self.time() + by_ns / 1e9, then, 0)

    def next_s(self) -> float | None:
        """How long it is to the next deadline; None where nothing waits for any."""
        due_s = min((timer.deadline_s for timer in self._timers), default=None)
        return None if due_s is None else max(due_s - self.time(), 0.0)

    def moved(self, by_ns: int) -> Later[None]:
        """As `advance`: answered once it is so much later."""
        over: Later[None] = Later()
        self.advance(by_ns, lambda: over.reply(None))
        return over

    def _go(self, target_s: float, then: Callable[[], None], steps: int) -> None:
        due_s = min((timer.deadline_s for timer in self._timers), default=target_s)
        is_last = due_s >= target_s or steps >= MOST_STEPS
        self._move_to(target_s if is_last else due_s)
        now_s = self.time()
        due = sorted(
            (timer for timer in self._timers if timer.deadline_s <= now_s), key=lambda timer: timer.deadline_s
        )
        for timer in due:
            self._loop.guard(self._fire, timer)
        if is_last:
            self._arm_all()
            self._later(then)
        else:
            self._later(partial(self._go, target_s, then, steps + 1))

    def _move_to(self, target_s: float) -> None:
        left_s = target_s - self.time()
        if left_s > 0:
            self._more_ns += int(left_s * 1e9) + 1
            self._switch()

    def _later(self, then: Callable[[], None], turns: int = _TURNS_BETWEEN) -> None:
        if turns:
            self._loop.call_soon(self._later, then, turns - 1)
        else:
            then()
