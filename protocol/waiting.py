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
`step` and `at_once` know `turn` alone, `begun` and `carry_on` what is answered later alone.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from protocol.errors import BrokenInvariantError

R = TypeVar("R")
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


# --- What somebody else answers -------------------------------------------------------------------------------
#
#     later: Later[JoinGroupResponse] = Later()
#     group.join(request, later.reply)
#     response = await later
#
# Whoever makes the answer calls `reply` or `fail`, once, in the same call or any time afterwards. Where it is there
# already `await` goes on in that call.
#
# Who replies is in the middle of other work: a producer's append that completes a fetch, a coordinator that
# completes a rebalance. So nothing is encoded, written or served inside `reply`: who waits does that once what is at
# hand is done.


class _State(Enum):
    OPEN = auto()
    REPLIED = auto()
    FAILED = auto()
    ABANDONED = auto()  # the client has hung up: a reply is dropped


_OPEN, _REPLIED, _FAILED, _ABANDONED = _State


class Later(Generic[R]):
    """The answer to one question, or one request. None is an answer, too: that of a request that isn't answered
    (acks=0).

    `on_abandon` is called when the client hangs up before the answer is there, for what waits in its name to go.
    """

    __slots__ = ("_on_answer", "_on_failure", "_outcome", "_state", "on_abandon")

    def __init__(self) -> None:
        self.on_abandon: Callable[[], object] | None = None
        self._state = _OPEN
        self._outcome: Any = None
        self._on_answer: Callable[[], object] | None = None
        self._on_failure: Callable[[BaseException], object] | None = None

    # --- for who makes the answer ---------------------------------------------------------------------------

    def reply(self, response: R) -> None:
        """This is the answer. Raises BrokenInvariantError where there is one already."""
        if self._state is not _OPEN or self._on_answer is not None:
            if self._state is _ABANDONED:
                self._on_failure = None
                return
            self._settle(_REPLIED, response)
            self._tell()
        else:  # at once, which is most often so: nobody has to be told
            self._state = _REPLIED
            self._outcome = response
            self.on_abandon = None

    def waits_for(self, withdraw: Callable[[], object] | None) -> None:
        """Where the client hangs up, what the answer waits for is taken back; None: it doesn't wait, or can't be."""
        if withdraw is None:
            return
        if self._state is _ABANDONED:
            withdraw()
        else:
            self.on_abandon = withdraw

    def fail(self, error: BaseException) -> None:
        """There is no answer, and this is why: it is treated as if the handler had raised it."""
        if self._state is _ABANDONED:
            self._unheard(error)
            return
        self._settle(_FAILED, error)
        del error  # who is told may raise it, and its traceback holds this frame then
        self._tell()

    def abandon_with(self, other: Later[Any]) -> None:
        """The client of the other one has hung up, whose answer needed this one. Who is told of what that fails with
        is told of what this does."""
        self.abandon(other._unheard)

    def _unheard(self, error: BaseException) -> None:
        if self._on_failure is not None:
            self._on_failure(error)

    def _settle(self, state: _State, outcome: Any) -> None:
        if self._state is not _OPEN:
            raise BrokenInvariantError("a request was answered twice")
        self._state = state
        self._outcome = outcome
        self.on_abandon = None

    def _tell(self) -> None:
        # who is told most often holds this, and no cycle is to stay
        told, self._on_answer = self._on_answer, None
        if told is not None:
            told()

    # --- for the handler ------------------------------------------------------------------------------------

    def answer(self) -> R | Later[R]:
        """The response where it came at once, else this object. Raises what it failed with at once."""
        if self._state is _REPLIED:
            outcome: R = self._outcome
            return outcome
        return self if self._state is _OPEN else self.result()

    def __await__(self) -> Generator[Later[R], R, R]:
        """Its answer, once it is there; in the same call where it is already. Raises what it failed with."""
        return self.result() if self._state is _REPLIED or self._state is _FAILED else (yield self)

    # --- for the dispatcher ---------------------------------------------------------------------------------

    def when_answered(self, then: Callable[[], object]) -> None:
        """`then` is called inside `reply` or `fail`, or now: it must do no more than take note."""
        if self._state is _REPLIED or self._state is _FAILED:
            then()
        elif self._state is _OPEN:
            self._on_answer = then

    def result(self) -> R:
        """The response that has come. Raises what `fail` was given, once."""
        if self._state is _FAILED:
            error = self._take_failure()
            try:
                raise error
            finally:
                del error  # its traceback holds this frame
        assert self._state is _REPLIED
        outcome: R = self._outcome
        return outcome

    def _take_failure(self) -> BaseException:
        """What `fail` was given. It isn't kept: its traceback holds frames that hold this, and the request's bytes
        with them."""
        error, self._outcome = self._outcome, None
        if error is None:
            raise BrokenInvariantError("what a request failed with was taken twice")
        failure: BaseException = error
        return failure

    def abandon(self, on_failure: Callable[[BaseException], object] | None = None) -> None:
        """The client has hung up. An answer that is there already just goes nowhere.

        `on_failure` is told of what the request still fails with, or failed with before anybody took it.
        """
        if self._state is _FAILED and self._outcome is not None:
            error = self._take_failure()
            if on_failure is not None:
                on_failure(error)
        if self._state is not _OPEN:
            return
        self._on_failure = on_failure
        self._on_answer = None
        self._state = _ABANDONED
        on_abandon, self.on_abandon = self.on_abandon, None
        if on_abandon is not None:
            on_abandon()


