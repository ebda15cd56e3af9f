"""A journal of a node's requests: each with its client, time, fields, answer and duration.

    journal.page({"transactional_id": "payer"}, after=0)
    -> {"requests": [{"n": 17, "api": "EndTxn", ...}], "next": 42, "lost": 0}

It has the last `barnabas.journal.size` requests. A request is kept as it was decoded, and described when a test asks:
until then it costs some 2 µs. Two things aren't kept: the records of a Produce, which are in a buffer that is used
again, and answers with records. Their places and errors are kept. The journal is wrapped around the faults
(`broker.faults.node_faults`), so that it has the answers that clients got.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from broker.faults.armed_fault import ArmedFault, FaultError
from broker.faults.subjects import AskedRequest
from broker.network.answers import ForwardedRequest
from broker.network.observed_requests import LATERS, HungUpError, ObservedLater
from broker.network.request_log import SECRETS
from protocol.apis import APIS
from protocol.errors import CodecError, error_name
from protocol.messages.produce import ProduceRequest
from protocol.records.batch import BATCH_OVERHEAD, HEADER, BatchHeader
from protocol.wire.codec import decode
from protocol.wire.schema import Struct, error_codes

if TYPE_CHECKING:
    from broker.network.context import RequestContext

MOST_PLACES = 50
"""Topics and partitions that the journal keeps of one request or answer: the first ones of a longer list."""
MOST_SCANNED = 1_000
"""Requests that one question looks at."""
MOST_PAGE_BYTES = 32_768
"""The size after which a page ends; its last request may exceed it."""
_LONGEST_TEXT = 1_000
_WITHOUT_ANSWER = frozenset(("ShareFetch", "FetchSnapshot"))
"""APIs whose answers aren't kept, since they have records."""
_CORRELATION_ID_BYTES = 4
_NOT_TOLD = frozenset(("throttle_time_ms", "error_code"))
_ASKED = ("api", "client_id", "principal", "transactional_id", "group", "topic", "partition", "fields")

Handle = Callable[["RequestContext", Any], Any]

# The places of values in an entry, which is a list.
_N, _BEGAN_S, _ENDED_S, _API, _VERSION, _CLIENT_ID, _PRINCIPAL, _HOST, _PORT, _REQUEST, _ANSWER = range(11)


class _Outcome(Enum):
    """Takes the place of an answer if there is none."""

    UNDER_WAY = "under way"
    HUNG_UP = "its client has hung up"
    FAILED = "its connection was closed"


class _Codes(tuple[int, ...]):
    """The errors of an answer that isn't kept itself."""

    __slots__ = ()


_NO_ERRORS: Final = _Codes()


class RequestJournal:
    """The journal of one node, over all its listeners."""

    def __init__(
        self,
        size: int,
        monotonic_s: Callable[[], float],
        now_ms: Callable[[], int],
        topic_name: Callable[[bytes], str | None],
    ) -> None:
        self._monotonic_s = monotonic_s
        self._now_ms = now_ms
        self._topic_name = topic_name
        self._kept: deque[list[Any]] = deque(maxlen=size)
        self._numbers = itertools.count(1)

    # --- keeping ----------------------------------------------------------------------------------------------

    def around(self, api_key: int, handle: Handle) -> Handle:
        """The handler, wrapped so that its requests are kept."""
        api = APIS[api_key]
        monotonic_s, keep, numbers = self._monotonic_s, self._kept.append, self._numbers
        request_type, is_long = api.request, _long_of(api.request)
        answer_of = _answers(api.name, api.response)
        under_way, has_records = _Outcome.UNDER_WAY, api.name == "Produce"

        def end(entry: list[Any], response: Any, error: Exception | None) -> None:
            """Finish the entry of a request whose answer comes later, or never."""
            entry[_ENDED_S] = monotonic_s()
            if error is None:
                entry[_ANSWER] = None if response is None else answer_of(response)
            else:
                entry[_ANSWER] = _Outcome.HUNG_UP if isinstance(error, HungUpError) else _Outcome.FAILED
                if has_records:  # the request may go on without its client, and needs its records
                    entry[_REQUEST] = _shortened(entry[_REQUEST])
            if has_records:
                _drop_records(entry[_REQUEST])

        def call(context: RequestContext, request: Any) -> Any:
            entry = [
                next(numbers),
                monotonic_s(),
                None,
                api_key,
                context.api_version,
                context.client_id,
                context.principal,
                context.peer_host,
                context.connection.peer_port,
                request,
                under_way,
            ]
            keep(entry)
            if is_long is not None and request.__class__ is request_type and is_long(request):
                entry[_REQUEST] = _shortened(request)
            try:
                response = handle(context, request)
            except Exception as error:
                end(entry, None, error)
                raise
            if isinstance(response, LATERS):
                return ObservedLater(response, partial(end, entry))
            entry[_ENDED_S] = monotonic_s()
            entry[_ANSWER] = None if response is None else answer_of(response)
            if has_records:
                _drop_records(entry[_REQUEST])
            return response

        return call

    # --- answering --------------------------------------------------------------------------------------------

    def page(self, wanted: Mapping[str, Any], after: int = 0) -> dict[str, Any]:
        """A page of the requests after number `after` that match `wanted`, in the words of a fault.

        `next`: the `after` of the next page, None if this is the last; `lost`: how many after `after` aren't kept any
        more. Raises FaultError."""
        if unknown := wanted.keys() - _ASKED:
            raise FaultError(f"requests can't be chosen by {', '.join(unknown)}, but by {', '.join(_ASKED)}")
        about = ArmedFault(0, {**wanted, "do": "hold"})
        found: list[dict[str, Any]] = []
        first = self._kept[0][_N] if self._kept else after + 1
        lost = max(first - after - 1, 0)
        now_s, now_ms = self._monotonic_s(), self._now_ms()
        size = 0
        last: int | None = None
        start = max(after + 1 - first, 0)
        for scanned, entry in enumerate(itertools.islice(self._kept, start, None)):
            if scanned == MOST_SCANNED or size >= MOST_PAGE_BYTES:
                break
            last = entry[_N]
            kept = _Kept(entry, self._topic_name)
            if (about.apis is None or entry[_API] in about.apis) and about.is_about(kept):
                described = kept.described(now_ms - (now_s - entry[_BEGAN_S]) * 1000)
                size += len(json.dumps(described))
                found.append(described)
        else:
            last = None
        return {"requests": found, "next": last, "lost": lost}


