"""Faults that a test arms, to make requests or steps inside the broker go wrong.

    fault = faults.arm({"api": "EndTxn", "do": "drop", "at": "answer", "transactional_id": "payer"})
    faults.state(fault) -> {"fault": 1, "seen": 3, "fired": 1, "standing": 0}

Faults are checked in the order in which they were armed, and several may fire on one request. Without armed faults a
request costs no more: then nothing is wrapped around handlers (`Dispatcher.interpose`), nor around the coordinators'
steps, nor called before operations on files (`broker.faults.places`).
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
"""Faults that can be armed at a time. A test that forgets to disarm them gets an error."""


class Answering(Protocol):
    """The part of the dispatcher that faults use."""

    def frame(self, context: RequestContext, response: Any) -> list[Chunk]:
        """The chunks of an answer. Bytes in files are ranges of these."""
        ...

    def forwarded(self, context: RequestContext, response: Any) -> Any:
        """The same answer, for a request that goes to the controller undecoded."""
        ...


class Process(Protocol):
    """Faults of the broker's process."""

    def crash(self) -> None:
        """Kill the process, as by kill -9. It doesn't return."""
        ...

    def pause(self) -> None:
        """Stop the process, as by SIGSTOP. It returns when the process is continued."""
        ...

    def block(self, for_ms: int) -> None:
        """Block the calling thread."""
        ...

    def flip_a_byte(self, path: str, drawn: int) -> None:
        """Flip a byte of the file on the disk, always the same one for the same number. Does nothing if the file is
        empty or missing."""
        ...

    @property
    def one_thread_at_a_time(self) -> AbstractContextManager[object]:
        """A lock, since several threads use files."""
        ...


class Faults:
    """The faults of one node. Methods raise LookupError for the number of no fault."""

    def __init__(
        self,
        scheduler: Scheduler,
        turns: Turns,
        topic_name: Callable[[bytes], str | None],
        process: Process,
        changed: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`changed` is called when faults are armed or disarmed. `failed` gets broken invariants."""
        self._scheduler = scheduler
        self._turns = turns
        self._topic_name = topic_name
        self._process = process
        self._changed = changed
        self._failed = failed
        self._armed: dict[int, ArmedFault] = {}
        self._last = 0

    def arm(self, said: Mapping[str, Any]) -> int:
        """Arm a fault. Returns its number. Raises FaultError."""
        if len(self._armed) >= MOST_FAULTS:
            raise FaultError(f"{MOST_FAULTS} faults are armed; disarm those that aren't needed any more")
        fault = ArmedFault(self._last + 1, said)
        self._last = fault.number
        self._armed[fault.number] = fault
        self._changed()
        return fault.number

    def disarm(self, number: int) -> dict[str, int]:
        """Disarm a fault; requests that it holds go on. Returns its last state."""
        fault = self._armed.pop(number)
        state = fault.state()
        self._release(fault)
        self._changed()
        return state

    def disarm_all(self) -> None:
        """Disarm all faults; requests that they hold go on."""
        for number in [*self._armed]:
            self.disarm(number)

    def release(self, number: int) -> int:
        """Let the requests that a fault holds go on. Returns how many these were."""
        return self._release(self._armed[number])

    def _release(self, fault: ArmedFault) -> int:
        standing, fault.standing = fault.standing, []
        for each in standing:
            each.reply(None)
        return len(standing)

    def state(self, number: int) -> dict[str, int]:
        """The state of a fault: how often it has matched, and was carried out."""
        return self._armed[number].state()

    def states(self) -> list[dict[str, int]]:
        """The states of all armed faults."""
        return [fault.state() for fault in self._armed.values()]

    # --- around handlers ------------------------------------------------------------------------------------

    def around(self, api_key: int, handle: Handle, answering: Answering) -> Handle:
        """The handler of the API, with the faults for it that are armed now."""
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
        """Carry out the faults before the work, then the work, then the faults after it. Returns the answer."""
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
                    continue  # there is no answer (acks=0)
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
        """Answer after a delay. Later requests of the client are answered meanwhile."""
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
        # Not `scheduler.passed`, which would be abandoned with the client: its request is carried out all the same.
        over: Later[None] = Later()
        self._scheduler.call_later(delay_ms / 1000, over.reply, None)
        return over

    def _held(self, fault: ArmedFault) -> Later[None]:
        released: Later[None] = Later()
        fault.standing.append(released)
        return released

    # --- inside the broker ----------------------------------------------------------------------------------

    def at(self, *places: FaultPoint) -> Sequence[ArmedFault]:
        """The armed faults at these places."""
        return [each for each in self._armed.values() if each.at in places]

    async def passed(self, place: FaultPoint, subject: Named) -> Error | None:
        """Carry out the faults at a place, one after the other. Returns the error of the first that has one; later
        faults are skipped then."""
        for fault in self.at(place):
            if fault.fires(subject):
                if fault.do is Do.ERROR:
                    return fault.error
                await self._happens(fault, place.value)
        return None

    def carry_out(self, steps: Waiting[None]) -> None:
        """Take steps without waiting for them."""
        self._turns.carry_out(steps, self._failed)

    def before_file_operation(self, armed: Sequence[ArmedFault], subject: FileOperation) -> None:
        """As `passed`, in the thread of the operation, which a delay blocks. Raises OSError."""
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


# --- Altering an answer -----------------------------------------------------------------------------------------

_WRITTEN = frozenset((Do.CUT, Do.TWICE, Do.LATE))
"""Actions that need the answer's bytes."""


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
    """Wait for as long as the client does."""
    never: Later[None] = Later()
    never.on_abandon = _nothing

    async def waiting() -> None:
        await never

    return waiting()


def _nothing() -> None:
    """Do nothing when the client has gone."""