WaitsFor: TypeAlias = Compute[Any] | Later[Any] | None
"""What a coroutine waits for."""


# --- What goes on within the call of who answers -----------------------------------------------------------------
#
#     written = begun(self._written(batches))
#     ...
#     error = await written
#
# A state machine whose writes are answered in the order of its log has to take the answers in that order, and before
# anybody else comes in between. In a turn of its own what is answered early might be overtaken by what is answered at
# once. So it changes state within `reply`, and tells others; it encodes and serves nothing.


def begun(steps: Waiting[T]) -> Later[T]:
    """What it returns: it begins in this call, and goes on to its end within those of who answers, whether or not
    anybody waits for it. It waits for answers alone. Raises what it raises in this call."""
    later: Later[T] = Later()
    try:
        wanted = steps.send(None)
    except StopIteration as end:
        later.reply(end.value)
    else:
        wanted.when_answered(partial(_go_on, steps, later, wanted))
    return later


def _go_on(steps: Waiting[T], later: Later[T], answered: Later[Any]) -> None:
    try:
        try:
            found = answered.result()
        except Exception as error:
            wanted = steps.throw(error)
        else:
            wanted = steps.send(found)
    except StopIteration as end:
        later.reply(end.value)
    except Exception as error:
        later.fail(error)
    else:
        wanted.when_answered(partial(_go_on, steps, later, wanted))


def carry_on(steps: Waiting[None]) -> None:
    """As `begun`, of what nobody waits for: what it raises comes to who answers."""
    try:
        wanted = steps.send(None)
    except StopIteration:
        return  # as most often, for which nothing is made
    later: Later[None] = Later()
    later.when_answered(later.result)
    wanted.when_answered(partial(_go_on, steps, later, wanted))


# --- Several at the same time ----------------------------------------------------------------------------------


async def together(each: Sequence[Waiting[T]]) -> list[T]:
    """What each returns. All begin in this call, and wait at the same time. Raises what the first of them raises."""
    begun: list[tuple[Waiting[T] | None, Any]] = []
    try:
        for steps in each:
            try:
                begun.append((steps, steps.send(None)))
            except StopIteration as end:
                begun.append((None, end.value))
        return [found if steps is None else await _rest(steps, found) for steps, found in begun]
    finally:
        for steps in each:
            steps.close()


@types.coroutine
def _rest(steps: Waiting[T], wanted: Any) -> Generator[Any, Any, T]:
    """What steps return that have this wish by now."""
    while True:
        try:
            try:
                found = (yield from wanted.__await__()) if isinstance(wanted, Later) else (yield wanted)
            except Exception as error:
                wanted = steps.throw(error)
            else:
                wanted = steps.send(found)
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
