"""Faults that a test arms: which requests, or markers of transactions, go wrong, when, and how.

    fault = faults.arm({"api": "EndTxn", "do": "drop", "at": "answer", "transactional_id": "payer"})
    faults.state(fault) -> {"fault": 1, "seen": 3, "fired": 1, "standing": 0}

Faults are asked in the order in which they were armed, and several may fire on one request. Where none is armed a
request costs what it did: nothing stands around the handlers then (`Dispatcher.interpose`), nor around the way of
markers (`Transactions.interpose`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from broker.faults.error_answers import error_answer
from broker.network.answers import CloseConnectionError, ForwardedRequest
from protocol.apis import APIS
from protocol.errors import Error
from protocol.waiting import Later, Waiting
from protocol.wire.codec import decode
from protocol.wire.schema import Struct

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from coordinator.ports import MarkerAnswers, Markers, TxnMarker
    from protocol.topic_partition import TopicPartition

Handle = Callable[["RequestContext", Any], Any]

MOST_FAULTS = 1_000
"""That are armed at a time: a test that forgets to disarm them is told."""
_MOST_DELAY_MS = 3_600_000


class FaultError(Exception):
    """It can't be armed; why, in one line."""


class FaultPoint(Enum):
    """Where the fault stands."""

    REQUEST = "request"  # before a request's work
    ANSWER = "answer"  # behind its work, before its client is told
    MARKER = "marker"  # before a transaction's marker is written to a partition
    MARKED = "marked"  # once it is written, before the transaction's coordinator is told


OF_REQUESTS = frozenset((FaultPoint.REQUEST, FaultPoint.ANSWER))


class Do(Enum):
    """What happens there."""

    ERROR = "error"  # before the work: instead of it; behind it: all that it came to is told as this error
    DELAY = "delay"
    HOLD = "hold"  # until it is released
    DROP = "drop"  # nothing is answered; before the work, nothing is done either
    CLOSE = "close"  # the connection, before anything is answered
    CUT = "cut"  # the connection, amid the answer
    CRASH = "crash"  # the broker, as by kill -9


class Subject(Protocol):
    """What a fault may be about: a request, or a marker."""

    def sender(self, name: str) -> str | None:
        """Its `client_id`, or `principal`."""
        ...

    def topics(self) -> Iterable[tuple[str, int | None]]:
        """Name and partition of each that is named; None for the partition where it is the topic alone."""
        ...

    def ids(self, kind: str) -> Container[str]:
        """The ids of the `group`s, or each `transactional_id`, that are named."""
        ...

    def values(self, path: str) -> Container[Any]:
        """What stands under the names of fields, `.` between them."""
        ...


class ArmedFault:
    """One that is armed. `seen`: how many requests it is about; `fired`: on how many of them it was carried out;
    `standing`: those that it holds."""

    def __init__(self, number: int, said: Mapping[str, Any]) -> None:
        """Raises FaultError."""
        self.number = number
        left = dict(said)
        apis = left.pop("api", None)
        self.apis = None if apis is None else _apis(apis)
        self.do: Do = _one_of(Do, left.pop("do", None), "do")
        self.at: FaultPoint = _one_of(FaultPoint, left.pop("at", "request"), "at")
        if self.do is Do.CUT:
            self.at = FaultPoint.ANSWER  # there is none before
        if self.at not in OF_REQUESTS and (self.apis is not None or self.do in (Do.CLOSE, Do.CUT)):
            raise FaultError(
                f"at={self.at.value!r} is about a transaction's markers: it has no api, and no connection to close"
            )
        self.error = _error(left.pop("error", None)) if self.do is Do.ERROR else Error.NONE
        self.message = _text(left, "message") if self.do is Do.ERROR else None
        self.delay_ms = _number(left, "delay_ms", 0, _MOST_DELAY_MS) if self.do is Do.DELAY else 0
        self._of_sender = {name: _text(left, name) for name in ("client_id", "principal") if name in left}
        self._named = {
            name: _text(left, name) for name in ("group", "topic", "transactional_id") if name in left
        }
        self._partition = _number(left, "partition", 0, 2**31) if "partition" in left else None
        self._fields = _fields(left.pop("fields", {}))
        self._nth = _number(left, "nth", 1, 2**31, 1)
        times = left.pop("times", 1)
        self._times = None if times is None else _number({"times": times}, "times", 1, 2**31)
        self._probability = _share(left.pop("probability", 1.0))
        self._seed = _number(left, "seed", 0, 2**63, 0)
        if left:
            raise FaultError(f"a fault has no {', '.join(map(str, left))}; it has {', '.join(_KNOWN)}")
        if self._partition is not None and "topic" not in self._named:
            raise FaultError("partition=... of which topic? topic=... says it")
        self.seen = self.fired = 0
        self.standing: list[Later[None]] = []

    @property
    def is_over(self) -> bool:
        """It won't fire any more."""
        return self._times is not None and self.fired >= self._times

    def fires(self, subject: Subject) -> bool:
        """Whether it does on this one, which is counted."""
        if self.is_over or not self._is_about(subject):
            return False
        self.seen += 1
        if self.seen < self._nth or _drawn(self._seed, self.seen) >= self._probability:
            return False
        self.fired += 1
        return True

    def _is_about(self, subject: Subject) -> bool:
        if any(subject.sender(name) != wanted for name, wanted in self._of_sender.items()):
            return False
        for kind, wanted in self._named.items():
            if kind == "topic":
                partitions = [index for name, index in subject.topics() if name == wanted]
                if not partitions or self._partition not in (None, *partitions):
                    return False
            elif wanted not in subject.ids(kind):
                return False
        return all(wanted in subject.values(path) for path, wanted in self._fields.items())

    def state(self) -> dict[str, int]:
        """As it is told to who armed it."""
        return {
            "fault": self.number,
            "seen": self.seen,
            "fired": self.fired,
            "standing": len(self.standing),
        }


