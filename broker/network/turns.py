"""Long requests in turns: others are served in between.

    def handle(turns, …, request):
        return turns.answer(_described(request.names))

    def _described(names):
        found = []
        yield from in_turns(names, lambda some: found.extend(map(describe, some)))
        return Response(found)

The generator goes on after each `yield` in a later turn of the loop: one step of one request in each turn, and those
that wait take turns. One that never yields, as with a list that isn't long, is done when `answer` returns, and costs no
more than the generator. What it reads may change between two steps: it takes a copy of what it walks over, and looks up
the rest as it is by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from broker.network.later import Later

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled, Scheduler

R = TypeVar("R")
T = TypeVar("T")

Steps = Generator[None, None, R]
"""A request's work, which yields where a turn may end, and returns the answer."""

PER_TURN = 1_000
"""So many entries of a list are gone through in one turn of the loop, at some 10 µs each."""


def portions(entries: Sequence[T]) -> Iterator[Sequence[T]]:
    """The entries, as many at a time as one turn goes through."""
    if len(entries) <= PER_TURN:
        yield entries
        return
    for start in range(0, len(entries), PER_TURN):
        yield entries[start : start + PER_TURN]


def in_turns(entries: Sequence[T], take: Callable[[Sequence[T]], object]) -> Steps[None]:
    """Takes the entries by portions; after each that is whole a turn may end."""
    for some in portions(entries):
        take(some)
        if len(some) == PER_TURN:
            yield


class Turns:
    """The requests that are under way, the next one first."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._call_soon = scheduler.call_soon
        self._waiting: deque[tuple[Steps[Any], Later[Any]]] = deque()
        self._turn: Scheduled | None = None

    def answer(self, steps: Steps[R]) -> R | Later[R]:
        """The answer where one step makes it. Raises what that raises."""
        try:
            next(steps)
        except StopIteration as end:
            answer: R = end.value
            return answer
        later: Later[R] = Later()
        under_way = (steps, later)
        self._waiting.append(under_way)
        later.on_abandon = lambda: self._abandon(under_way)
        self._again()
        return later

    def stop(self) -> None:
        """Nobody is answered any more."""
        self._waiting.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _abandon(self, under_way: tuple[Steps[Any], Later[Any]]) -> None:
        if under_way in self._waiting:
            self._waiting.remove(under_way)

    def _again(self) -> None:
        if self._turn is None and self._waiting:
            self._turn = self._call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        if not self._waiting:
            return
        under_way = self._waiting.popleft()
        steps, later = under_way
        try:
            next(steps)
        except StopIteration as end:
            later.reply(end.value)
        except Exception as error:
            later.fail(error)
        else:
            self._waiting.append(under_way)
        self._again()
