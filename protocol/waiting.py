"""Waiting is `await`, in coroutines that a driver runs by hand, without an event loop, a task or a future.

    async def followed(topics):
        for some in portions(topics):
            ...
            await turn()                     # other requests may run here

`coroutine.send(None)` runs a coroutine in that same call, until it has to wait or is done. If it never waits,
it costs one call more than a plain function. If it has to wait, it hands its driver a *wish*, and stays
suspended until the driver resumes it:

| wish | awaited by | result |
|---|---|---|
| None | `turn()` | none; others were served |
| a function | `compute(function)` | its return value, computed beside the loop, or its exception |
| a `Later` | the object itself | its answer, or its failure |

Between two `await`s nobody else runs, so anything already checked still holds. After an `await` it may not. A
driver gives up a coroutine by closing it, which raises GeneratorExit at its `await`.

Drivers: `broker.network.turns.Turns` takes turns among everything under way in a node, and knows all wishes.
`step` and `at_once` only know `turn`. `begun` and `carry_on` only know `Later`.
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
"""A coroutine that returns T in the end, and may wait before."""

Compute: TypeAlias = Callable[[], T]
"""A long computation that another thread may do: it changes no shared state."""


class _Turn:
    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield None


_TURN: Final = _Turn()


def turn() -> _Turn:
    """`await turn()` lets other requests run."""
    return _TURN


@types.coroutine
def compute(function: Compute[T]) -> Generator[Compute[T], T, T]:
    """Compute the function beside the loop, while others are served. Returns its result, raises its exception."""
    return (yield function)


def step(waiting: Waiting[None]) -> bool:
    """Run up to the next `turn`, for a caller that has turns of its own. Returns True at the end. Raises its
    exception."""
    try:
        waiting.send(None)
    except StopIteration:
        return True
    return False


def at_once(waiting: Waiting[T]) -> T:
    """Run to the end without giving others a turn. Returns its result, raises its exception."""
    while True:
        try:
            waiting.send(None)
        except StopIteration as end:
            result: T = end.value
            return result


# --- Answers that come later --------------------------------------------------------------------------------
#
#     later: Later[JoinGroupResponse] = Later()
#     group.join(request, later.reply)
#     response = await later
#
# The one who answers calls `reply` or `fail`, once, in the same call or any time afterwards. If the answer is
# already there, `await` goes on in that call.
#
# The one who replies is in the middle of other work: a producer's append that completes a fetch, a
# coordinator that completes a rebalance. So nothing is encoded, written or served inside `reply`. The one who
# waits does that after the current work is done.


class _State(Enum):
    OPEN = auto()
    REPLIED = auto()
    FAILED = auto()
    ABANDONED = auto()  # the client has hung up: a reply is dropped


_OPEN, _REPLIED, _FAILED, _ABANDONED = _State


class Later(Generic[R]):
    """The answer to one question or one request.

    None is an answer too: that of a request without a response (acks=0). `on_abandon` is called if the client
    hangs up before the answer is there, to remove what waits on its behalf.
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
        """Set the answer. Raises BrokenInvariantError if there is one already."""
        if self._state is not _OPEN or self._on_answer is not None:
            if self._state is _ABANDONED:
                self._on_failure = None
                return
            self._settle(_REPLIED, response)
            self._tell()
        else:  # the most frequent case: answered at once, nobody to tell
            self._state = _REPLIED
            self._outcome = response
            self.on_abandon = None

    def waits_for(self, withdraw: Callable[[], object] | None) -> None:
        """If the client hangs up, call `withdraw`. None: the request doesn't wait, or can't be withdrawn."""
        if withdraw is None:
            return
        if self._state is _ABANDONED:
            withdraw()
        else:
            self.on_abandon = withdraw

    def fail(self, error: BaseException) -> None:
        """Set an error in place of an answer, as if the handler had raised it."""
        if self._state is _ABANDONED:
            self._unheard(error)
            return
        self._settle(_FAILED, error)
        del error  # the callback may raise it, and then its traceback would hold this frame
        self._tell()

    def abandon_with(self, other: Later[Any]) -> None:
        """The client of `other`, whose answer needed this one, has hung up. A failure of this one is reported
        where a failure of `other` would be."""
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
        # the callback usually holds this object: leave no cycle
        told, self._on_answer = self._on_answer, None
        if told is not None:
            told()

    # --- for the handler ------------------------------------------------------------------------------------

    def answer(self) -> R | Later[R]:
        """The response if it came at once, else this object. Raises its failure if it came at once."""
        if self._state is _REPLIED:
            outcome: R = self._outcome
            return outcome
        return self if self._state is _OPEN else self.result()

    def __await__(self) -> Generator[Later[R], R, R]:
        """Wait for the answer; return in the same call if it is already there. Raises its failure."""
        return self.result() if self._state is _REPLIED or self._state is _FAILED else (yield self)

    # --- for the dispatcher ---------------------------------------------------------------------------------

    def when_answered(self, then: Callable[[], object]) -> None:
        """Call `then` inside `reply` or `fail`, or now. It may only take note of the answer."""
        if self._state is _REPLIED or self._state is _FAILED:
            then()
        elif self._state is _OPEN:
            self._on_answer = then

    def result(self) -> R:
        """The response that has come. Raises the failure that `fail` was given, once."""
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
        """The failure that `fail` was given. It isn't kept: its traceback holds frames that hold this object,
        and with it the request's bytes."""
        error, self._outcome = self._outcome, None
        if error is None:
            raise BrokenInvariantError("what a request failed with was taken twice")
        failure: BaseException = error
        return failure

    def abandon(self, on_failure: Callable[[BaseException], object] | None = None) -> None:
        """The client has hung up. If the answer is already there it is dropped.

        `on_failure` is called with a failure that comes later, or that came before and nobody took.
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


# --- Work that goes on within the call that answers ------------------------------------------------------------
#
#     written = begun(self._written(batches))
#     ...
#     error = await written
#
# A state machine gets the answers to its writes in the order of its log. It has to handle them in that order,
# before anybody else comes in between. If each had a turn of its own, an answer that comes at once could
# overtake an earlier one. So the state machine changes its state within `reply`, and tells others. It encodes
# and serves nothing there.


def begun(steps: Waiting[T]) -> Later[T]:
    """Start steps in this call, and return a `Later` for their result.

    They continue within the calls that answer, up to their end, whether or not anybody waits. They may only
    wait for answers. Raises what they raise in this call.
    """
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
    """Start steps as `begun` does, if nobody waits for them. Their exceptions reach the code that answers."""
    try:
        wanted = steps.send(None)
    except StopIteration:
        return  # the most frequent case, which needs no objects
    later: Later[None] = Later()
    later.when_answered(later.result)
    wanted.when_answered(partial(_go_on, steps, later, wanted))


# --- Several at the same time ----------------------------------------------------------------------------------


async def together(each: Sequence[Waiting[T]]) -> list[T]:
    """Run all of them at the same time, starting in this call. Returns their results; raises the first failure."""
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
    """Run steps to their end that are suspended with this wish. Returns their result."""
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


# --- Giving others a turn after so many entries, each of which takes some microseconds ----------------------------

PER_STEP = 500
"""The entries, records or partitions that one step handles: some milliseconds of work."""


class Pause:
    """Says when to give others a turn, across nested loops."""

    __slots__ = ("_left", "_per_step")

    def __init__(self, per_step: int = PER_STEP) -> None:
        self._per_step = self._left = per_step

    def is_due(self, entries: int = 1) -> bool:
        """Call it once for each entry, or for several at a time, before or after them."""
        self._left -= entries
        if self._left > 0:
            return False
        self._left = self._per_step
        return True
