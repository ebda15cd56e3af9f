"""The channel to the current controller, and what uses it for clients of this broker: forwarded requests, and
missing topics that clients use.

A request is sent again until it is answered, or its time is up.

Source: `NodeToControllerChannelManager`, `NodeToControllerRequestThread`.
"""

from __future__ import annotations

import ipaddress
import logging
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from broker.environment.scheduler import Waker
from broker.network.answers import CloseConnectionError, ForwardedRequest
from broker.network.context import RequestContext
from broker.peers.peer import OnePeer, PeerSettings
from broker.security.authorizer import ANONYMOUS, Principal, TokenPrincipal
from protocol.apis import APIS, decode_request_header, encode_request_frame, response_body
from protocol.errors import CodecError, Error, KafkaError, error_name, error_of, tell_each
from protocol.messages.broker_to_controller import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.waiting import Later, carry_on, compute
from protocol.wire.codec import decode, decoder, encode
from protocol.wire.primitives import Bytes
from protocol.wire.schema import error_codes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.controller.metadata_log import MetadataLog
    from broker.controller.observer import LeaderEndpoint
    from broker.controller.topic_requests import Created
    from broker.environment.network import Network
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.network.connection import Connection
    from protocol.apis import RequestHeader
    from protocol.messages.topics import CreatableTopic
    from protocol.wire.schema import Message


log = logging.getLogger("barnabas.peers")


CONTROLLER_RETRY_S = 0.05
"""How long to wait before trying again. It doesn't grow."""


class ToController(Protocol):
    """A way to the controller for one request at a time: `ControllerChannel`, or `OwnController` in the same
    process."""

    trouble: str
    """What has kept the current request from being answered so far. Empty if nothing is known."""

    @property
    def is_busy(self) -> bool:
        """True while a request is in flight."""

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The first and last version of each API that the controller has, as far as it has reported them."""

    async def ask(self, request: Message, *, timeout_ms: int | None) -> Message: ...

    def stop(self) -> None: ...


class ControllerChannel:
    """One request at a time. Each purpose has a channel, and so a connection, of its own: a long request
    doesn't hold up other kinds."""

    def __init__(
        self,
        controller: Callable[[], LeaderEndpoint | None],
        settings: PeerSettings,
        network: Network,
        scheduler: Scheduler,
        *,
        why_unknown: Callable[[], str] = lambda: "",
    ) -> None:
        """`controller` returns the controller, as far as it is known. `why_unknown` says what keeps it from
        being known. Each answer may take `request_timeout_ms`."""
        self._controller = controller
        self._why_unknown = why_unknown
        self.trouble = ""
        self.is_busy = False
        self._time = scheduler.time
        self._asked = OnePeer(settings, network, scheduler)
        self._again = Waker(scheduler)
        self._request_timeout_ms = settings.request_timeout_ms

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        return {} if self._asked.peer is None else self._asked.peer.versions

    async def ask(self, request: Message, *, timeout_ms: int | None) -> Message:
        """Return the answer, with whatever error it has. After NOT_CONTROLLER anywhere in it, ask again, and
        by then perhaps another node.

        Raises KafkaError: UNSUPPORTED_VERSION; REQUEST_TIMED_OUT if there is no answer in time, with the
        trouble as its message. With `timeout_ms` None, there is no limit.
        """
        assert not self.is_busy, "one request at a time"
        self.is_busy, self.trouble = True, ""
        until_s = math.inf if timeout_ms is None else self._time() + timeout_ms / 1000
        try:
            while True:
                answer = await self._ask_once(request, until_s)
                if answer is not None:
                    return answer
                await self._again.wait(min(CONTROLLER_RETRY_S, until_s - self._time()))
                if self._time() >= until_s:
                    raise KafkaError(Error.REQUEST_TIMED_OUT, self.trouble or None)
        finally:
            self.is_busy = False

    async def _ask_once(self, request: Message, until_s: float) -> Message | None:
        """Ask once. Returns None if it has to be asked again; `trouble` says why."""
        controller = self._controller()
        if controller is None or not controller.host:
            self.trouble = self._why_unknown() or "no controller is known yet"
            return None
        left_ms = min(self._request_timeout_ms, (until_s - self._time()) * 1000)
        try:
            answer = await self._asked.at(controller.host, controller.port).ask(request, timeout_ms=left_ms)
        except KafkaError as error:
            if error.error is Error.UNSUPPORTED_VERSION:
                raise
            self.trouble = error.message or error.error.name
            return None
        if Error.NOT_CONTROLLER in error_codes(answer):
            self.trouble = "the node asked isn't the controller any more"
            return None
        return answer

    def stop(self) -> None:
        """Stop: nothing is answered any more."""
        self._asked.stop()
        self._again.stop()


# --- Missing topics that clients use (Kafka: `AutoTopicCreationManager`) ------------------------------------
# The answer comes once this broker has the topics, too; they arrive with the metadata. Kafka doesn't wait for
# that, since it has already sent its client away.


