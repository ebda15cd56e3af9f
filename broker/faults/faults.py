"""Faults that a test arms: which requests, or which steps inside the broker, go wrong, when, and how.

    fault = faults.arm({"api": "EndTxn", "do": "drop", "at": "answer", "transactional_id": "payer"})
    faults.state(fault) -> {"fault": 1, "seen": 3, "fired": 1, "standing": 0}

Faults are asked in the order in which they were armed, and several may fire on one request. Where none is armed a
request costs what it did: nothing stands around the handlers then (`Dispatcher.interpose`), nor around what
coordinators do, nor before operations on files (`broker.faults.places`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from broker.faults.altered_answers import as_it_was, corrupted, with_fewer_versions
from broker.faults.armed_fault import OF_REQUESTS, ArmedFault, Do, FaultError, FaultPoint
from broker.faults.error_answers import error_answer
from broker.faults.subjects import AskedRequest, FileOperation, Named
from broker.network.answers import CloseConnectionError, ForwardedRequest
from protocol.apis import APIS
from protocol.errors import Error
from protocol.waiting import Later, Waiting, carry_on
from protocol.wire.codec import decode

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.network.answers import Chunk
    from broker.network.context import RequestContext
    from broker.network.turns import Turns

Handle = Callable[["RequestContext", Any], Any]

MOST_FAULTS = 1_000
"""That are armed at a time: a test that forgets to disarm them is told."""


class Answering(Protocol):
    """What the dispatcher knows of an answer."""

    def frame(self, context: RequestContext, response: Any) -> list[Chunk]:
        """Its bytes; those that lie in files as ranges of them."""
        ...

    def forwarded(self, context: RequestContext, response: Any) -> Any:
        """The same answer, of a request that goes to the controller undecoded."""
        ...


class Process(Protocol):
    """What can happen to the broker as a whole."""

    def crash(self) -> None:
        """As by kill -9: it doesn't return."""
        ...

    def pause(self) -> None:
        """As by SIGSTOP: it returns when somebody has the process go on."""
        ...

    def block(self, for_ms: int) -> None:
        """The thread that calls."""
        ...

    def flip_a_byte(self, path: str, drawn: int) -> None:
        """Of the file on the disk, the same one for the same number; nothing where it has none, or isn't there."""
        ...

    @property
    def one_thread_at_a_time(self) -> AbstractContextManager[object]:
        """Operations on files are of several."""
        ...


