"""Answers that come one by one, and leave as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast

from broker.network.later import Later

A = TypeVar("A")
R = TypeVar("R")


class Gathering(Generic[A]):
    """Of so many answers, each in its place. `then` is called once all are there: at once where there are none."""

    __slots__ = ("_answers", "_missing", "_then")

    def __init__(self, count: int, then: Callable[[list[A]], None]) -> None:
        self._answers: list[Any] = [None] * count
        self._missing = count
        self._then = then
        if not count:
            then([])

    def place(self, index: int) -> Callable[[A], None]:
        """Where the answer of that index goes, once."""
        return partial(self._put, index)

    def _put(self, index: int, answer: A) -> None:
        self._answers[index] = answer
        self._missing -= 1
        if not self._missing:
            self._then(self._answers)


def gathered(answers: Sequence[A | Later[A]], respond: Callable[[list[A]], R]) -> R | Later[R]:
    """What `respond` makes of all the answers once they are there: at once where nobody has to wait."""
    for answer in answers:
        if isinstance(answer, Later):
            break
    else:
        return respond(cast("list[A]", answers))
    waiting = [answer for answer in answers if isinstance(answer, Later)]
    later: Later[R] = Later()

    def complete() -> None:
        found = [answer.result() if isinstance(answer, Later) else answer for answer in answers]
        later.reply(respond(found))

    gathering: Gathering[None] = Gathering(len(waiting), later.guarded(lambda _: complete()))
    for index, each in enumerate(waiting):
        each.when_answered(partial(gathering.place(index), None))
    return later.answer()
