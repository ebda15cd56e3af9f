"""From a frame to its handler and back to bytes.

`protocol.apis` lists all APIs and their versions, `broker.handlers.HANDLERS` those that are served. ApiVersions, this
dispatch and the table in the docs derive from these two.
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
    from broker.peers.forwarding import Forwarding, Sender
    from broker.quotas import ClientQuotas
    from protocol.apis import Api


# --- How one version of one API is decoded, handled and encoded, and its answer framed ------------------------

PRODUCE_KEY = 0

# Small answers are joined into one object instead of some dozens, since many may wait together. A larger one is joined
# with its neighbours when it is written, if at all, and needs no copy before.
JOINED_CHUNKS_BYTES = 4 * 1024

# Topics, and partitions of one topic, of an answer that is encoded within the present turn.
SHORT_TOPICS = 20
SHORT_PARTITIONS = 1_000

# Size, correlation id and, in a flexible version, the empty list of tagged fields.
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
        """`handlers`: the names of the handlers' modules, by api key."""
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
        """Fields that are structs: these may have lists, unless they are null."""
        self.short_bytes = 0
        """A request of at most so many bytes has a short answer in any case."""
        if not self.has_lists and not self.structs:
            self.short_bytes = sys.maxsize
        elif self.shape is not None and self.shape.is_of_request:
            self.short_bytes = LIST_BYTES
        self.encode: Callable[[Any, list[Any]], None] = self._encode_first
        self.handle: Callable[..., Any] = module.handle
        self.handle_in_pieces: Callable[[RequestContext, Any], Any] = module.handle
        """The handler of a request with many entries. Observers see it as one request."""
        self.needs(None)
        self.head = (
            SIZE_AND_CORRELATION_ID if api.response_header_version(api_version) == 0 else _FLEXIBLE_HEAD
        )

    def needs(self, need: Need | None) -> None:
        """Set what requests wait for before they are handled, if for anything."""
        self.need = need
        self.internal_topic = None if need is None else need.internal_topic

    def _encode_first(self, response: Any, chunks: list[Any]) -> None:
        """Compile the encoder at the first answer: that takes 2 ms."""
        self.encode = cast("Callable[[Any, list[Any]], None]", encoder(self.response, self.api_version))
        self.encode(response, chunks)

    def decode_in_steps(self, frame: memoryview, pos: int) -> Waiting[tuple[Any, int]]:
        decode = decoder_in_steps(self._request, self.api_version)
        return bounded(self._request, decode(frame, pos, len(frame)))

    def encode_in_steps(self, response: Any, chunks: list[Any]) -> Iterator[None]:
        return encoder_in_steps(self.response, self.api_version)(response, chunks)

    def is_short(self, response: Any) -> bool:
        """True if the answer surely fits into the present turn: it has no lists, or few topics and partitions."""
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
    """The names of the lists of topics and partitions in an answer that has no other lists."""

    topics: str
    partitions: str
    last_version: int = LATEST
    is_of_request: bool = True
    """True if the answer has no more of them than the request."""


# By API, for those that clients call again and again.
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
    """A response as chunks: size, header, body; a small one is a single chunk.

    `encoded`: a chunk for the header and the body behind it, if it is encoded already."""
    chunks: list[Chunk] = [b""] if encoded is None else encoded
    if encoded is None:
        try:
            route.encode(response, chunks)
        except CodecError as error:
            raise RuntimeError(f"an answer can't be encoded: {error}") from error
    head = route.head
    size = sum(map(len, chunks)) + head.size
    chunks[0] = head.pack(size - _SIZE_BYTES, correlation_id)
    if size > JOINED_CHUNKS_BYTES:
        return chunks
    try:
        return [b"".join(chunks)]  # type: ignore[arg-type]
    except TypeError:
        # A chunk is a range of a file. Looking for one first would slow down every answer.
        return chunks


