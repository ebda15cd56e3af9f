"""Answers that come one by one, and leave as one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

A = TypeVar("A")


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
