"""From a frame to its handler and back to bytes.

Which APIs there are and in which versions stands in `protocol.apis`; which of them are served, in
`broker.handlers.HANDLERS`. ApiVersions, this dispatch and the table in the docs derive from these two.
"""

from __future__ import annotations

import importlib
import logging
import struct
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from broker.environment.scheduler import LONGEST_HOLD_S
from broker.handlers import HANDLERS
from broker.network import request_log
from broker.network.answers import (
    MAX_CONTROL_REQUEST_BYTES,
    Answer,
    Chunk,
    CloseConnectionError,
    ForwardedRequest,
    NotAdmittedError,
    joined,
)
from broker.network.connection import most_produced
from broker.network.context import RequestContext
from broker.network.observed_requests import observed
from broker.network.pieces import ENTRY_LISTS, LIST_BYTES, EntryList, bounded, in_pieces, is_long, produced
from broker.network.turns import PER_TURN
from broker.quotas import charge
from protocol.apis import API_VERSIONS_KEY, APIS, decode_request_header
from protocol.errors import CodecError, KafkaError, stops_the_broker
from protocol.waiting import Later, Waiting, turn
from protocol.wire.codec import decoder, decoder_in_steps, encode, encoder, encoder_in_steps
from protocol.wire.schema import LATEST

if TYPE_CHECKING:
    from broker.early_requests import EarlyRequests, Need
    from broker.environment.scheduler import Clock, Watchdog
    from broker.network.answers import PendingAnswer
    from broker.network.connection import Connection
    from broker.network.observed_requests import Counted, Handle, Observer
    from broker.network.turns import Turns
    from broker.peers.controller_channel import Forwarding, Sender
    from broker.quotas import ClientQuotas
    from protocol.apis import Api


# --- How one version of one API is decoded, handled and encoded, and its answer framed ------------------------

PRODUCE_KEY = 0

# One object instead of some dozens, where many answers wait together. A larger one is joined with its neighbours when
# it is written, if at all, and needs no copy before.
JOINED_CHUNKS_BYTES = 4 * 1024

# Topics, and partitions of one, of an answer that is encoded in passing.
SHORT_TOPICS = 20
SHORT_PARTITIONS = 1_000

# Size, correlation id, and in a flexible version that there are no tagged fields.
SIZE_AND_CORRELATION_ID = struct.Struct(">ii")
_FLEXIBLE_HEAD = struct.Struct(">iix")
_SIZE_BYTES = 4  # the size doesn't count itself