_KNOWN = (
    "api", "do", "at", "error", "message", "delay_ms", "client_id", "principal", "transactional_id", "group", "topic",
    "partition", "fields", "nth", "times", "probability", "seed",
)  # fmt: skip


# --- What is said of a fault ----------------------------------------------------------------------------------

_NAMES = {api.name.lower(): api for api in APIS.values()}


def _apis(said: Any) -> frozenset[int]:
    names = [said] if isinstance(said, str) else said
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        raise FaultError(f"api={said!r}: the name of one, or several")
    unknown = [name for name in names if name.lower() not in _NAMES]
    if unknown:
        raise FaultError(
            f"there is no API {unknown[0]}; there are {', '.join(sorted(a.name for a in APIS.values()))}"
        )
    return frozenset(_NAMES[name.lower()].key for name in names)


def _one_of(kind: type[Any], said: Any, name: str) -> Any:
    for each in kind:
        if each.value == said:
            return each
    raise FaultError(f"{name}={said!r}: it can be {', '.join(each.value for each in kind)}")


def _error(said: Any) -> Error:
    if isinstance(said, str) and said in Error.__members__ and said != "NONE":
        return Error[said]
    close = [name for name in Error.__members__ if isinstance(said, str) and said.upper() in name]
    hint = f"; is it {' or '.join(close[:3])}?" if close else ", such as NOT_COORDINATOR"
    raise FaultError(f"error={said!r}: Kafka's name of an error{hint}")


def _text(left: dict[str, Any], name: str) -> str | None:
    said = left.pop(name, None)
    if said is not None and not isinstance(said, str):
        raise FaultError(f"{name}={said!r}: a text")
    return said


def _number(left: dict[str, Any], name: str, least: int, most: int, default: int | None = None) -> int:
    said = left.pop(name, default)
    if isinstance(said, bool) or not isinstance(said, int) or not least <= said <= most:
        raise FaultError(f"{name}={said!r}: a number from {least} to {most}")
    return said


def _share(said: Any) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 < said <= 1:
        raise FaultError(f"probability={said!r}: more than 0, and 1 at most")
    return float(said)


