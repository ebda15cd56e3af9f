"""Coroutines of `protocol.waiting`, driven by a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from protocol.waiting import Later, Waiting

T = TypeVar("T")


def wishes(waiting: Waiting[Any]) -> Iterator[Any]:
    """Yield each thing that it waits for. Asking for the next one answers it with None."""
    while True:
        try:
            wish = waiting.send(None)
        except StopIteration:
            return
        yield wish


def pauses(waiting: Waiting[Any]) -> int:
    """Return how often it lets others be served."""
    return sum(1 for _ in wishes(waiting))


def drive(
    waiting: Waiting[T],
    told: Callable[[T], object],
    call_soon: Callable[[Callable[[], None]], object] | None = None,
    *,
    answer: Any = None,
) -> None:
    """Run it in this call, and go on in the call of whoever answers what it waits for. `call_soon` is used when it lets
    others be served."""
    try:
        wish = waiting.send(answer)
    except StopIteration as end:
        told(end.value)
        return
    if isinstance(wish, Later):
        wish.when_answered(lambda: drive(waiting, told, call_soon, answer=wish.result()))
    else:
        assert (wish, call_soon is None) == (None, False)
        call_soon(lambda: drive(waiting, told, call_soon))  # type: ignore[misc]


def tell(later: Later[Any], told: Callable[[Any], object]) -> None:
    """Call `told` with the answer or the failure, in the call of whoever answers."""

    def answered() -> None:
        try:
            found = later.result()
        except Exception as error:
            found = error
        told(found)

    later.when_answered(answered)