class Route:
    """How one version of one API is decoded, handled and encoded."""

    __slots__ = (
        "_request",
        "api_version",
        "decode",
        "encode",
        "entries",
        "handle",
        "handle_in_pieces",
        "has_lists",
        "head",
        "internal_topic",
        "need",
        "response",
        "shape",
        "short_bytes",
        "structs",
    )

    def __init__(self, api_key: int, api_version: int, handlers: Mapping[int, str] = HANDLERS) -> None:
        """`handlers`: the names of their modules, by api key."""
        api = APIS[api_key]
        self._request = api.request
        self.api_version = api_version
        module = importlib.import_module(f"broker.handlers.{handlers[api_key]}")
        self.decode: Callable[[memoryview, int, int], tuple[Any, int]] = decoder(api.request, api_version)
        self.response: type[Any] = api.response
        self.entries = ENTRY_LISTS.get(api.name)
        shape = _SHAPES.get(api.name)
        self.shape = shape if shape is not None and api_version <= shape.last_version else None
        kinds = {field.name: field.kind for field in api.response.FIELDS}
        self.has_lists = "array" in kinds.values()
        self.structs = tuple(name for name, kind in kinds.items() if kind == "struct")
        """Where an answer may have lists, unless it is null."""
        self.short_bytes = 0
        """The answer to a request of no more bytes is short, whatever it says."""
        if not self.has_lists and not self.structs:
            self.short_bytes = sys.maxsize
        elif self.shape is not None and self.shape.is_of_request:
            self.short_bytes = LIST_BYTES
        self.encode: Callable[[Any, list[Any]], None] = self._encode_first
        self.handle: Callable[..., Any] = module.handle
        self.handle_in_pieces: Callable[[RequestContext, Any], Any] = module.handle
        """For a request of many entries, which is one request to its observers, too."""
        self.needs(None)
        self.head = (
            SIZE_AND_CORRELATION_ID if api.response_header_version(api_version) == 0 else _FLEXIBLE_HEAD
        )

    def needs(self, need: Need | None) -> None:
        """What a request waits for before it is handled, if for anything."""
        self.need = need
        self.internal_topic = None if need is None else need.internal_topic

    def _encode_first(self, response: Any, chunks: list[Any]) -> None:
        """Encoders take 2 ms to compile, so that each is once it is needed."""
        self.encode = cast("Callable[[Any, list[Any]], None]", encoder(self.response, self.api_version))
        self.encode(response, chunks)

    def decode_in_steps(self, frame: memoryview, pos: int) -> Waiting[tuple[Any, int]]:
        decode = decoder_in_steps(self._request, self.api_version)
        return bounded(self._request, decode(frame, pos, len(frame)))

    def encode_in_steps(self, response: Any, chunks: list[Any]) -> Iterator[None]:
        return encoder_in_steps(self.response, self.api_version)(response, chunks)

    def is_short(self, response: Any) -> bool:
        """Whether the answer is surely encoded in passing: one without lists, or of few topics and partitions."""
        shape = self.shape
        if shape is None:
            for name in self.structs:
                if getattr(response, name) is not None:
                    return False
            return not self.has_lists
        topics = getattr(response, shape.topics)
        partitions = shape.partitions
        if len(topics) == 1:
            return len(getattr(topics[0], partitions)) <= SHORT_PARTITIONS
        return len(topics) <= SHORT_TOPICS and all(
            len(getattr(topic, partitions)) <= SHORT_PARTITIONS for topic in topics
        )


class _Shape(NamedTuple):
    """Where topics, and partitions of one, stand in an answer that has no other lists."""

    topics: str
    partitions: str
    last_version: int = LATEST
    is_of_request: bool = True
    """Whether there are no more of them than the request has."""


# By the names of APIs: of those that are asked again and again.
_SHAPES = {
    "Produce": _Shape("responses", "partition_responses"),
    "Fetch": _Shape("responses", "partitions", is_of_request=False),
    "ListOffsets": _Shape("topics", "partitions"),
    "OffsetCommit": _Shape("topics", "partitions"),
    "TxnOffsetCommit": _Shape("topics", "partitions"),
    "AddPartitionsToTxn": _Shape("results_by_topic_v3_and_below", "results_by_partition", 3),
}


def frame_answer(
    route: Route, correlation_id: int, response: Any, encoded: list[Chunk] | None = None
) -> Answer:
    """A response as chunks: size, header, body; a small one is a single chunk. `encoded`: its body, behind a chunk for
    the header, where it is encoded already."""
    chunks: list[Chunk] = [b""] if encoded is None else encoded
    if encoded is None:
        try:
            route.encode(response, chunks)
        except CodecError as error:
            raise RuntimeError(f"an answer of ours can't be encoded: {error}") from error
    head = route.head
    size = sum(map(len, chunks)) + head.size
    chunks[0] = head.pack(size - _SIZE_BYTES, correlation_id)
    if size > JOINED_CHUNKS_BYTES:
        return chunks
    try:
        return [b"".join(chunks)]  # type: ignore[arg-type]
    except TypeError:
        # The end of a range of a file is among them. To ask for one before would cost every answer.
        return chunks


async def framed_in_steps(
    route: Route, correlation_id: int, response: Any, turn_is_over: Callable[[], bool]
) -> Answer:
    """The same for an answer that may be long."""
    chunks: list[Chunk] = [b""]
    done = 1
    try:
        for _ in route.encode_in_steps(response, chunks):
            chunks[done:] = joined(chunks[done:])
            done = len(chunks)
            if turn_is_over():
                await turn()
    except CodecError as error:
        raise RuntimeError(f"an answer of ours can't be encoded: {error}") from error
    return frame_answer(route, correlation_id, response, chunks)