# --- The parts of a request and its answer that are kept ------------------------------------------------------


@cache
def _lists(kind: type[Struct]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The fields that are lists, each with the lists in its entries."""
    return tuple(
        (
            field.name,
            tuple(each.name for each in field.element.FIELDS if each.kind == "array")
            if isinstance(field.element, type)
            else (),
        )
        for field in kind.FIELDS
        if field.kind == "array"
    )


def _long_of(kind: type[Struct]) -> Callable[[Any], bool] | None:
    """A function that returns True if a message of this kind has more places than are kept; None if none can have.

    Each request pays for the call, and most requests name one thing."""
    lists = _lists(kind)
    if not lists:
        return None

    def is_long(message: Any) -> bool:
        count = 0
        for name, inner in lists:
            entries = getattr(message, name)
            if entries:
                count += len(entries)
                if count > MOST_PLACES:
                    return True
                for each in inner:
                    for entry in entries:
                        count += len(getattr(entry, each) or ())
        return count > MOST_PLACES

    (top, below), *others = sorted(lists, key=lambda each: len(each[1]) != 1)
    if len(below) != 1:
        return is_long
    entries_of, entries_below, rarely = attrgetter(top), attrgetter(*below), [name for name, _ in others]

    def is_long_where_it_is_not_one(message: Any) -> bool:
        for name in rarely:
            if getattr(message, name):
                return is_long(message)
        entries = entries_of(message)
        if entries and len(entries) == 1:
            return len(entries_below(entries[0]) or ()) >= MOST_PLACES
        return bool(entries) and is_long(message)

    return is_long_where_it_is_not_one


def _shortened(message: Any) -> Any:
    """A copy with the first entries of each list."""
    if not isinstance(message, Struct):
        return message
    made = type(message)()
    for field in type(message).FIELDS:
        value = getattr(message, field.name)
        setattr(
            made,
            field.name,
            [_shortened(each) for each in value[:MOST_PLACES]] if isinstance(value, list) else value,
        )
    return made


def _drop_records(request: Any) -> None:
    """Drop all records but the header of the first batch: they are in a buffer that is used again."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records is not None:
                partition.records = bytes(partition.records[:BATCH_OVERHEAD])


def _answers(api: str, kind: type[Struct]) -> Callable[[Any], Any]:
    """A function that returns the part of an answer that is kept."""
    is_long = _long_of(kind)
    if api == "Fetch":
        return _errors_of_fetch
    if api in _WITHOUT_ANSWER:
        return _errors_of

    if is_long is None:
        return _itself

    def answer_of(response: Any) -> Any:
        return _errors_of(response) if response.__class__ is kind and is_long(response) else response

    return answer_of


def _itself(response: Any) -> Any:
    return response


def _errors_of(response: Any) -> _Codes:
    return _Codes(itertools.islice(filter(None, error_codes(response)), MOST_PLACES))


def _errors_of_fetch(response: Any) -> _Codes:
    """The errors of a Fetch's answer, of which most have none."""
    if response.error_code:
        return _errors_of(response)
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.error_code:
                return _errors_of(response)
    return _NO_ERRORS


# --- Describing a request -------------------------------------------------------------------------------------


class _Kept(AskedRequest):
    """A request of the journal, to be described."""

    __slots__ = ("_answer", "_api", "_entry")

    def __init__(self, entry: list[Any], topic_name: Callable[[bytes], str | None]) -> None:
        self._entry = entry
        self._api = APIS[entry[_API]]
        request, self._answer = entry[_REQUEST], entry[_ANSWER]
        version = entry[_VERSION]
        if isinstance(request, ForwardedRequest):
            request = _decoded(self._api.request, version, request.body)
        super().__init__(request, topic_name, entry[_CLIENT_ID], entry[_PRINCIPAL])
        data = getattr(self._answer, "data", None)
        if isinstance(data, bytes | bytearray | memoryview):  # the controller's, from its header on
            head = _CORRELATION_ID_BYTES + self._api.response_header_version(version)
            self._answer = _decoded(self._api.response, version, memoryview(data)[head:])

    def described(self, at_ms: float) -> dict[str, Any]:
        """The request as JSON, without fields that are empty."""
        entry, answer = self._entry, self._answer
        ended_s = entry[_ENDED_S]
        told: dict[str, Any] = {
            "n": entry[_N],
            "at_ms": round(at_ms, 3),
            "took_ms": None if ended_s is None else round((ended_s - entry[_BEGAN_S]) * 1000, 3),
            "connection": f"{entry[_HOST]}:{entry[_PORT]}",
            "client_id": _text(entry[_CLIENT_ID]),
            "principal": _text(str(entry[_PRINCIPAL])),
            "api": self._api.name,
            "version": entry[_VERSION],
            "transactional_ids": sorted(map(_text, self.ids("transactional_id"))),
            "groups": sorted(map(_text, self.ids("group"))),
            "topics": _places(self.topics()),
            "batches": [*_batches(self._request, answer, self._name_of)],
            "offsets": _offsets(self._request, self._name_of),
            "request": _scalars(self._request, entry[_VERSION]),
            "errors": {},
            "answer": _scalars(answer, entry[_VERSION]),
        }
        if isinstance(answer, _Outcome):
            told["outcome"] = answer.value
        elif isinstance(answer, Struct | _Codes):
            codes = answer if isinstance(answer, _Codes) else error_codes(answer)
            for code in filter(None, codes):
                told["errors"][error_name(code)] = told["errors"].get(error_name(code), 0) + 1
        return {name: value for name, value in told.items() if value not in ({}, [])}


def _decoded(kind: type[Any], version: int, body: memoryview) -> Any:
    """Decode a request that went to the controller as it came. None if it makes no sense."""
    try:
        return decode(kind, version, body)
    except CodecError:
        return None


def _text(value: Any) -> Any:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def _places(topics: Iterable[tuple[str, int | None]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, partition in itertools.islice(topics, MOST_PLACES):
        partitions = found.setdefault(name, [])
        if partition is not None:
            partitions.append(partition)
    return found


def _scalars(message: Any, version: int) -> dict[str, Any]:
    """The numbers, texts and bools of the message itself, without secrets."""
    found: dict[str, Any] = {}
    if not isinstance(message, Struct):
        return found
    for field in type(message).FIELDS:
        value = getattr(message, field.name)
        if not field.in_version(version) or field.name in _NOT_TOLD or field.name in SECRETS:
            continue
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, str | int | float) and value != "":
            found[field.name] = _text(value)
    return found


def _batches(
    request: Any, answer: Any, name_of: Callable[[bytes], str | None]
) -> Iterator[dict[str, int | str | None]]:
    """The batches of a Produce: producer, partition, and the first record's offset."""
    if not isinstance(request, ProduceRequest):
        return
    offsets = {}
    for topic in getattr(answer, "responses", ()):
        for each in topic.partition_responses:
            offsets[topic.name or name_of(topic.topic_id), each.index] = each.base_offset
    for said in request.topic_data:
        name = said.name or name_of(said.topic_id)
        for partition in said.partition_data:
            records = partition.records
            if records is None or len(records) < BATCH_OVERHEAD:
                continue
            header = BatchHeader(*HEADER.unpack_from(records))
            offset = offsets.get((name, partition.index), -1)
            yield {
                "topic": name,
                "partition": partition.index,
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "sequence": header.base_sequence,
                "records": header.records_count,
                "offset": None if offset < 0 else offset,
            }


def _offsets(request: Any, name_of: Callable[[bytes], str | None]) -> dict[str, dict[str, int]]:
    """The committed or fetched offsets, by topic and partition."""
    found: dict[str, dict[str, int]] = {}
    for topic in getattr(request, "topics", None) or ():
        name = getattr(topic, "name", None) or getattr(topic, "topic", None)
        name = name or name_of(getattr(topic, "topic_id", b""))
        for each in getattr(topic, "partitions", None) or ():
            offset = getattr(each, "committed_offset", getattr(each, "fetch_offset", None))
            if name and isinstance(offset, int):
                index = getattr(each, "partition_index", getattr(each, "partition", -1))
                found.setdefault(name, {})[str(index)] = offset
    return found
