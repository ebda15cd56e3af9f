"""Time that a test moves: the machine's time plus an offset. It can stand still, too.

It is clock and scheduler at once, so that the time and the timers never disagree. To advance by an hour it goes from
one deadline to the next: the effects of a timer happen, and set their own timers, before the next one is due.
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
"""Deadlines at which one advance stops; then it jumps to the end. A timer that fires each second has fired 20,000 times
by then, and fires once more."""

_TURNS_BETWEEN = 3
"""Turns of the loop between two deadlines, for the effects of a timer."""


def _sum(way: Callable[[], Any], more: Any) -> Any:
    return way() + more


class _Timer:
    """A timer that isn't due yet, or was cancelled."""

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
        """Keep the loop from calling it: it is over, or the time stands still."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None


class _Switched:
    """A call that can be switched to another function, by C iterators: code that has bound `call` once pays for no
    Python frame, and still calls the latest function."""

    __slots__ = ("_functions", "call")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._functions = [function]
        which = iter(partial(self._functions.__getitem__, 0), None)
        self.call: Callable[[], Any] = map(operator.call, which).__next__

    def to(self, function: Callable[[], Any]) -> None:
        """Call this function from now on."""
        self._functions[0] = function


class MovableTime(SystemClock):
    """A `Clock` and a `Scheduler`, on the running loop. Until a test moves it, it costs no more than the machine's."""

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
        self._stands_at: tuple[float, float, int] | None = None  # the machine's loop, monotonic and wall time
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
        """Switch the clocks, after each change of how the time runs."""
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
        """Call back once so much time has passed, by itself or because a test has moved it."""
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
        """Forget a timer that was cancelled or is due."""
        self._timers.pop(timer, None)
        timer.disarm()

    def _arm_all(self) -> None:
        for timer in self._timers:
            timer.disarm()
            self._arm(timer)

    # --- what a test does -----------------------------------------------------------------------------------

    @property
    def stands(self) -> bool:
        """True if the time moves only when a test moves it."""
        return self._stands_at is not None

    def freeze(self) -> None:
        """Stop the time. Nothing comes due by itself from now on."""
        if self._stands_at is None:
            self._stands_at = self._loop.time(), time.monotonic(), time.time_ns()
            self._switch()
            for timer in self._timers:
                timer.disarm()

    def run(self) -> None:
        """Let the time run on from where it stands."""
        if self._stands_at is not None:
            self._more_ns -= time.time_ns() - self._stands_at[2]
            self._stands_at = None
            self._switch()
            self._arm_all()

    def reset(self) -> None:
        """Return to the machine's time. Call this only while no node runs."""
        self._stands_at = None
        self._more_ns = 0
        self._switch()
        self._arm_all()

    def advance(self, by_ns: int, then: Callable[[], None]) -> None:
        """Move the time on, and call `then` once all timers on the way have fired."""
        self._go(self.time() + by_ns / 1e9, then, 0)

    def next_s(self) -> float | None:
        """The seconds until the next deadline; None if there is no timer."""
        due_s = min((timer.deadline_s for timer in self._timers), default=None)
        return None if due_s is None else max(due_s - self.time(), 0.0)

    def moved(self, by_ns: int) -> Later[None]:
        """As `advance`. The Later replies once the time has moved."""
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