async def framed_in_steps(
    route: Route, correlation_id: int, response: Any, turn_is_over: Callable[[], bool]
) -> Answer:
    """As `frame_answer`, in turns, for an answer that may be long."""
    chunks: list[Chunk] = [b""]
    done = 1
    try:
        for _ in route.encode_in_steps(response, chunks):
            chunks[done:] = joined(chunks[done:])
            done = len(chunks)
            if turn_is_over():
                await turn()
    except CodecError as error:
        raise RuntimeError(f"an answer can't be encoded: {error}") from error
    return frame_answer(route, correlation_id, response, chunks)


# --------------------------------------------------------------------------------------------------------------
# The route of a request that goes to the controller as it came. The client gets the controller's answer as it is.

_CORRELATION_ID_BYTES = 4


class ForwardedRoute(Route):
    """The route of forwarded requests: it decodes and encodes nothing."""

    __slots__ = ()

    def __init__(
        self, api_version: int, forward: Callable[[Any, ForwardedRequest], Any], response: type[Any]
    ) -> None:
        """`response`: the class of what `forward` returns. Its `data` is the answer from its header on."""
        self.api_version = api_version
        self.decode = _whole
        self.encode = _as_it_is
        self.handle = forward
        self.needs(None)  # it needs nothing of this node
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
    """The request, copied: the receive buffer is used again."""
    return ForwardedRequest(bytes(frame[:end]), pos), end


def _as_it_is(response: Any, chunks: list[Any]) -> None:
    chunks.append(memoryview(response.data)[_CORRELATION_ID_BYTES:])


# --------------------------------------------------------------------------------------------------------------
# Requests that aren't handled yet: they are still being decoded, or they have come too early.


class Handles(Protocol):
    """The dispatcher, as seen by a request that comes back to it."""

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
        """Handle a request whose client has hung up."""
        ...


class DecodingRequest:
    """A request that is decoded in steps. It is handled even if the client hangs up meanwhile: it was sent whole."""

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
    """A request that waits until this node is ready for it.

    If the client hangs up, it is never handled, as if it had been refused. Only a Produce is handled all the same."""

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

LONG_FRAME_BYTES = 64 * 1024  # to decode a longer frame may take more than some milliseconds


def with_ports(handle: Callable[..., Any], node: Any) -> Callable[[RequestContext, Any], Any]:
    """The handler, bound to a node. It returns the response, or a `Later` if that has to wait.

    A coroutine goes on in the node's turns."""
    if iscoroutinefunction(handle):
        turns: Turns = node.turns
        return turns.driver(handle, node)
    return partial(handle, node)


class PendingRequest:
    """A request that is being handled and isn't answered yet (`answers.PendingAnswer`)."""

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
        self.handled_s = handled_s  # how long the handler took, if a quota counts it

    def when_answered(self, then: Callable[[], None]) -> None:
        self.later.when_answered(then)

    def take(self) -> Answer | EncodingAnswer:
        """The answer's chunks. Raises the error of the request, or of encoding its answer."""
        return self._dispatcher.finish(self)

    def abandon(self) -> None:
        """The client has hung up. A request that changes something goes on; if it fails, that is logged."""
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
"""Takes an api key and its handler, and returns the handler to use in its place."""