def _drawn(seed: int, number: int) -> float:
    """From 0 to 1, the same for the same seed: not by chance."""
    digest = hashlib.sha256(f"{seed} {number}".encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56


def _fields(said: Any) -> dict[str, Any]:
    if not isinstance(said, Mapping) or not all(isinstance(path, str) for path in said):
        raise FaultError(f'fields={said!r}: values by the names of fields, as {{"committed": true}}')
    return dict(said)


# --- What a request names -------------------------------------------------------------------------------------

_TOPIC_NAMES = ("topic", "name", "topic_name")
_TOPIC_LISTS = ("topics", "topic_data", "v3_and_below_topics", "topic_partitions")
_INDEXES = ("partition_index", "partition", "index")
_GROUP_KEY, _TRANSACTION_KEY = 0, 1  # of FindCoordinator


def topics_of(request: Any, name_of: Callable[[bytes], str | None]) -> Iterator[tuple[str, int | None]]:
    """Name and partition of each that the request names; None for the partition where it names the topic alone."""
    holders = [
        request,
        *(getattr(request, "transactions", None) or ()),
        *(getattr(request, "groups", None) or ()),
    ]
    for holder in holders:
        for name in _TOPIC_LISTS:
            for topic in getattr(holder, name, None) or ():
                yield from _partitions_of(topic, name_of)
    for name in getattr(request, "topic_names", None) or ():  # DeleteTopics before version 6
        yield name, None


def _partitions_of(topic: Any, name_of: Callable[[bytes], str | None]) -> Iterator[tuple[str, int | None]]:
    if isinstance(topic, str):
        yield topic, None
        return
    name = next((found for each in _TOPIC_NAMES if (found := getattr(topic, each, None))), None)
    if not name:
        name = name_of(getattr(topic, "topic_id", b""))
    if not name:
        return
    found = False
    for field in type(topic).FIELDS:
        if field.kind == "array" and "partition" in field.name:
            for each in getattr(topic, field.name) or ():
                found = True
                yield name, each if isinstance(each, int) else _index_of(each)
    if not found:
        yield name, None


def _index_of(partition: Any) -> int | None:
    for name in _INDEXES:
        index = getattr(partition, name, None)
        if isinstance(index, int):
            return index
    return None


def ids_of(request: Any, kind: str) -> set[str]:
    """The groups, or transactional ids, that the request names."""
    field = "group_id" if kind == "group" else "transactional_id"
    found = {getattr(request, field, None), getattr(request, f"v3_and_below_{field}", None)}
    lists = (
        ("groups", "groups_names", "group_ids") if kind == "group" else ("transactions", "transactional_ids")
    )
    for name in lists:
        for each in getattr(request, name, None) or ():
            found.add(each if isinstance(each, str) else getattr(each, field, None))
    if hasattr(request, "key_type") and request.key_type == (
        _GROUP_KEY if kind == "group" else _TRANSACTION_KEY
    ):
        found.update((request.key, *request.coordinator_keys))
    return {each for each in found if each}


def values_of(request: Any, path: str) -> list[Any]:
    """What stands under the names of fields, `.` between them, in whichever entry of a list."""
    found = [request]
    for name in path.split("."):
        further: list[Any] = []
        for each in found:
            value = getattr(each, name, None) if isinstance(each, Struct) else None
            further += value if isinstance(value, list) else [value]
        found = further
    return found


class _Request:
    """A request as a fault looks at it."""

    __slots__ = ("_context", "_name_of", "_request")

    def __init__(self, context: RequestContext, request: Any, name_of: Callable[[bytes], str | None]) -> None:
        self._context = context
        self._request = request
        self._name_of = name_of

    def sender(self, name: str) -> str | None:
        return self._context.client_id if name == "client_id" else str(self._context.principal)

    def topics(self) -> Iterable[tuple[str, int | None]]:
        return topics_of(self._request, self._name_of)

    def ids(self, kind: str) -> set[str]:
        return ids_of(self._request, kind)

    def values(self, path: str) -> list[Any]:
        return values_of(self._request, path)


class _Marker:
    """A marker as a fault looks at it: its fields are `commit`, `producer_id` and `producer_epoch`."""

    __slots__ = ("_id", "_marker", "_partition")

    def __init__(self, marker: TxnMarker, transactional_id: str, partition: TopicPartition) -> None:
        self._marker = marker
        self._id = transactional_id
        self._partition = partition

    def sender(self, name: str) -> str | None:
        return None

    def topics(self) -> Iterable[tuple[str, int | None]]:
        return (self._partition,)

    def ids(self, kind: str) -> set[str]:
        return {self._id} if kind == "transactional_id" else set()

    def values(self, path: str) -> list[Any]:
        return [getattr(self._marker, path, None)]


# --- Faults that are armed ------------------------------------------------------------------------------------


class Answering(Protocol):
    """What the dispatcher knows of an answer."""

    def frame(self, context: RequestContext, response: Any) -> bytes:
        """Its bytes, or the first of them where there are many."""
        ...

    def forwarded(self, context: RequestContext, response: Any) -> Any:
        """The same answer, of a request that goes to the controller undecoded."""
        ...


class Faults:
    """Those of one node. Raises LookupError where a number is of none."""

    def __init__(
        self,
        scheduler: Scheduler,
        turns: Turns,
        topic_name: Callable[[bytes], str | None],
        crash: Callable[[], None],
        changed: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`crash` ends the process at once. `changed`: some faults are armed now that weren't, or the other way.
        `failed` is told of a broken invariant."""
        self._scheduler = scheduler
        self._turns = turns
        self._topic_name = topic_name
        self._crash = crash
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
                body = memoryview(request.data)[request.body_at :]
                asked = decode(APIS[api_key].request, context.api_version, body)
            subject = _Request(context, asked, self._topic_name)
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
        response: Any = None
        is_replaced = False
        for fault in due:
            if fault.at is FaultPoint.REQUEST:
                if fault.do is Do.ERROR:
                    response, is_replaced = self._error(fault, context, asked), True
                else:
                    await self._happens(fault, str(context))
        if is_replaced:
            if is_forwarded:
                response = answering.forwarded(context, response)
        else:
            response = handle(context, request)
            if isinstance(response, Later):
                response = await response
        for fault in due:
            if fault.at is FaultPoint.ANSWER:
                if fault.do is Do.ERROR:
                    response = self._error(fault, context, asked)
                    if is_forwarded:
                        response = answering.forwarded(context, response)
                elif fault.do is Do.CUT:
                    self._cut(context, answering.frame(context, response))
                else:
                    await self._happens(fault, str(context))
        return response

    def _error(self, fault: ArmedFault, context: RequestContext, asked: Any) -> Any:
        return error_answer(context.api_key, context.api_version, asked, fault.error, fault.message)

    def _cut(self, context: RequestContext, frame: bytes) -> None:
        context.connection.answer_and_hang_up([frame[: max(1, len(frame) // 2)]])
        raise CloseConnectionError(f"a fault of a test cuts the answer to {context}")

    async def _happens(self, fault: ArmedFault, where: str) -> None:
        if fault.do is Do.DELAY:
            over: Later[None] = Later()
            self._scheduler.call_later(fault.delay_ms / 1000, over.reply, None)
            await over
        elif fault.do is Do.HOLD:
            released: Later[None] = Later()
            fault.standing.append(released)
            await released
        elif fault.do is Do.DROP:
            await _never()
        elif fault.do is Do.CLOSE:
            raise CloseConnectionError(f"a fault of a test closes the connection at {where}")
        else:
            self._crash()

    # --- around markers -------------------------------------------------------------------------------------

    def around_markers(self, markers: Markers, id_of: Callable[[int], str]) -> Markers:
        """The way of markers, with the faults that are armed now and are about it. `id_of`: the transactional id of a
        producer id."""
        faults = [each for each in self._armed.values() if each.at not in OF_REQUESTS]
        return _FaultyMarkers(self, markers, faults, id_of) if faults else markers

    def carry_out(self, steps: Waiting[None]) -> None:
        """Those of markers, which nobody waits for."""
        self._turns.carry_out(steps, self._failed)

    async def happens_to_marker(self, fault: ArmedFault) -> Error | None:
        """The error that its coordinator is told, if any."""
        if fault.do is Do.ERROR:
            return fault.error
        await self._happens(fault, "a marker")
        return None


class _FaultyMarkers:
    """One marker after the other, in the order of the transaction's partitions."""

    def __init__(
        self, faults: Faults, markers: Markers, armed: Sequence[ArmedFault], id_of: Callable[[int], str]
    ) -> None:
        self._faults = faults
        self._markers = markers
        self._armed = armed
        self._id_of = id_of

    def write(
        self,
        marker: TxnMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[MarkerAnswers], None],
    ) -> None:
        """As `Markers`."""
        self._faults.carry_out(self._written(marker, [*partitions], done))

    async def _written(
        self,
        marker: TxnMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[MarkerAnswers], None],
    ) -> None:
        transactional_id = self._id_of(marker.producer_id)
        for partition in partitions:
            subject = _Marker(marker, transactional_id, partition)
            answers = await self._happens(FaultPoint.MARKER, subject, partition)
            if answers is None:
                answers = await self._one(marker, partition)
                answers = await self._happens(FaultPoint.MARKED, subject, partition) or answers
            done(answers)

    async def _happens(
        self, place: FaultPoint, subject: Subject, partition: TopicPartition
    ) -> MarkerAnswers | None:
        for fault in self._armed:
            if fault.at is place and fault.fires(subject):
                error = await self._faults.happens_to_marker(fault)
                if error is not None:
                    return {partition: error}
        return None

    async def _one(self, marker: TxnMarker, partition: TopicPartition) -> MarkerAnswers:
        answered: Later[MarkerAnswers] = Later()
        is_told = False

        def told(answers: MarkerAnswers) -> None:
            nonlocal is_told
            if not is_told:  # one answer too many does no harm
                is_told = True
                answered.reply(answers)

        self._markers.write(marker, [partition], told)
        return await answered


def _never() -> Waiting[None]:
    """For as long as the client waits."""
    never: Later[None] = Later()
    never.on_abandon = _nothing

    async def waiting() -> None:
        await never

    return waiting()


def _nothing() -> None:
    """Nobody is told."""
