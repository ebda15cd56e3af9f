"""Connections that have had their turn, and have more to be served: others go first.

However many they are, one turn of the loop lets in only so many of them as have their requests served in `TURN_S`. (A
hundred connections whose requests take some ms each would else keep all others waiting for half a second.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.environment.scheduler import TURN_S

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler

ServeOn = Callable[[], float]
"""Serves some of what a connection has, and says for how many seconds that held the loop."""


class _Place:
    """In the line. `cancel`: nobody waits there any more."""

    __slots__ = ("serve_on",)

    def __init__(self, serve_on: ServeOn) -> None:
        self.serve_on: ServeOn | None = serve_on

    def cancel(self) -> None:
        self.serve_on = None


class NextTurns:
    """The line of all connections of a node. Each has one place in it at most, so that it is bounded."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._call_soon = scheduler.call_soon
        self._waiting: deque[_Place] = deque()
        self._is_due = False

    def wait(self, serve_on: ServeOn) -> _Place:
        """`serve_on` is called in a later turn of the loop."""
        place = _Place(serve_on)
        self._waiting.append(place)
        if not self._is_due:
            self._is_due = True
            self._call_soon(self._let_in)
        return place

    def _let_in(self) -> None:
        """Some of those that wait by now, the first one first."""
        left_s = TURN_S
        count = len(self._waiting)
        try:
            while count and left_s > 0:
                count -= 1
                serve_on = self._waiting.popleft().serve_on
                if serve_on is not None:
                    left_s -= serve_on()
        finally:
            self._is_due = bool(self._waiting)
            if self._is_due:
                self._call_soon(self._let_in)