class Dispatcher:
    """Serves the requests of all connections."""

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
        """`node`: its attributes are the handlers' ports, by name. `forwarding`: the way to the controller, if that is
        another node. `early_requests`: requests that wait before they are handled, if any do. `handlers`: those of the
        served APIs."""
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
        """The answer to one request, or one that is still to come.

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
        """Handle a request whose client has hung up."""
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
        """As `serve`, for a client of another broker, which forwards its request: `data`, from the header on.

        The broker tells the client for how long it is throttled. Raises as `serve`, and NotAdmittedError if the API
        isn't `admitted`."""
        size = len(data)
        header = decode_request_header(data, 0, size)
        if header.api_key not in APIS:
            raise CodecError(f"there is no API of key {header.api_key}")
        if header.api_key not in admitted:
            raise NotAdmittedError(f"brokers don't forward api key {header.api_key}")
        route = self._routes.get(header.api_key << 16 | header.api_version & 0xFFFF)
        if route is None:
            route = self._route(header.api_key, header.api_version)
            assert route is not None  # only ApiVersions may have none
        context = sender.context(header)
        if size < LONG_FRAME_BYTES:
            return self.handle(route, context, route.decode(data, header.body_pos, size)[0], size)
        decoded = self._turns.answer(route.decode_in_steps(data, header.body_pos), context, to_the_end=True)
        if isinstance(decoded, tuple):
            return self.handle(route, context, decoded[0], size)
        return DecodingRequest(self, route, context, decoded, size)

    def is_of_many(self, frame: memoryview) -> bool:
        """True if the Produce in the frame has many topics and partitions.

        This decodes one step and drops the result. A frame that makes no sense has none."""
        size = len(frame)
        try:
            api_key, api_version, _, _, body_pos = decode_request_header(frame, 0, size)
            route = self._routes.get(api_key << 16 | api_version & 0xFFFF) or self._route(
                api_key, api_version
            )
            assert route is not None  # only ApiVersions may have none
            route.decode_in_steps(frame, body_pos).send(None)
        except (CodecError, CloseConnectionError):
            return False
        except StopIteration as end:
            return produced(end.value[0]) > PER_TURN
        return True

    def handle(
        self, route: Route, context: RequestContext, request: Any, frame_bytes: int
    ) -> Answer | PendingAnswer:
        """The answer to a decoded request. Raises CloseConnectionError."""
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
        """The answer that has come, charged to quotas and encoded. Raises the error of the request."""
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
        """Report how long the request in the frame held the loop, if that was too long."""
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
        """The route of an API's version; None for ApiVersions in an unknown version."""
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
        """The handler, wrapped from inside out: in the faults of a test, in the request log, in the metrics."""
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
        """Count each request from now on."""
        self._counted = counted
        self._routes.clear()

    def interpose(self, interposed: Interposing | None) -> None:
        """Replace each handler by what this returns, from now on. Observers stay around it."""
        self._interposed = interposed
        self._routes.clear()

    def frame(self, context: RequestContext, response: Any) -> list[Chunk]:
        """The chunks of an answer. Bytes in files are ranges of these."""
        route = self._routes[context.api_key << 16 | context.api_version]
        return frame_answer(route, context.correlation_id, response) or []

    def forwarded(self, context: RequestContext, response: Any) -> Any:
        """The answer in the form of one that the controller has sent."""
        assert self._forwarding is not None
        version = context.api_version
        tags = b"\0" if APIS[context.api_key].response_header_version(version) else b""
        head = context.correlation_id.to_bytes(_CORRELATION_ID_BYTES, signed=True) + tags
        return self._forwarding.answer_type(head + bytes(encode(response, version)))

    def log_levels_altered(self) -> None:
        """Make the routes anew: the request log may have been turned on or off."""
        self._routes.clear()

    def _unsupported_api_versions(self, correlation_id: int) -> Answer:
        """The answer to ApiVersions in an unknown version: in version 0, with the known range (KIP-511)."""
        from broker.handlers.api_versions import unsupported_version

        return frame_answer(self._route_of_version_0(), correlation_id, unsupported_version())

    def _route_of_version_0(self) -> Route:
        route = self._routes.get(API_VERSIONS_KEY << 16) or self._route(API_VERSIONS_KEY, 0)
        assert route is not None
        return route

    def failed(self, connection: Connection, error: BaseException) -> None:
        """Log that a request failed with an error of the broker. Its connection closes.

        Only a broken invariant stops the broker: a request that a handler stumbles over must not end it."""
        if isinstance(error, KafkaError | OSError | MemoryError):  # the disk or the memory, not the program
            log.error("a request of %s failed: %s", connection, error or type(error).__name__)
            return
        log.error("a request of %s failed", connection, exc_info=error)
        if stops_the_broker(error):
            self._stop_on_failure(error)
