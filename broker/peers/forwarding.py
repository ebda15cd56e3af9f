"""Clients' requests for the controller, forwarded to it unchanged (KIP-590, Envelope).

This file has three parts: the client as the controller sees it, the answers to a client if the controller can't be
asked, and the forwarding itself.

Source: `ForwardingManagerImpl`, `RequestChannel.buildResponseSend`; `getErrorResponse` of each request.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.network.answers import CloseConnectionError, ForwardedRequest
from broker.network.context import RequestContext
from broker.security.authorizer import ANONYMOUS, Principal, TokenPrincipal
from protocol.apis import APIS, decode_request_header, encode_request_frame, response_body
from protocol.errors import CodecError, Error, KafkaError, error_name
from protocol.messages.broker_to_controller import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse
from protocol.waiting import Later, carry_on, compute
from protocol.wire.codec import decode, decoder, encode
from protocol.wire.primitives import Bytes

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.network.connection import Connection
    from broker.peers.controller_channel import ToController
    from protocol.apis import RequestHeader
    from protocol.wire.schema import Message


log = logging.getLogger("barnabas.peers")

_VERSION = b"\0\0"


class Sender(NamedTuple):
    """The connection that a forwarded request came by, and the client that sent it."""

    connection: Connection
    principal: Principal
    host: str

    def context(self, header: RequestHeader) -> ForwardedContext:
        return ForwardedContext(self, header)


class ForwardedContext(RequestContext):
    """The context of a client at another node."""

    is_forwarded = True

    __slots__ = ("_sender",)

    def __init__(self, sender: Sender, header: RequestHeader) -> None:
        super().__init__(
            sender.connection, header.api_key, header.api_version, header.correlation_id, header.client_id
        )
        self._sender = sender

    @property
    def principal(self) -> Principal:
        """The client, as its broker identified it."""
        return self._sender.principal

    def mute(self, throttle_ms: int) -> None:
        """Do nothing: the forwarding broker mutes its client. This connection carries others' requests, too
        (`RequestHandlerHelper.sendMaybeThrottle`)."""

    @property
    def peer_host(self) -> str:
        """The client's address."""
        return self._sender.host


def principal_of(data: Bytes | None) -> Principal:
    """Decode a principal like `DefaultKafkaPrincipalBuilder.deserialize`. Raises CodecError."""
    if data is None or bytes(data[:2]) != _VERSION:
        raise CodecError("a principal of an unknown version")
    found = decode(DefaultPrincipalData, 0, bytes(data[2:]))
    return (TokenPrincipal if found.token_authenticated else Principal)(found.type, found.name)


# --- Answers if the controller can't be asked: the error, for each item of the client's request -------------

_CREATE_TOKEN = 38
_ELECT_LEADERS = 43

MakeAnswer = Callable[..., "Message"]
Shape = Callable[[Any, MakeAnswer, int], "Message"]
"""Makes an error answer from a request, the answer's class and the error's code."""


def refusal(api_key: int, version: int, request: Message, error: Error) -> Message:
    """Return an error answer in the form of the API."""
    answer = _SHAPES[api_key](request, APIS[api_key].response, int(error))
    if api_key == _CREATE_TOKEN and version < 3:
        answer.token_requester_principal_type = ""  # type: ignore[attr-defined]
        answer.token_requester_principal_name = ""  # type: ignore[attr-defined]
    if api_key == _ELECT_LEADERS and not version:
        answer.error_code = 0  # type: ignore[attr-defined]  # version 0 has no such field
    return answer


def _of_all(request: Any, response: MakeAnswer, error_code: int) -> Message:
    """Return one error for the whole request."""
    return response(error_code=error_code)