# --------------------------------------------------------------------------------------------------------------
# The route of a request that goes to the controller as it came, and of its answer, which the client gets as it is.

_CORRELATION_ID_BYTES = 4


class ForwardedRoute(Route):
    """Nothing is decoded, or encoded."""

    __slots__ = ()

    def __init__(
        self, api_version: int, forward: Callable[[Any, ForwardedRequest], Any], response: type[Any]
    ) -> None:
        """`response` is what `forward` answers with: it has `data`, the answer from its header on."""
        self.api_version = api_version
        self.decode = _whole
        self.encode = _as_it_is
        self.handle = forward
        self.needs(None)  # of this node
        self.response = response
        self.entries = None
        self.has_lists = False
        self.structs = ()
        self.shape = None
        self.short_bytes = sys.maxsize
        self.head = SIZE_AND_CORRELATION_ID

    async def decode_in_steps(self, frame: memoryview, pos: int) -> tuple[ForwardedRequest, int]:
        await turn()
        return _whole(frame, pos, len(frame))


def _whole(frame: memoryview, pos: int, end: int) -> tuple[ForwardedRequest, int]:
    """The receive buffer is used again."""
    return ForwardedRequest(bytes(frame[:end]), pos), end


def _as_it_is(response: Any, chunks: list[Any]) -> None:
    chunks.append(memoryview(response.data)[_CORRELATION_ID_BYTES:])


# --------------------------------------------------------------------------------------------------------------
# Requests that aren't handled yet: what they are is still being found out, or they have come too early.


class Handles(Protocol):
    """The dispatcher, for a request that comes back to it."""

    monotonic_s: Callable[[], float]

    def handle(
        self, route: Route, context: RequestContext, request: Any, frame_bytes: int
    ) -> Answer | PendingAnswer: ...

    def handle_in_time(
        self, route: Route, context: RequestContext, request: Any, frame_bytes: int
    ) -> Answer | PendingAnswer:
        """As `handle`, once what the request needs is here."""
        ...

    def handle_unanswered(self, request: DecodingRequest | EarlyRequest, connection: Connection) -> None:
        """Its client has hung up."""
        ...


