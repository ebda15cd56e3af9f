"""Long requests take turns, so that others are served in between.

    async def handle(node, context, request):
        found = []
        await in_turns(request.names, lambda some: found.extend(map(describe, some)))
        return Response(found)

After each `await turn()` the handler goes on in a later turn of the loop. A turn takes one step of each waiting
request, as far as there is time. A handler that waits for a `Later` goes on in such a turn, too, never within the call
that answers. A long computation that reads no state goes beside the loop:

    checked = await compute(partial(validate, batch))

A handler that never waits, as with a short list, is done in the call that drives it, and costs no more than the
coroutine. State may change between two steps: a handler copies what it iterates over, and looks up the rest again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from broker.environment.scheduler import LONGEST_HOLD_S, TURN_S
from broker.environment.threads import Computing, ComputingAtOnce, TakeBack
from protocol.waiting import Later, Waiting, WaitsFor, turn

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled, Scheduler, Watchdog
    from broker.network.context import RequestContext


log = logging.getLogger("barnabas.dispatch")

A = TypeVar("A")
Handle = TypeVar("Handle", bound=Callable[..., Any])
K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
T = TypeVar("T")

# --- Requests in turns -------------------------------------------------------------------------------------------

PER_TURN = 1_000
"""Entries of a list that one turn of the loop goes through, at some 10 µs each."""


def runs_to_its_end(handle: Handle) -> Handle:
    """Mark a handler that changes something: it goes on if its client hangs up, unless what it waits for can be taken
    back. Other handlers then end at their `await`."""
    handle.runs_to_its_end = True  # type: ignore[attr-defined]
    return handle


def portions(entries: Sequence[T]) -> Iterable[Sequence[T]]:
    """The entries in portions, each for one turn. Nearly always one portion has them all."""
    count = len(entries)
    if count <= PER_TURN:
        return (entries,)
    return (entries[start : start + PER_TURN] for start in range(0, count, PER_TURN))


async def in_turns(entries: Sequence[T], take: Callable[[Sequence[T]], object]) -> None:
    """Take the entries in portions. The turn may end after each full one."""
    for some in portions(entries):
        take(some)
        if len(some) == PER_TURN:
            await turn()


class Awaited(Protocol):
    """One of several things that a request waits for together."""

    def start(self, done: Callable[[], None]) -> None:
        """Begin to wait. Call `done` once the wait is over."""
        ...

    def expire(self) -> None:
        """The time is over: end the wait."""
        ...

    def abandon(self) -> None:
        """The request doesn't wait for it any more."""
        ...


def _expire(waited: Iterable[Awaited]) -> None:
    for each in waited:
        each.expire()


def _abandon(waited: Iterable[Awaited]) -> None:
    for each in waited:
        each.abandon()


def _left_waiting(error: BaseException) -> None:
    log.error("a request may have left behind something that waits for it", exc_info=error)


def _nothing() -> None:
    """Called if the client has gone: nothing is taken back."""


class _UnderWay:
    """A request's work, and the value or error for its next step."""

    __slots__ = ("awaited", "context", "error", "found", "later", "steps", "take_back", "to_the_end")

    def __init__(self, steps: Waiting[Any], context: RequestContext | None, *, to_the_end: bool) -> None:
        self.steps = steps
        self.to_the_end = to_the_end
        self.context = context
        self.later: Later[Any] = Later()
        self.awaited: Later[Any] | None = None
        self.take_back: TakeBack | None = None  # cancels a computation, while it waits for one
        self.found: Any = None
        self.error: BaseException | None = None

    def step(self) -> WaitsFor:
        """Take one step. Returns what to compute or await before the next. Raises StopIteration with the answer."""
        found, self.found = self.found, None
        error, self.error = self.error, None
        awaited, self.awaited = self.awaited, None
        if awaited is not None:
            try:
                found = awaited.result()
            except Exception as failure:
                error = failure
        wish: WaitsFor
        if error is None:
            wish = self.steps.send(found)
            return wish
        try:
            wish = self.steps.throw(error)
            return wish
        finally:
            del error  # its traceback holds this frame