class Faults:
    """Those of one node. Raises LookupError where a number is of none."""

    def __init__(
        self,
        scheduler: Scheduler,
        turns: Turns,
        topic_name: Callable[[bytes], str | None],
        process: Process,
        changed: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`changed`: some faults are armed now that weren't, or the other way. `failed` is told of a broken
        invariant."""
        self._scheduler = scheduler
        self._turns = turns
        self._topic_name = topic_name
        self._process = process
        self._changed = changed
        self._failed = failed
        self._armed: dict[int, ArmedFault] = {}
        self._last = 0

    def arm(self, said: Mapping[str, Any]) -> int:
        """Its number. Raises FaultError."""
        if len(self._armed) >= MOST_FAULTS:
            raise FaultError(f"{MOST_FAULTS} faults are armed; disarm those that aren't needed any more")
        fault = ArmedFault(self._last + 1, said)
        self._last = fault.number
        self._armed[fault.number] = fault
        self._changed()
        return fault.number

    def disarm(self, number: int) -> dict[str, int]:
        """Its last state. What it holds goes on."""
        fault = self._armed.pop(number)
        state = fault.state()
        self._release(fault)
        self._changed()
        return state

    def disarm_all(self) -> None:
        """None is armed any more. What they hold goes on."""
        for number in [*self._armed]:
            self.disarm(number)

    def release(self, number: int) -> int:
        """What it holds goes on; how many those were."""
        return self._release(self._armed[number])

    def _release(self, fault: ArmedFault) -> int:
        standing, fault.standing = fault.standing, []
        for each in standing:
            each.reply(None)
        return len(standing)

    def state(self, number: int) -> dict[str, int]:
        """How often it was there for, and was carried out."""
        return self._armed[number].state()

    def states(self) -> list[dict[str, int]]:
        """Of all that are armed."""
        return [fault.state() for fault in self._armed.values()]

    # --- around handlers ------------------------------------------------------------------------------------

    def around(self, api_key: int, handle: Handle, answering: Answering) -> Handle:
        """The handler of the API, with the faults that are armed now and are about it."""
        faults = [
            each
            for each in self._armed.values()
            if each.at in OF_REQUESTS and (each.apis is None or api_key in each.apis)
        ]
        if not faults:
            return handle

        def call(context: RequestContext, request: Any) -> Any:
            asked = request
            if isinstance(request, ForwardedRequest):
                asked = decode(APIS[api_key].request, context.api_version, request.body)
            subject = AskedRequest(asked, self._topic_name, context.client_id, context.principal)
            due = [each for each in faults if each.fires(subject)]
            if not due:
                return handle(context, request)
            carried = self._carried_out(due, handle, context, request, asked, answering)
            return self._turns.answer(carried, context, to_the_end=True)

        return call

    async def _carried_out(
        self,
        due: Sequence[ArmedFault],
        handle: Handle,
        context: RequestContext,
        request: Any,
        asked: Any,
        answering: Answering,
    ) -> Any:
        """1. What is due before the work. 2. The work. 3. What is due behind it."""
        is_forwarded = request is not asked
        answer: Any = None
        is_replaced = False
        times = 1
        for fault in due:
            if fault.at is not FaultPoint.REQUEST:
                continue
            if fault.do is Do.ERROR:
                answer, is_replaced = self._error(fault, context, asked, answering, is_forwarded), True
            elif fault.do is Do.TWICE:
                times += 1
            elif fault.do is Do.CORRUPT:
                corrupted(asked)
            else:
                await self._happens(fault, str(context))
        if not is_replaced:
            for _ in range(times):
                answer = handle(context, request)
                if isinstance(answer, Later):
                    answer = await answer
        for fault in due:
            if fault.at is not FaultPoint.ANSWER:
                continue
            if fault.do is Do.ERROR:
                answer = self._error(fault, context, asked, answering, is_forwarded)
            elif fault.do in _ALTERED:
                if answer is not None and not is_forwarded:
                    answer = _ALTERED[fault.do](fault, context, asked, answer)
            elif fault.do in _WRITTEN:
                if answer is None:
                    continue  # nothing is answered (acks=0)
                frame = answering.frame(context, answer)
                if fault.do is Do.CUT:
                    self._cut(context, frame)
                elif fault.do is Do.TWICE:
                    context.connection.write_behind_unread(frame)
                else:
                    carry_on(self._answer_late(fault, context, frame))
                    answer = None
            else:
                await self._happens(fault, str(context))
        return answer

    def _error(
        self, fault: ArmedFault, context: RequestContext, asked: Any, answering: Answering, is_forwarded: bool
    ) -> Any:
        answer = error_answer(context.api_key, context.api_version, asked, fault.error, fault.message)
        return answering.forwarded(context, answer) if is_forwarded else answer

    def _cut(self, context: RequestContext, frame: list[Chunk]) -> None:
        first = bytes(frame[0]) if isinstance(frame[0], bytes | bytearray | memoryview) else b""
        context.connection.answer_and_hang_up([first[: max(1, len(first) // 2)]])
        raise CloseConnectionError(f"a fault of a test cuts the answer to {context}")

    async def _answer_late(self, fault: ArmedFault, context: RequestContext, frame: list[Chunk]) -> None:
        """What the client asks next is answered meanwhile."""
        await (self._delay(fault.delay_ms) if fault.delay_ms else self._held(fault))
        context.connection.write_behind_unread(frame)

    async def _happens(self, fault: ArmedFault, where: str) -> None:
        if fault.do is Do.DELAY:
            await self._delay(fault.delay_ms)
        elif fault.do is Do.HOLD:
            await self._held(fault)
        elif fault.do is Do.DROP:
            await _never()
        elif fault.do is Do.CLOSE:
            raise CloseConnectionError(f"a fault of a test closes the connection at {where}")
        elif fault.do is Do.PAUSE:
            self._process.pause()
        else:
            self._process.crash()

    def _delay(self, delay_ms: int) -> Later[None]:
        # not `scheduler.passed`, which is given up with the client: what it has asked for is done all the same
        over: Later[None] = Later()
        self._scheduler.call_later(delay_ms / 1000, over.reply, None)
        return over

    def _held(self, fault: ArmedFault) -> Later[None]:
        released: Later[None] = Later()
        fault.standing.append(released)
        return released

    # --- inside the broker ----------------------------------------------------------------------------------

    def at(self, *places: FaultPoint) -> Sequence[ArmedFault]:
        """Those that are armed now and stand at one of them."""
        return [each for each in self._armed.values() if each.at in places]

    async def passed(self, place: FaultPoint, subject: Named) -> Error | None:
        """What stands there is carried out, one fault after the other. The first error that one of them says, with
        which the others aren't looked at."""
        for fault in self.at(place):
            if fault.fires(subject):
                if fault.do is Do.ERROR:
                    return fault.error
                await self._happens(fault, place.value)
        return None

    def carry_out(self, steps: Waiting[None]) -> None:
        """What nobody waits for."""
        self._turns.carry_out(steps, self._failed)

    def before_file_operation(self, armed: Sequence[ArmedFault], subject: FileOperation) -> None:
        """As `passed`, in whichever thread it is: all that is to wait waits. Raises OSError."""
        with self._process.one_thread_at_a_time:
            due = [each for each in armed if each.fires(subject)]
        for fault in due:
            if fault.do is Do.DELAY:
                self._process.block(fault.delay_ms)
            elif fault.do is Do.PAUSE:
                self._process.pause()
            elif fault.do is Do.CRASH:
                self._process.crash()
            elif fault.do is Do.FLIP:
                self._process.flip_a_byte(subject.path, fault.fired)
            else:
                raise OSError(fault.errno, "a fault of a test", subject.path)


# --- What becomes of an answer ----------------------------------------------------------------------------------

_WRITTEN = frozenset((Do.CUT, Do.TWICE, Do.LATE))
"""What needs its bytes."""


def _stale(fault: ArmedFault, context: RequestContext, asked: Any, answer: Any) -> Any:
    return as_it_was(fault.answered, context.api_version, asked, answer)


def _throttled(fault: ArmedFault, context: RequestContext, asked: Any, answer: Any) -> Any:
    if hasattr(answer, "throttle_time_ms"):
        answer.throttle_time_ms = max(answer.throttle_time_ms, fault.delay_ms)
        context.mute(fault.delay_ms)
    return answer


def _with_fewer_versions(fault: ArmedFault, context: RequestContext, asked: Any, answer: Any) -> Any:
    return with_fewer_versions(answer, fault.versions)


def _corrupted(fault: ArmedFault, context: RequestContext, asked: Any, answer: Any) -> Any:
    return corrupted(answer)


_ALTERED: Mapping[Do, Callable[[ArmedFault, RequestContext, Any, Any], Any]] = {
    Do.STALE: _stale,
    Do.THROTTLE: _throttled,
    Do.VERSIONS: _with_fewer_versions,
    Do.CORRUPT: _corrupted,
}


def _never() -> Waiting[None]:
    """For as long as the client waits."""
    never: Later[None] = Later()
    never.on_abandon = _nothing

    async def waiting() -> None:
        await never

    return waiting()


def _nothing() -> None:
    """Nobody is told."""