def _token_not_made(request: Any, response: MakeAnswer, error_code: int) -> Message:
    """Return the error without names (`CreateDelegationTokenRequest.getErrorResponse`)."""
    return response(
        error_code=error_code,
        principal_type=ANONYMOUS.type,
        principal_name=ANONYMOUS.name,
        token_requester_principal_type=ANONYMOUS.type,
        token_requester_principal_name=ANONYMOUS.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


def _of_each(entries: str, results: str, *named: str) -> Shape:
    """Return a function that makes an error for each entry. The fields `named` are copied from the entry."""

    def answer(request: Any, response: MakeAnswer, error_code: int) -> Message:
        return response(
            **{
                results: [
                    _entry_of(response, results)(
                        error_code=error_code, **{name: getattr(entry, name) for name in named}
                    )
                    for entry in getattr(request, entries)
                ]
            }
        )

    return answer


def _entry_of(struct: Any, name: str) -> Any:
    """Return the type of a list's entries, by the list's name."""
    return next(field.element for field in struct.FIELDS if field.name == name)


def _deleted(request: Any, response: MakeAnswer, error_code: int) -> Message:
    result = _entry_of(response, "responses")
    by_name = [result(name=name, error_code=error_code) for name in request.topic_names]
    return response(
        responses=by_name
        + [result(name=each.name, topic_id=each.topic_id, error_code=error_code) for each in request.topics]
    )


def _elected(request: Any, response: MakeAnswer, error_code: int) -> Message:
    topic = _entry_of(response, "replica_election_results")
    partition = _entry_of(topic, "partition_result")
    return response(
        error_code=error_code,
        replica_election_results=[
            topic(
                topic=each.topic,
                partition_result=[
                    partition(partition_id=index, error_code=error_code) for index in each.partitions
                ],
            )
            for each in request.topic_partitions or ()
        ],
    )


def _reassigned(request: Any, response: MakeAnswer, error_code: int) -> Message:
    topic = _entry_of(response, "responses")
    partition = _entry_of(topic, "partitions")
    return response(
        error_code=error_code,
        responses=[
            topic(
                name=each.name,
                partitions=[
                    partition(partition_index=of_topic.partition_index, error_code=error_code)
                    for of_topic in each.partitions
                ],
            )
            for each in request.topics
        ],
    )


def _with_users(request: Any, response: MakeAnswer, error_code: int) -> Message:
    result = _entry_of(response, "results")
    users = dict.fromkeys(each.name for each in [*request.deletions, *request.upsertions])
    return response(results=[result(user=user, error_code=error_code) for user in users])


_SHAPES: dict[int, Shape] = {
    19: _of_each("topics", "topics", "name"),
    20: _deleted,
    30: _of_each("creations", "results"),
    31: _of_each("filters", "filter_results"),
    33: _of_each("resources", "responses", "resource_type", "resource_name"),
    37: _of_each("topics", "results", "name"),
    _CREATE_TOKEN: _token_not_made,
    39: _of_all,
    40: _of_all,
    _ELECT_LEADERS: _elected,
    44: _of_each("resources", "responses", "resource_type", "resource_name"),
    45: _reassigned,
    46: _of_all,
    49: _of_each("entries", "entries", "entity"),
    51: _with_users,
    55: _of_all,
    57: _of_all,
    64: _of_all,
    94: _of_all,
    80: _of_all,
    81: _of_all,
}
"""By key: each API that clients use and that is forwarded (Kafka: `ApiKeys.forwardable`)."""

FORWARDED = _SHAPES.keys()

_ALLOCATE_PRODUCER_IDS = 67
ENVELOPED = frozenset({*FORWARDED, _ALLOCATE_PRODUCER_IDS})
"""The APIs whose requests a controller accepts in an envelope. Brokers' own requests for producer ids are
among them."""


# --- Forwarding ---------------------------------------------------------------------------------------------


FORWARDING_TIMEOUT_MS = 60_000
"""Counted from a request's arrival (Kafka: `NodeToControllerChannelManagerImpl`, `retryTimeoutMs`)."""


_PREPROCESSED = (33, 38, 39, 40, 44)
"""The APIs for which the broker does a part itself, and forwards the rest: `Forwarding.ask`. For delegation
tokens (38 to 40), the broker checks how the client has signed in (`KafkaApis.allowTokenRequests`)."""

_SIZE_BYTES = _CORRELATION_ID_BYTES = _INT32_BYTES = 4


class ForwardedAnswer:
    """The controller's answer, header and body. This node throttles the client for as long as the answer
    says: the controller can't do that (Kafka: `RequestHandlerHelper.sendForwardedResponse`)."""

    __slots__ = ("data", "throttle_time_ms")

    def __init__(self, data: Bytes, throttle_time_ms: int = 0) -> None:
        self.data = data
        self.throttle_time_ms = throttle_time_ms


class _Waiting(NamedTuple):
    """A request that isn't sent yet."""

    context: RequestContext
    request: ForwardedRequest
    until_s: float


class Forwarding:
    """Forwards one request after the other. A connection has at most one request waiting here, which is dropped
    when the connection ends. So their number is bounded."""

    answer_type = ForwardedAnswer
    """The type of the answers of `forward`."""

    def __init__(self, to_controller: ToController, scheduler: Scheduler) -> None:
        self._to_controller = to_controller
        self._time = scheduler.time
        self._waiting: dict[Later[ForwardedAnswer], _Waiting] = {}
        self._is_asking = False

    def served(self, api_key: int, first: int, last: int) -> tuple[int, int] | None:
        """Return the versions of an API to report to clients, from those that this broker knows. If the API
        is forwarded, the controller has to know them, too, as far as it has reported (Kafka:
        `intersectForwardableApis`)."""
        known = self._to_controller.versions
        if api_key not in FORWARDED or not known:
            return first, last
        theirs_first, theirs_last = known.get(api_key, (0, -1))
        first, last = max(first, theirs_first), min(last, theirs_last)
        return (first, last) if first <= last else None

    def forwards(self, api_key: int) -> bool:
        """True if requests of the API are forwarded unchanged."""
        return api_key in FORWARDED and api_key not in _PREPROCESSED

    def forward(
        self, context: RequestContext, request: ForwardedRequest
    ) -> Later[ForwardedAnswer] | ForwardedAnswer:
        """Ask the controller. If that fails, the answer is REQUEST_TIMED_OUT if it doesn't answer in time,
        otherwise UNKNOWN_SERVER_ERROR. If it doesn't know the version, the client's connection is closed."""
        later: Later[ForwardedAnswer] = Later()
        self._waiting[later] = _Waiting(context, request, self._time() + FORWARDING_TIMEOUT_MS / 1000)
        later.on_abandon = partial(self._waiting.pop, later, None)
        if not self._is_asking:
            carry_on(self._ask_all())
        return later.answer()

    async def ask(self, context: RequestContext, request: Message) -> Message:
        """Return the controller's answer to the rest of a client's request. Failures are answered as by
        `forward`. Request and answer are in the client's version."""
        asked = await compute(partial(_framed, context, request))
        answer = self.forward(context, asked)
        if isinstance(answer, Later):
            answer = await answer
        return await compute(partial(_decoded, context, request, answer))

    async def _ask_all(self) -> None:
        """Send one request after the other, until none waits."""
        self._is_asking = True
        while self._waiting:
            later = next(iter(self._waiting))
            waiting = self._waiting.pop(later)
            answer = await self._ask(waiting)
            try:
                _tell(later, waiting, answer)
            except BaseException:
                carry_on(self._ask_all())  # for the others
                raise
        self._is_asking = False

    async def _ask(self, waiting: _Waiting) -> Message | KafkaError:
        try:
            envelope = _envelope(waiting)
        except (ValueError, CodecError) as error:
            log.error("can't put a request into an envelope for the controller: %s", error)
            return KafkaError(Error.UNKNOWN_SERVER_ERROR)
        left_ms = max(0, round((waiting.until_s - self._time()) * 1000))
        try:
            return await self._to_controller.ask(envelope, timeout_ms=left_ms)
        except KafkaError as refusal:
            return refusal


def _envelope(waiting: _Waiting) -> EnvelopeRequest:
    """Put a request into an envelope. Raises ValueError, CodecError."""
    return EnvelopeRequest(
        request_data=waiting.request.data,
        request_principal=_encoded(waiting.context.principal),
        client_host_address=ipaddress.ip_address(waiting.context.peer_host).packed,
    )


def _tell(later: Later[ForwardedAnswer], waiting: _Waiting, answer: Message | KafkaError) -> None:
    error = Error.UNKNOWN_SERVER_ERROR
    if isinstance(answer, KafkaError):
        if answer.error is Error.REQUEST_TIMED_OUT:
            error = answer.error
    else:
        assert isinstance(answer, EnvelopeResponse)
        if answer.error_code == Error.UNSUPPORTED_VERSION:
            # Another controller is active by now: the client has to learn its versions.
            later.fail(CloseConnectionError("the controller doesn't know this version of the request"))
            return
        if not answer.error_code and answer.response_data:
            data = answer.response_data
            later.reply(ForwardedAnswer(data, _throttle_ms(waiting.context, data)))
            return
        if answer.error_code:
            log.warning("the controller refuses a forwarded request: %s", error_name(answer.error_code))
    try:
        refused = _refusal(waiting, error)
    except CodecError as nonsense:
        later.fail(nonsense)
        return
    later.reply(refused)


def _throttle_ms(context: RequestContext, data: Bytes) -> int:
    """Return the throttle time of an answer. It is the first field in all APIs except those for delegation
    tokens."""
    api, version = APIS[context.api_key], context.api_version
    if not api.family:
        return 0
    first = next((field for field in api.response.FIELDS if field.in_version(version)), None)
    if first is None or first.name != "throttle_time_ms":
        return 0
    begins = _CORRELATION_ID_BYTES + api.response_header_version(version)
    return int.from_bytes(data[begins : begins + _INT32_BYTES], "big", signed=True)


def _refusal(waiting: _Waiting, error: Error) -> ForwardedAnswer:
    """Return an error as if the controller had sent it."""
    context, (data, body_at) = waiting.context, waiting.request
    version = context.api_version
    api = APIS[context.api_key]
    request, _ = decoder(api.request, version)(memoryview(data), body_at, len(data))
    message = refusal(context.api_key, version, request, error)
    header = context.correlation_id.to_bytes(4, "big", signed=True)
    if api.response_header_version(version):
        header += b"\0"  # no tagged fields
    return ForwardedAnswer(header + bytes(encode(message, version)))


def _framed(context: RequestContext, request: Message) -> ForwardedRequest:
    """Encode a request, with the header of the client's request."""
    frame = encode_request_frame(request, context.api_version, context.correlation_id, context.client_id)
    data = frame[_SIZE_BYTES:]
    return ForwardedRequest(data, decode_request_header(data, 0, len(data)).body_pos)


def _decoded(context: RequestContext, request: Message, answer: ForwardedAnswer) -> Message:
    version = context.api_version
    try:
        body_at = response_body(answer.data, type(request), version, context.correlation_id)
        return decode(APIS[context.api_key].response, version, answer.data, body_at)
    except CodecError as error:
        log.error("the controller's answer to a forwarded request is invalid: %s", error)
    return refusal(context.api_key, version, request, Error.UNKNOWN_SERVER_ERROR)


def _encoded(principal: Principal) -> bytes:
    """Encode a principal like Kafka's `DefaultKafkaPrincipalBuilder`: a version, then the message."""
    data = DefaultPrincipalData(
        type=principal.type, name=principal.name, token_authenticated=principal.token_authenticated
    )
    return b"\0\0" + bytes(encode(data, 0))
