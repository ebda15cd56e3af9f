"""Waiting is `await`, in coroutines that are driven by hand: without an event loop, a task or a future.

    async def followed(topics):
        for some in portions(topics):
            ...
            await turn()                     # others may be served here

`coroutine.send(None)` runs a coroutine until it has to wait or is done, in that same call. What waits for nothing costs
a call more than a plain function. What has to wait hands its driver a *wish*, and stays where it is until the driver
goes on with it:

| wish | awaited by | what comes of it |
|---|---|---|
| None | `turn()` | others were served |
| a function | `compute(function)` | what it returned, computed beside the loop, or what it raised |
| what is answered later | the thing itself, as `Later` | its answer, or what it failed with |

Between two `await`s nobody else runs: what was looked at still holds. Behind one it may not. A driver that gives a
coroutine up closes it, which is a GeneratorExit at its `await`.

Drivers: `broker.network.turns.Turns` takes turns among all that is under way in a node, and knows all wishes;
`step` and `at_once` know `turn` alone.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

Waiting: TypeAlias = Coroutine[Any, Any, T]
"""What returns T in the end, and may wait before."""

Compute: TypeAlias = Callable[[], T]
"""What is long to compute, as another thread may do it: it changes nothing that anybody else has."""


class _Turn:
    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield None


_TURN: Final = _Turn()


def turn() -> _Turn:
    """`await turn()`: others may be served here."""
    return _TURN


@types.coroutine
def compute(function: Compute[T]) -> Generator[Compute[T], T, T]:
    """What the function returns; others are served meanwhile. Raises what it raises."""
    return (yield function)


def step(waiting: Waiting[None]) -> bool:
    """Goes on up to the next `turn`, for who has turns of its own: whether it has ended. Raises what it raises."""
    try:
        waiting.send(None)
    except StopIteration:
        return True
    return False


def at_once(waiting: Waiting[T]) -> T:
    """What it returns, without anybody being let in. Raises what it raises."""
    while True:
        try:
            waiting.send(None)
        except StopIteration as end:
            result: T = end.value
            return result


# --- Where others may be let in: after so many entries, where each takes some microseconds --------------------

PER_STEP = 500
"""Entries, records or partitions that one step goes through: some milliseconds."""


class Pause:
    """Says when it is time for one, over loops within loops."""

    __slots__ = ("_left", "_per_step")

    def __init__(self, per_step: int = PER_STEP) -> None:
        self._per_step = self._left = per_step

    def is_due(self, entries: int = 1) -> bool:
        """Asked once for each entry, or for so many at a time, before them or behind them."""
        self._left -= entries
        if self._left > 0:
            return False
        self._left = self._per_step
        return True