class Turns:
    """The requests that are under way, in order: the next one first."""

    def __init__(
        self,
        scheduler: Scheduler,
        computing: Computing | None = None,
        watchdog: Watchdog | None = None,
    ) -> None:
        """Without `computing`, computations run within the turn that asks for them."""
        self._call_soon = scheduler.call_soon
        self._computing: Computing = computing or ComputingAtOnce()
        self._watchdog = watchdog
        self._waiting: deque[_UnderWay] = deque()
        self._turn: Scheduled | None = None
        self._stopped = False
        self._turn_began_s: float | None = None  # when the present turn began
        self._to_call: deque[Callable[[], object]] | None = None  # what to call after the present step

    def answer(
        self,
        steps: Waiting[R],
        context: RequestContext | None = None,
        *,
        to_the_end: bool = False,
    ) -> R | Later[R]:
        """Take the steps. Returns the answer if the first one gives it, else a Later. Raises what the first one raises.

        `context`: the request that the log names if a step takes long. `to_the_end`: the steps go on if the client
        hangs up, since they change something, unless what they wait for can be taken back.
        """
        is_within = self._turn_began_s is not None  # within a turn that is timed already
        if not is_within and self._watchdog is not None:
            self._turn_began_s = self._watchdog.monotonic_s()
        try:
            wanted = steps.send(None)
        except StopIteration as end:
            answer: R = end.value
            return answer
        finally:
            if not is_within:
                self._turn_began_s = None
        return self._take_up(steps, wanted, context, to_the_end=to_the_end)

    def driver(
        self, handle: Callable[[Any, RequestContext, Any], Waiting[R]], node: Any
    ) -> Callable[[RequestContext, Any], R | Later[R]]:
        """A function that calls the node's handler and returns as `answer` does. It does so in one call, since every
        request pays for it."""
        take_up, to_the_end = self._take_up, getattr(handle, "runs_to_its_end", False)

        def driven(context: RequestContext, request: Any) -> R | Later[R]:
            steps = handle(node, context, request)
            is_within = self._turn_began_s is not None
            try:
                wanted = steps.send(None)
            except StopIteration as end:
                answer: R = end.value
                return answer
            finally:
                if not is_within:
                    self._turn_began_s = None
            return take_up(steps, wanted, context, to_the_end=to_the_end)

        return driven

    def _take_up(
        self, steps: Waiting[R], wanted: WaitsFor, context: RequestContext | None, *, to_the_end: bool
    ) -> Later[R]:
        under_way = _UnderWay(steps, context, to_the_end=to_the_end)
        later = under_way.later
        if not to_the_end:
            later.on_abandon = partial(self._abandon, under_way)
        self._go_on(under_way, wanted)
        return later

    async def to_the_end(self, steps: Waiting[R]) -> R:
        """Take steps that go on even if the client hangs up and the request ends, unless what they wait for can be
        taken back. Returns their result."""
        answer = self.answer(steps, to_the_end=True)
        return await answer if isinstance(answer, Later) else answer

    def carry_out(self, steps: Waiting[None], failed: Callable[[BaseException], None]) -> Later[None] | None:
        """Take steps without waiting for them. Raises what the first step raises; `failed` gets a later step's error.

        Returns a Later if they aren't done. It may be abandoned if it has an `on_abandon`."""
        later = self.answer(steps, to_the_end=True)
        if isinstance(later, Later):
            later.when_answered(partial(_fail_by, later, failed))
        return later

    def soon(self, then: Callable[[], object]) -> None:
        """Call `then` soon: after the present step, if a turn is being taken."""
        if self._to_call is None:
            self._call_soon(then)
        else:
            self._to_call.append(then)

    def take_all(
        self,
        entries: Sequence[T],
        take: Callable[[Sequence[T]], object],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Take the entries, within this call if they are few. `failed` gets the error of a later turn."""
        if len(entries) <= PER_TURN:
            take(entries)
        else:
            self.carry_out(in_turns(entries, take), failed)

    async def all_done(self, waited: Sequence[Awaited], timeout_ms: int | None, scheduler: Scheduler) -> None:
        """Wait until all of them are done, or the time is over. Many begin and end their wait in several turns.

        If the client goes, the wait ends, and nothing is taken back."""
        over: Later[None] = Later()
        left = len(waited)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                over.reply(None)

        timer = None
        if timeout_ms is not None:
            expire = partial(self.take_all, waited, _expire, over.fail)
            timer = scheduler.call_later(max(timeout_ms, 0) / 1000, expire)
        try:
            for some in portions(waited):
                for each in some:
                    each.start(one_done)
                if len(some) == PER_TURN:
                    await turn()
            over.waits_for(_nothing)
            await over
        finally:
            if timer is not None:
                timer.cancel()
            if left:
                self.take_all(waited, _abandon, _left_waiting)

    def _took_s(self) -> float:
        began_s = self._turn_began_s
        return 0.0 if self._watchdog is None or began_s is None else self._watchdog.monotonic_s() - began_s

    @property
    def is_over(self) -> bool:
        """True if the present turn has been long enough. For a handler's first step the time begins when it first asks
        this."""
        if self._turn_began_s is None and self._watchdog is not None:
            self._turn_began_s = self._watchdog.monotonic_s()
        return self._took_s() > TURN_S

    def stop(self) -> None:
        """Stop: no request is answered any more."""
        self._stopped = True
        self._computing.stop()
        self._waiting.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _abandon(self, under_way: _UnderWay) -> None:
        if under_way in self._waiting:
            self._waiting.remove(under_way)
        if under_way.awaited is not None:
            under_way.awaited.abandon_with(under_way.later)
        if under_way.take_back is not None:
            under_way.take_back()
        under_way.steps.close()

    def _take_back(self, under_way: _UnderWay, wanted: Later[Any]) -> None:
        """The client has hung up. End the request, unless what it waits for can't be taken back any more."""
        if wanted.on_abandon is not None:
            self._abandon(under_way)

    def _go_on(self, under_way: _UnderWay, wanted: WaitsFor) -> None:
        if wanted is None:
            self._waiting.append(under_way)
            self._again()
            return

        if isinstance(wanted, Later):
            under_way.awaited = wanted
            if under_way.to_the_end and wanted.on_abandon is not None:
                # its wait can be taken back
                under_way.later.waits_for(partial(self._take_back, under_way, wanted))
            wanted.when_answered(partial(self._goes_on, under_way))
        else:
            under_way.take_back = self._computing(
                wanted, partial(self._computed, under_way), under_way.context
            )

    def _goes_on(self, under_way: _UnderWay) -> None:
        """Have the request go on: its wait is over."""
        if not self._stopped:
            self._waiting.append(under_way)
            self._again()

    def _computed(self, under_way: _UnderWay, found: Any, error: BaseException | None) -> None:
        if not self._stopped:
            under_way.found, under_way.error = found, error
            under_way.take_back = None
            self._goes_on(under_way)

    def _again(self) -> None:
        if self._turn is None and self._waiting:
            self._turn = self._call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Take a step of each request that waits now, until the turn is over."""
        self._turn = None
        left = len(self._waiting)
        to_call: deque[Callable[[], object]] = deque()
        self._to_call = to_call
        if self._watchdog is not None:
            self._turn_began_s = self._watchdog.monotonic_s()
        try:
            took_s = 0.0
            while left and self._waiting:
                left -= 1
                under_way = self._waiting.popleft()
                before_s = took_s
                self._step(under_way)
                while to_call:
                    to_call.popleft()()
                took_s = self._took_s()
                if took_s - before_s > LONGEST_HOLD_S:
                    self._held(under_way.context, took_s - before_s)
                if took_s > TURN_S:
                    break
        finally:
            self._turn_began_s = self._to_call = None
            for then in to_call:
                self._call_soon(then)
            self._again()

    def _held(self, context: RequestContext | None, took_s: float) -> None:
        if self._watchdog is not None:
            self._watchdog.held(
                f"A turn of {context or 'a request'}", context.sender if context else "", took_s
            )

    def _step(self, under_way: _UnderWay) -> None:
        if under_way.to_the_end:
            under_way.later.on_abandon = None
        try:
            wanted = under_way.step()
        except StopIteration as end:
            under_way.later.reply(end.value)
        except Exception as error:
            under_way.later.fail(error)
        else:
            self._go_on(under_way, wanted)


def _fail_by(later: Later[None], failed: Callable[[BaseException], None]) -> None:
    _, error = _outcome(later)
    if error is not None:
        failed(error)


def _outcome(later: Later[Any]) -> tuple[Any, BaseException | None]:
    try:
        return later.result(), None
    except Exception as error:
        return None, error


# --- Work of which only one piece at a time is under way for each key, in the order in which it came -----------

Lines = dict[K, deque[Later[None]]]
"""The waiting places, by key. A key with nothing under way isn't in it."""


async def in_line(lines: Lines[K], key: K, steps: Waiting[A]) -> A:
    """Take the steps once it is their turn. Returns their result."""
    place: Later[None] = Later()
    waiting = lines.get(key)
    is_first = waiting is None
    if waiting is None:
        waiting = lines[key] = deque()
    else:
        waiting.append(place)
    try:
        if not is_first:
            await place
        return await steps
    finally:
        steps.close()  # they may never have begun
        if place in waiting:  # the client hung up before their turn came
            waiting.remove(place)
        elif waiting:
            waiting.popleft().reply(None)
        else:
            del lines[key]