TIMEOUT_MS = 30_000
"""`request.timeout.ms`."""
LONGEST_WAIT_S = 3.0
"""How long to wait for the metadata of topics that the controller has created."""


class _Wanted:
    __slots__ = ("outcome", "topics")

    def __init__(self, topics: Sequence[CreatableTopic]) -> None:
        self.topics = topics
        self.outcome: Later[Created | KafkaError] = Later()


class TopicCreationRequests:
    """Requests to create topics, one after the other. Each waits for clients with one request in work, and no
    topic is requested twice (`AutoTopicCreation`)."""

    def __init__(self, to_controller: ToController, metadata: MetadataLog, scheduler: Scheduler) -> None:
        self._to_controller = to_controller
        self._metadata = metadata
        self._scheduler = scheduler
        self._waiting: deque[_Wanted] = deque()
        self._created: dict[_Wanted, tuple[Created, Scheduled]] = {}
        metadata.following.told.append(self._look)

    async def create(self, topics: Sequence[CreatableTopic]) -> Created | KafkaError:
        """Return the controller's result for each topic. This broker learns of the topics from the metadata.
        A request that isn't sent yet may be abandoned."""
        wanted = _Wanted(topics)
        self._waiting.append(wanted)
        wanted.outcome.on_abandon = partial(self._give_up, wanted)
        self._go_on()
        return await wanted.outcome

    def _give_up(self, wanted: _Wanted) -> None:
        if wanted in self._waiting:
            self._waiting.remove(wanted)

    def _go_on(self) -> None:
        if self._waiting and not self._to_controller.is_busy:
            carry_on(self._ask(self._waiting.popleft()))

    async def _ask(self, wanted: _Wanted) -> None:
        wanted.outcome.on_abandon = None
        request = CreateTopicsRequest(topics=[*wanted.topics], timeout_ms=TIMEOUT_MS)
        try:
            answer = await self._to_controller.ask(request, timeout_ms=TIMEOUT_MS)
        except KafkaError as refusal:
            self._go_on()
            wanted.outcome.reply(refusal)
            return
        self._go_on()
        created = _outcomes(wanted.topics, answer)
        if self._are_here(created):
            wanted.outcome.reply(created)
        else:
            late = self._scheduler.call_later(LONGEST_WAIT_S, partial(self._tell, wanted))
            self._created[wanted] = created, late

    def _are_here(self, created: Created) -> bool:
        image = self._metadata.image
        return not self._metadata.following.is_behind and all(
            result in image.topics_by_id
            if not isinstance(result, KafkaError)
            else topic.name in image.topics or result.error is not Error.TOPIC_ALREADY_EXISTS
            for topic, result in created
        )

    def _look(self) -> None:
        """Check the created topics: the metadata is followed, or begins to be. A callback may cause another
        check, which answers others."""
        tell_each([*self._created], self._tell_if_here, log, "a callback for a created topic failed")

    def _tell_if_here(self, wanted: _Wanted) -> None:
        if wanted in self._created and self._are_here(self._created[wanted][0]):
            self._tell(wanted)

    def _tell(self, wanted: _Wanted) -> None:
        created, late = self._created.pop(wanted)
        late.cancel()
        wanted.outcome.reply(created)

    def stop(self) -> None:
        """Stop: nothing is answered any more."""
        for _, late in self._created.values():
            late.cancel()
        self._created.clear()


def _outcomes(topics: Sequence[CreatableTopic], answer: Message) -> Created:
    assert isinstance(answer, CreateTopicsResponse)
    told = {result.name: result for result in answer.topics}
    found: Created = []
    for topic in topics:
        result = told.get(topic.name)
        if result is None:
            found.append(
                (topic, KafkaError(Error.UNKNOWN_SERVER_ERROR, "the controller's answer doesn't mention it"))
            )
        elif result.error_code:
            found.append((topic, KafkaError(error_of(result.error_code), result.error_message)))
        else:
            found.append((topic, result.topic_id))
    return found


# --------------------------------------------------------------------------------------------------------------
# Clients' requests for the controller, forwarded to it unchanged (KIP-590, Envelope): the sender as the
# controller sees it, the client's answer if the controller can't be asked, and the forwarding itself.
#
# Source: `ForwardingManagerImpl`, `RequestChannel.buildResponseSend`; `getErrorResponse` of each request.


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
        raise CodecError("a principal of no version that is known")
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
        answer.error_code = 0  # version 0 has no such field
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
tokens (38 to 40), its part is to check how the client has signed in (`KafkaApis.allowTokenRequests`)."""

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
    """Forwards one request after the other. Each that waits is the only one of its connection and ends with
    it, so their number is bounded."""

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
    """Return the throttle time in an answer whose first field it is. That is so for all but those about
    delegation tokens."""
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
