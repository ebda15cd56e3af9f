"""Long requests in turns: others are served in between.

    async def handle(node, context, request):
        found = []
        await in_turns(request.names, lambda some: found.extend(map(describe, some)))
        return Response(found)

It goes on after each `await turn()` in a later turn of the loop: each request has one step in it, and those that wait
take turns, as many as there is time for. What has waited for an answer goes on in such a turn, too, never within the
call of who answers. What is long to compute and looks at no state goes beside the loop:

    checked = await compute(partial(validate, batch))

One that never waits, as with a list that isn't long, is done in the call that drives it, and costs no more than the
coroutine. What it reads may change between two steps: it takes a copy of what it walks over, and looks up the rest as
it is by then.
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
"""So many entries of a list are gone through in one turn of the loop, at some 10 µs each."""


def runs_to_its_end(handle: Handle) -> Handle:
    """Of a handler that changes something: it goes on where its client hangs up, unless what it waits for can be taken
    back. Others end at their `await` then."""
    handle.runs_to_its_end = True  # type: ignore[attr-defined]
    return handle


def portions(entries: Sequence[T]) -> Iterable[Sequence[T]]:
    """The entries, as many at a time as one turn goes through; nearly always all of them."""
    count = len(entries)
    if count <= PER_TURN:
        return (entries,)
    return (entries[start : start + PER_TURN] for start in range(0, count, PER_TURN))


async def in_turns(entries: Sequence[T], take: Callable[[Sequence[T]], object]) -> None:
    """Takes the entries by portions; after each that is whole a turn may end."""
    for some in portions(entries):
        take(some)
        if len(some) == PER_TURN:
            await turn()


class Awaited(Protocol):
    """One of several that a request waits for together."""

    def start(self, done: Callable[[], None]) -> None:
        """`done` is called once nothing is waited for any more."""
        ...

    def expire(self) -> None:
        """The time is over: it is done."""
        ...

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        ...


def _expire(waited: Iterable[Awaited]) -> None:
    for each in waited:
        each.expire()


def _abandon(waited: Iterable[Awaited]) -> None:
    for each in waited:
        each.abandon()


def _left_waiting(error: BaseException) -> None:
    log.error("what a request waited for may be left behind", exc_info=error)


def _nothing() -> None:
    """What was done stays: that the client has gone takes nothing back."""


class _UnderWay:
    """A request's work, and what its next step is to be given."""

    __slots__ = ("awaited", "context", "error", "found", "later", "steps", "take_back", "to_the_end")

    def __init__(self, steps: Waiting[Any], context: RequestContext | None, *, to_the_end: bool) -> None:
        self.steps = steps
        self.to_the_end = to_the_end
        self.context = context
        self.later: Later[Any] = Later()
        self.awaited: Later[Any] | None = None
        self.take_back: TakeBack | None = None  # what is to be computed, where it waits for that
        self.found: Any = None
        self.error: BaseException | None = None

    def step(self) -> WaitsFor:
        """One step; what is to be computed or waited for before the next. Raises StopIteration with the answer."""
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
    """The requests that are under way, the next one first."""

    def __init__(
        self,
        scheduler: Scheduler,
        computing: Computing | None = None,
        watchdog: Watchdog | None = None,
    ) -> None:
        """Without `computing` all is computed in the turn that asks for it."""
        self._call_soon = scheduler.call_soon
        self._computing: Computing = computing or ComputingAtOnce()
        self._watchdog = watchdog
        self._waiting: deque[_UnderWay] = deque()
        self._turn: Scheduled | None = None
        self._stopped = False
        self._turn_began_s: float | None = None  # of the turn that is being taken
        self._to_call: deque[Callable[[], object]] | None = None  # behind the step that is being taken

    def answer(
        self,
        steps: Waiting[R],
        context: RequestContext | None = None,
        *,
        to_the_end: bool = False,
    ) -> R | Later[R]:
        """The answer where one step makes it. Raises what that raises.

        `context`: who is to be told of where a step takes long. `to_the_end`: the steps go on where the client hangs
        up, as those of a request that changes something, unless what they wait for can be taken back.
        """
        is_within = self._turn_began_s is not None  # in a turn that counts already
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
        """What calls the handler of a node and is given its answer, as by `answer`: in one call, since each request
        pays for it."""
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
        """What the steps of a request return: they go on where its client hangs up, though the request doesn't, unless
        what they wait for can be taken back."""
        answer = self.answer(steps, to_the_end=True)
        return await answer if isinstance(answer, Later) else answer

    def carry_out(self, steps: Waiting[None], failed: Callable[[BaseException], None]) -> Later[None] | None:
        """Steps that nobody waits for. Raises what the first raises; `failed` is told of what a later one does. Where
        what is returned has an `on_abandon`, it may be given up."""
        later = self.answer(steps, to_the_end=True)
        if isinstance(later, Later):
            later.when_answered(partial(_fail_by, later, failed))
        return later

    def soon(self, then: Callable[[], object]) -> None:
        """`then` is called once what is at hand is done: behind the step, where one is being taken in a turn."""
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
        """Takes the entries, in this call where they are few; `failed` is told of what a later turn raises."""
        if len(entries) <= PER_TURN:
            take(entries)
        else:
            self.carry_out(in_turns(entries, take), failed)

    async def all_done(self, waited: Sequence[Awaited], timeout_ms: int | None, scheduler: Scheduler) -> None:
        """Until all of them are done, or the time is over: many begin to wait in turns of the loop, and end so. Where
        the client goes, nothing is waited for any more, and nothing is taken back."""
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
        """Whether the turn that is being taken has been long enough. That of a handler's first step begins with the
        first time that it asks."""
        if self._turn_began_s is None and self._watchdog is not None:
            self._turn_began_s = self._watchdog.monotonic_s()
        return self._took_s() > TURN_S

    def stop(self) -> None:
        """Nobody is answered any more."""
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
        """The client has hung up; what it waits for may be under way by now, and then it goes on."""
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
                # what it waits for can be taken back
                under_way.later.waits_for(partial(self._take_back, under_way, wanted))
            wanted.when_answered(partial(self._goes_on, under_way))
        else:
            under_way.take_back = self._computing(
                wanted, partial(self._computed, under_way), under_way.context
            )

    def _goes_on(self, under_way: _UnderWay) -> None:
        """What it waited for is there."""
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
        """A step of each of those that wait by now, as long as the turn isn't over."""
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


# --- What is done one at a time of each of many, as it came, in turns of the loop -----------------------------

Lines = dict[K, deque[Later[None]]]
"""Who waits for its turn, by what it is of; what nothing is under way of isn't in it."""


async def in_line(lines: Lines[K], key: K, steps: Waiting[A]) -> A:
    """The steps, once it is their turn."""
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
        steps.close()  # where it never began
        if place in waiting:  # it has hung up before its turn came
            waiting.remove(place)
        elif waiting:
            waiting.popleft().reply(None)
        else:
            del lines[key]