class DecodingRequest:
    """A request that is decoded in steps. What a client has sent whole is handled even where it hangs up then."""

    __slots__ = ("_context", "_dispatcher", "_frame_bytes", "_later", "_route")

    def __init__(
        self,
        dispatcher: Handles,
        route: Route,
        context: RequestContext,
        later: Later[tuple[Any, int]],
        frame_bytes: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._route = route
        self._context = context
        self._later = later
        self._frame_bytes = frame_bytes

    def when_answered(self, then: Callable[[], None]) -> None:
        self._later.when_answered(then)

    def take(self) -> Answer | PendingAnswer:
        request, _ = self._later.result()
        return self._dispatcher.handle_in_time(self._route, self._context, request, self._frame_bytes)

    def abandon(self) -> None:
        self._later.when_answered(partial(self._dispatcher.handle_unanswered, self, self._context.connection))


class EarlyRequest:
    """A request that waits for what this node is getting ready for. Where its client hangs up it is never handled, as
    if it had been refused, but for a Produce."""

    __slots__ = (
        "_began_s",
        "_context",
        "_dispatcher",
        "_early",
        "_frame_bytes",
        "_later",
        "_request",
        "_route",
    )

    def __init__(
        self,
        dispatcher: Handles,
        early: EarlyRequests,
        route: Route,
        context: RequestContext,
        request: Any,
        later: Later[bool],
        frame_bytes: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._early = early
        self._route = route
        self._context = context
        self._request = request
        self._later = later
        self._frame_bytes = frame_bytes
        self._began_s = dispatcher.monotonic_s()

    def when_answered(self, then: Callable[[], None]) -> None:
        self._later.when_answered(then)

    def take(self) -> Answer | PendingAnswer:
        in_vain = self._later.result()
        context, dispatcher = self._context, self._dispatcher
        if request_log.enabled():
            request_log.waited(context, dispatcher.monotonic_s() - self._began_s, in_vain=in_vain)
        return dispatcher.handle(self._route, context, self._request, self._frame_bytes)

    def abandon(self) -> None:
        if self._context.api_key != PRODUCE_KEY:
            self._later.abandon()
            return
        handle = partial(self._dispatcher.handle_unanswered, self, self._context.connection)
        self._later.when_answered(partial(self._early.soon, handle))


# --------------------------------------------------------------------------------------------------------------

log = logging.getLogger("barnabas.dispatch")

LONG_FRAME_BYTES = 64 * 1024  # from here on it isn't sure that a frame is decoded in some milliseconds


def with_ports(handle: Callable[..., Any], node: Any) -> Callable[[RequestContext, Any], Any]:
    """The handler of a node: what it returns is the response, or a `Later` of one that has to wait. A coroutine goes on
    in the node's turns."""
    if iscoroutinefunction(handle):
        turns: Turns = node.turns
        return turns.driver(handle, node)
    return partial(handle, node)


class PendingRequest:
    """A request that is handled and not answered yet: an `answers.PendingAnswer`."""

    __slots__ = ("_dispatcher", "context", "frame_bytes", "handled_s", "later", "route")

    def __init__(
        self,
        dispatcher: Dispatcher,
        route: Route,
        context: RequestContext,
        later: Later[Any],
        *,
        frame_bytes: int,
        handled_s: float,
    ) -> None:
        self._dispatcher = dispatcher
        self.route = route
        self.context = context
        self.later = later
        self.frame_bytes = frame_bytes
        self.handled_s = handled_s  # how long the handler took, where that is charged for

    def when_answered(self, then: Callable[[], None]) -> None:
        self.later.when_answered(then)

    def take(self) -> Answer | EncodingAnswer:
        """The answer's chunks. Raises what the request failed with, and what encoding it does."""
        return self._dispatcher.finish(self)

    def abandon(self) -> None:
        """The client has hung up. What changes something goes on, and must not fail unnoticed."""
        self.later.abandon(partial(_failed_unheard, self._dispatcher, self.context.connection))


def _failed_unheard(dispatcher: Dispatcher, connection: Connection, error: BaseException) -> None:
    if not isinstance(error, CodecError | CloseConnectionError):
        dispatcher.failed(connection, error)


class EncodingAnswer:
    """An answer that is encoded in steps."""

    __slots__ = ("_later", "abandon", "when_answered")

    def __init__(self, later: Later[Answer]) -> None:
        self._later = later
        self.abandon = later.abandon
        self.when_answered = later.when_answered

    def take(self) -> Answer:
        return self._later.result()


Interposing = Callable[[int, "Handle", "Dispatcher"], "Handle"]
"""By api key and handler, the handler that stands in its place."""


class Dispatcher:
    """Serves requests of any connection."""

    def __init__(
        self,
        node: object,
        quotas: ClientQuotas,
        clock: Clock,
        turns: Turns,
        watchdog: Watchdog,
        stop_on_failure: Callable[[BaseException], None],
        forwarding: Forwarding | None,
        early_requests: EarlyRequests | None,
        handlers: Mapping[int, str] = HANDLERS,
    ) -> None:
        """`node`: whose attributes are the ports of handlers, by their names. `forwarding`: the way to another node
        that decides what controllers decide. `early_requests`: those that wait before they are handled, if
        any do. `handlers`: of the APIs that are served."""
        self.monotonic_s = clock.monotonic_s
        self.soon = turns.soon
        self._node = node
        self._turns = turns
        self._watchdog = watchdog
        self._quotas = quotas
        self._now_ms = clock.now_ms
        self._stop_on_failure = stop_on_failure
        self._forwarding = forwarding
        self._early_requests = early_requests
        self._handlers = handlers
        self._interposed: Interposing | None = None
        self._counted: Counted | None = None
        self._routes: dict[int, Route] = {}

    def serve(self, connection: Connection, frame: memoryview) -> Answer | PendingAnswer:
        """One request's answer, where the handler knows it.

        Raises CodecError for bytes that make no sense, CloseConnectionError for a request that can't be answered.
        """
        size = len(frame)
        api_key, api_version, correlation_id, client_id, body_pos = decode_request_header(frame, 0, size)
        route = self._routes.get(api_key << 16 | api_version & 0xFFFF)
        if route is None:
            route = self._route(api_key, api_version)
            if route is None:
                return self._unsupported_api_versions(correlation_id)
        if size > MAX_CONTROL_REQUEST_BYTES and api_key != PRODUCE_KEY:
            raise CloseConnectionError(f"a {APIS[api_key].name} request of {size} bytes")
        context = RequestContext(connection, api_key, api_version, correlation_id, client_id)
        if size < LONG_FRAME_BYTES:
            request = route.decode(frame, body_pos, size)[0]
            early = self._early_requests
            if early is not None and (early.is_behind or route.internal_topic in early.unheard_of):
                return self.handle_in_time(route, context, request, size)
            return self.handle(route, context, request, size)
        decoded = self._turns.answer(route.decode_in_steps(frame, body_pos), context, to_the_end=True)
        if isinstance(decoded, tuple):
            return self.handle_in_time(route, context, decoded[0], size)
        if api_key == PRODUCE_KEY:
            connection.hold_produced(most_produced(size))
        return DecodingRequest(self, route, context, decoded, size)

    def handle_in_time(
        self, route: Route, context: RequestContext, request: Any, frame_bytes: int
    ) -> Answer | PendingAnswer:
        """As `handle`, once what the request needs is here."""
        early, need = self._early_requests, route.need
        waiting = None if early is None or need is None else early.wait(need.lacks, request)
        if early is None or waiting is None:
            return self.handle(route, context, request, frame_bytes)
        return EarlyRequest(self, early, route, context, request, waiting, frame_bytes)

    def handle_unanswered(self, request: DecodingRequest | EarlyRequest, connection: Connection) -> None:
        """Its client has hung up."""
        try:
            answer = request.take()
        except (CodecError, CloseConnectionError):
            return
        except Exception as error:
            self.failed(connection, error)
            return
        if answer is not None and not isinstance(answer, list):
            answer.abandon()

    def serve_forwarded(
        self, sender: Sender, data: memoryview, admitted: Container[int]
    ) -> Answer | PendingAnswer:
        """As `serve`, of a client that is connected elsewhere: `data` is its request from the header on, of an API that
        is `admitted`, else NotAdmittedError. Raises as `serve`. The client is told for how long it is throttled, by
        who handed it on."""
        size = len(data)
        header = decode_request_header(data, 0, size)
        if header.api_key not in APIS:
            raise CodecError(f"there is no API of key {header.api_key}")
        if header.api_key not in admitted:
            raise NotAdmittedError(f"api key {header.api_key} isn't handed on")
        route = self._routes.get(header.api_key << 16 | header.api_version & 0xFFFF)
        if route is None:
            route = self._route(header.api_key, header.api_version)
            assert route is not None  # but for ApiVersions
        context = sender.context(header)
        if size < LONG_FRAME_BYTES:
            return self.handle(route, context, route.decode(data, header.body_pos, size)[0], size)
        decoded = self._turns.answer(route.decode_in_steps(data, header.body_pos), context, to_the_end=True)
        if isinstance(decoded, tuple):
            return self.handle(route, context, decoded[0], size)
        return DecodingRequest(self, route, context, decoded, size)

    def is_of_many(self, frame: memoryview) -> bool:
        """Whether the Produce in the frame has many topics and partitions: it is decoded as far as one step goes, and
        let go of. Nonsense has none."""
        size = len(frame)
        try:
            api_key, api_version, _, _, body_pos = decode_request_header(frame, 0, size)
            route = self._routes.get(api_key << 16 | api_version & 0xFFFF) or self._route(
                api_key, api_version
            )
            assert route is not None  # but for ApiVersions
            route.decode_in_steps(frame, body_pos).send(None)
        except (CodecError, CloseConnectionError):
            return False
        except StopIteration as end:
            return produced(end.value[0]) > PER_TURN
        return True

    def handle(
        self, route: Route, context: RequestContext, request: Any, frame_bytes: int
    ) -> Answer | PendingAnswer:
        """The answer to a request that is decoded. Raises CloseConnectionError."""
        quotas = self._quotas
        began_s = self.monotonic_s() if quotas.enforced else 0.0
        entries = route.entries
        if entries is None or frame_bytes <= LIST_BYTES or not is_long(request, entries):
            response = route.handle(context, request)
        else:
            response = route.handle_in_pieces(context, request)
        if quotas.enforced and (response is None or isinstance(response, route.response)):
            self._charge(context, response, frame_bytes, began_s)
        if response is None:
            return None
        if isinstance(response, route.response):
            if frame_bytes <= route.short_bytes or route.is_short(response):
                return frame_answer(route, context.correlation_id, response)
            return self._frame_in_steps(route, context, response)
        handled_s = self.monotonic_s() - began_s if began_s else 0.0
        return PendingRequest(self, route, context, response, frame_bytes=frame_bytes, handled_s=handled_s)

    def _frame_in_steps(
        self, route: Route, context: RequestContext, response: Any
    ) -> Answer | EncodingAnswer:
        turns = self._turns
        steps = framed_in_steps(route, context.correlation_id, response, lambda: turns.is_over)
        framed = turns.answer(steps, context)
        return EncodingAnswer(framed) if isinstance(framed, Later) else framed

    def finish(self, pending: PendingRequest) -> Answer | EncodingAnswer:
        """The answer that has come, charged for and encoded. Raises what the request failed with."""
        response = pending.later.result()
        if self._quotas.enforced:
            began_s = self.monotonic_s() - pending.handled_s - pending.context.computed_s
            self._charge(pending.context, response, pending.frame_bytes, began_s)
        if response is None:
            return None
        began_s = self.monotonic_s()
        route, context = pending.route, pending.context
        if pending.frame_bytes <= route.short_bytes or route.is_short(response):
            answer: Answer | EncodingAnswer = frame_answer(route, context.correlation_id, response)
        else:
            answer = self._frame_in_steps(route, context, response)
        took_s = self.monotonic_s() - began_s
        if took_s > LONGEST_HOLD_S:
            self._watchdog.held(f"The answer to {pending.context}", pending.context.sender, took_s)
        return answer

    def held(self, connection: Connection, frame: memoryview, took_s: float) -> None:
        """Serving the request in the frame took so long, whatever came of it."""
        if took_s <= LONGEST_HOLD_S:
            return
        try:
            header = decode_request_header(frame, 0, len(frame))
        except (CodecError, CloseConnectionError):
            self._watchdog.held("A request", f" of {connection}", took_s)
            return
        context = RequestContext(
            connection, header.api_key, header.api_version, header.correlation_id, header.client_id
        )
        self._watchdog.held(str(context), context.sender, took_s)

    def _charge(self, context: RequestContext, response: Any, frame_bytes: int, began_s: float) -> None:
        handling_s = self.monotonic_s() - began_s if began_s else 0.0
        charge(self._quotas, context, response, frame_bytes, handling_s, self._now_ms())

    def _route(self, api_key: int, api_version: int) -> Route | None:
        """The route of an API's version; None for ApiVersions of a version that isn't known."""
        api = APIS.get(api_key)
        if api is None or api_key not in self._handlers:
            raise CloseConnectionError(f"api key {api_key} is not served")
        if not api.decodes(api_version):
            if api_key == API_VERSIONS_KEY:
                return None
            lowest = max(api.min_version, api.first_decodable)
            raise CloseConnectionError(
                f"{api.name} version {api_version} is not served ({lowest} to {api.max_version} are)"
            )
        forwarding = self._forwarding
        if forwarding is not None and forwarding.forwards(api_key):
            forwarded = ForwardedRoute(api_version, forwarding.forward, forwarding.answer_type)
            forwarded.handle = self._surrounded(forwarded.handle, api, api_version)
            self._routes[api_key << 16 | api_version] = forwarded
            return forwarded
        route = Route(api_key, api_version, self._handlers)
        route.handle = handle = with_ports(route.handle, self._node)
        if (entries := route.entries) is not None:
            route.handle_in_pieces = partial(self._in_pieces, handle, entries)
        if self._early_requests is not None:
            route.needs(self._early_requests.needs.get(api.name))
        observer = request_log.logger(api.name, self.monotonic_s) if request_log.enabled() else None
        route.handle = self._surrounded(route.handle, api, api_version, observer)
        route.handle_in_pieces = self._surrounded(route.handle_in_pieces, api, api_version, observer)
        self._routes[api_key << 16 | api_version] = route
        return route

    def _surrounded(
        self, handle: Handle, api: Api, api_version: int, observer: Observer | None = None
    ) -> Handle:
        """The handler, with the faults of a test next to it, a line in the log around them, and counts around all."""
        if self._interposed is not None:
            handle = self._interposed(api.key, handle, self)
        if observer is not None:
            handle = observed(handle, observer)
        return handle if self._counted is None else self._counted(api.name, api_version, handle)

    def _in_pieces(
        self,
        handle: Callable[[RequestContext, Any], Any],
        entries: EntryList,
        context: RequestContext,
        request: Any,
    ) -> Any:
        steps = in_pieces(request, entries, partial(handle, context))
        return self._turns.answer(steps, context, to_the_end=entries.changes)

    def count(self, counted: Counted) -> None:
        """Each request is counted from now on."""
        self._counted = counted
        self._routes.clear()

    def interpose(self, interposed: Interposing | None) -> None:
        """From now on each handler is what this makes of it, below those that observe it."""
        self._interposed = interposed
        self._routes.clear()

    def frame(self, context: RequestContext, response: Any) -> list[Chunk]:
        """The bytes of an answer; those that lie in files as ranges of them."""
        route = self._routes[context.api_key << 16 | context.api_version]
        return frame_answer(route, context.correlation_id, response) or []

    def forwarded(self, context: RequestContext, response: Any) -> Any:
        """The answer as one that the controller has made."""
        assert self._forwarding is not None
        version = context.api_version
        tags = b"\0" if APIS[context.api_key].response_header_version(version) else b""
        head = context.correlation_id.to_bytes(_CORRELATION_ID_BYTES, signed=True) + tags
        return self._forwarding.answer_type(head + bytes(encode(response, version)))

    def log_levels_altered(self) -> None:
        """Requests are logged from now on, or aren't any more."""
        self._routes.clear()

    def _unsupported_api_versions(self, correlation_id: int) -> Answer:
        """KIP-511: a version that isn't known is answered in version 0, with the range that is."""
        from broker.handlers.api_versions import unsupported_version

        return frame_answer(self._route_of_version_0(), correlation_id, unsupported_version())

    def _route_of_version_0(self) -> Route:
        route = self._routes.get(API_VERSIONS_KEY << 16) or self._route(API_VERSIONS_KEY, 0)
        assert route is not None
        return route

    def failed(self, connection: Connection, error: BaseException) -> None:
        """An error of ours while a request was served: the request's connection goes; a broken invariant stops us. No
        other does: a request that a handler stumbles over must not be able to end the broker."""
        if isinstance(error, KafkaError | OSError | MemoryError):  # the disk or the memory, not the program
            log.error("a request of %s failed: %s", connection, error or type(error).__name__)
            return
        log.error("a request of %s failed", connection, exc_info=error)
        if stops_the_broker(error):
            self._stop_on_failure(error)
