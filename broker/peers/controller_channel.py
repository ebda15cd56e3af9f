"""The way to the controller, whoever it is by now, and what goes by it for clients of this broker: blocks of producer
ids, topics that are used and aren't there.

A request goes to it again until it is answered, or its time is up.
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
"""How soon it is tried again, without growth."""


class ToController(Protocol):
    """A way to the controller, one request at a time: `ControllerChannel`, or `OwnController` in the same process."""

    trouble: str
    """What has kept the request that is under way from being answered so far; empty where nothing is known of it."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The first and last one of each API that the controller has, as far as it has told them."""

    async def ask(self, request: Message, *, timeout_ms: int | None) -> Message: ...

    def stop(self) -> None: ...


class ControllerChannel:
    """One request at a time. Channels of different purposes are connections of their own: a request that takes long
    holds up none of another kind."""

    def __init__(
        self,
        controller: Callable[[], LeaderEndpoint | None],
        settings: PeerSettings,
        network: Network,
        scheduler: Scheduler,
        *,
        why_unknown: Callable[[], str] = lambda: "",
    ) -> None:
        """`controller` says who it is, as far as that is known; `why_unknown` what keeps it from being known.
        Each answer is waited for as long as `request_timeout_ms` says."""
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
        """The answer, whatever error it has, but for NOT_CONTROLLER anywhere in it: then it is asked again, of whoever
        it is by then. Raises KafkaError: UNSUPPORTED_VERSION, and REQUEST_TIMED_OUT where there is no answer in time,
        whose message is the trouble there was; `timeout_ms` None: it is asked for as long as it takes."""
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
        """None: it is to be asked again, for the trouble there is."""
        controller = self._controller()
        if controller is None or not controller.host:
            self.trouble = self._why_unknown() or "no controller has said yet where it is"
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
            self.trouble = "whoever was asked is the controller no more"
            return None
        return answer

    def stop(self) -> None:
        """Nobody is told of anything any more."""
        self._asked.stop()
        self._again.stop()


# --- Topics that are used and aren't there (Kafka: `AutoTopicCreationManager`) ------------------------------
#
# Who asks is told once they are there here, too: the metadata that has them comes by itself. Kafka doesn't wait for
# that, since it has sent its client away before.


TIMEOUT_MS = 30_000
"""`request.timeout.ms`."""
LONGEST_WAIT_S = 3.0
"""For the metadata of topics that the controller has created."""


class _Wanted:
    __slots__ = ("outcome", "topics")

    def __init__(self, topics: Sequence[CreatableTopic]) -> None:
        self.topics = topics
        self.outcome: Later[Created | KafkaError] = Later()


class TopicCreationRequests:
    """One after the other. Each waits in the name of clients that have one request in work; the same topic isn't asked
    for twice (`AutoTopicCreation`)."""

    def __init__(self, to_controller: ToController, metadata: MetadataLog, scheduler: Scheduler) -> None:
        self._to_controller = to_controller
        self._metadata = metadata
        self._scheduler = scheduler
        self._waiting: deque[_Wanted] = deque()
        self._created: dict[_Wanted, tuple[Created, Scheduled]] = {}
        metadata.following.told.append(self._look)

    async def create(self, topics: Sequence[CreatableTopic]) -> Created | KafkaError:
        """What the controller has made of each; this broker learns of the topics from the metadata. What isn't sent yet
        may be given up."""
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
        """The metadata is followed, or begins to be. Who is told may have it looked again, and others told in that."""
        tell_each([*self._created], self._tell_if_here, log, "it can't be told that a topic is there")

    def _tell_if_here(self, wanted: _Wanted) -> None:
        if wanted in self._created and self._are_here(self._created[wanted][0]):
            self._tell(wanted)

    def _tell(self, wanted: _Wanted) -> None:
        created, late = self._created.pop(wanted)
        late.cancel()
        wanted.outcome.reply(created)

    def stop(self) -> None:
        """Nobody is told anything any more."""
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
            found.append((topic, KafkaError(Error.UNKNOWN_SERVER_ERROR, "the controller says nothing of it")))
        elif result.error_code:
            found.append((topic, KafkaError(error_of(result.error_code), result.error_message)))
        else:
            found.append((topic, result.topic_id))
    return found


# --------------------------------------------------------------------------------------------------------------
# What a client asks of the controller, sent on to it as it came (KIP-590, Envelope): whose it is at the
# controller,
#
# what the client is told where that can't be asked, and the way there.
#
# Source: `ForwardingManagerImpl`, `RequestChannel.buildResponseSend`; `getErrorResponse` of each request.


_VERSION = b"\0\0"


class Sender(NamedTuple):
    """By whose connection it came, and whose it is."""

    connection: Connection
    principal: Principal
    host: str

    def context(self, header: RequestHeader) -> ForwardedContext:
        return ForwardedContext(self, header)


class ForwardedContext(RequestContext):
    """The client's, who is at another node."""

    is_forwarded = True

    __slots__ = ("_sender",)

    def __init__(self, sender: Sender, header: RequestHeader) -> None:
        super().__init__(
            sender.connection, header.api_key, header.api_version, header.correlation_id, header.client_id
        )
        self._sender = sender

    @property
    def principal(self) -> Principal:
        """The client, as its broker knows it."""
        return self._sender.principal

    def mute(self, throttle_ms: int) -> None:
        """The broker that handed it on does so, by what it is told: its connection is others' too
        (`RequestHandlerHelper.sendMaybeThrottle`)."""

    @property
    def peer_host(self) -> str:
        """The client's address."""
        return self._sender.host


def principal_of(data: Bytes | None) -> Principal:
    """As `DefaultKafkaPrincipalBuilder.deserialize`. Raises CodecError."""
    if data is None or bytes(data[:2]) != _VERSION:
        raise CodecError("a principal of no version that is known")
    found = decode(DefaultPrincipalData, 0, bytes(data[2:]))
    return (TokenPrincipal if found.token_authenticated else Principal)(found.type, found.name)


# --- Where the controller can't be asked: the error, of each thing that the client asked for ----------------

_CREATE_TOKEN = 38
_ELECT_LEADERS = 43

MakeAnswer = Callable[..., "Message"]
Shape = Callable[[Any, MakeAnswer, int], "Message"]
"""The answer to a request, which it is given with the class of the answer and an error's code."""


def refusal(api_key: int, version: int, request: Message, error: Error) -> Message:
    """In the form that the API has for it."""
    answer = _SHAPES[api_key](request, APIS[api_key].response, int(error))
    if api_key == _CREATE_TOKEN and version < 3:
        answer.token_requester_principal_type = ""  # type: ignore[attr-defined]
        answer.token_requester_principal_name = ""  # type: ignore[attr-defined]
    if api_key == _ELECT_LEADERS and not version:
        answer.error_code = 0  # type: ignore[attr-defined]  # it has none yet
    return answer


def _of_all(request: Any, response: MakeAnswer, error_code: int) -> Message:
    """One error for the whole."""
    return response(error_code=error_code)


def _token_not_made(request: Any, response: MakeAnswer, error_code: int) -> Message:
    """It names nobody (`CreateDelegationTokenRequest.getErrorResponse`)."""
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
    """An error for each entry, whose fields of these names are those of the entry."""

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
    """What a list's entries are, by the list's name."""
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
"""By the key of each API that clients ask and that is forwarded (Kafka: `ApiKeys.forwardable`)."""

FORWARDED = _SHAPES.keys()

_ALLOCATE_PRODUCER_IDS = 67
ENVELOPED = frozenset({*FORWARDED, _ALLOCATE_PRODUCER_IDS})
"""Of which APIs a controller takes a request in an envelope: brokers' own requests for producer ids, too."""


# --- The way there ------------------------------------------------------------------------------------------


FORWARDING_TIMEOUT_MS = 60_000
"""From when it came (Kafka: `NodeToControllerChannelManagerImpl`, `retryTimeoutMs`)."""


_PREPROCESSED = (33, 38, 39, 40, 44)
"""Of these APIs the broker that is asked does a part, and what is left goes to the controller: `Forwarding.ask`. Of
delegation tokens (38 to 40) that is to see how the client has signed in (`KafkaApis.allowTokenRequests`)."""

_SIZE_BYTES = _CORRELATION_ID_BYTES = _INT32_BYTES = 4


class ForwardedAnswer:
    """The controller's, header and body. For as long as it says the client is throttled here, too: it can't do that
    itself (Kafka: `RequestHandlerHelper.sendForwardedResponse`)."""

    __slots__ = ("data", "throttle_time_ms")

    def __init__(self, data: Bytes, throttle_time_ms: int = 0) -> None:
        self.data = data
        self.throttle_time_ms = throttle_time_ms


class _Waiting(NamedTuple):
    """One that isn't asked yet."""

    context: RequestContext
    request: ForwardedRequest
    until_s: float


class Forwarding:
    """One request after the other. Each that waits is a connection's only one, and goes with it, so that they are
    bounded."""

    answer_type = ForwardedAnswer
    """Of what `forward` answers."""

    def __init__(self, to_controller: ToController, scheduler: Scheduler) -> None:
        self._to_controller = to_controller
        self._time = scheduler.time
        self._waiting: dict[Later[ForwardedAnswer], _Waiting] = {}
        self._is_asking = False

    def served(self, api_key: int, first: int, last: int) -> tuple[int, int] | None:
        """The versions of an API that clients are told, of those that this broker knows: of one that is forwarded the
        controller has to know them, too, as far as it has told (Kafka: `intersectForwardableApis`)."""
        known = self._to_controller.versions
        if api_key not in FORWARDED or not known:
            return first, last
        theirs_first, theirs_last = known.get(api_key, (0, -1))
        first, last = max(first, theirs_first), min(last, theirs_last)
        return (first, last) if first <= last else None

    def forwards(self, api_key: int) -> bool:
        """Whether requests of the API go to the controller as they came."""
        return api_key in FORWARDED and api_key not in _PREPROCESSED

    def forward(
        self, context: RequestContext, request: ForwardedRequest
    ) -> Later[ForwardedAnswer] | ForwardedAnswer:
        """Asks the controller. What it can't be asked is refused: REQUEST_TIMED_OUT where it doesn't answer in time,
        else UNKNOWN_SERVER_ERROR; the connection is closed where it doesn't know the version."""
        later: Later[ForwardedAnswer] = Later()
        self._waiting[later] = _Waiting(context, request, self._time() + FORWARDING_TIMEOUT_MS / 1000)
        later.on_abandon = partial(self._waiting.pop, later, None)
        if not self._is_asking:
            carry_on(self._ask_all())
        return later.answer()

    async def ask(self, context: RequestContext, request: Message) -> Message:
        """The controller's answer to what is left of a client's request; what it can't be asked is refused as by
        `forward`. Both are in the client's version."""
        asked = await compute(partial(_framed, context, request))
        answer = self.forward(context, asked)
        if isinstance(answer, Later):
            answer = await answer
        return await compute(partial(_decoded, context, request, answer))

    async def _ask_all(self) -> None:
        """One after the other, until nobody waits."""
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
            log.error("a request can't be put into an envelope for the controller: %s", error)
            return KafkaError(Error.UNKNOWN_SERVER_ERROR)
        left_ms = max(0, round((waiting.until_s - self._time()) * 1000))
        try:
            return await self._to_controller.ask(envelope, timeout_ms=left_ms)
        except KafkaError as refusal:
            return refusal


def _envelope(waiting: _Waiting) -> EnvelopeRequest:
    """Raises ValueError, CodecError."""
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
            # the controller is another one by now, and the client has to find out what it knows
            later.fail(CloseConnectionError("the controller doesn't know this version of the request"))
            return
        if not answer.error_code and answer.response_data:
            data = answer.response_data
            later.reply(ForwardedAnswer(data, _throttle_ms(waiting.context, data)))
            return
        if answer.error_code:
            log.warning("the controller refuses what is forwarded: %s", error_name(answer.error_code))
    try:
        refused = _refusal(waiting, error)
    except CodecError as nonsense:
        later.fail(nonsense)
        return
    later.reply(refused)


def _throttle_ms(context: RequestContext, data: Bytes) -> int:
    """What the answer says, where that stands at its beginning: it does but for those about delegation tokens."""
    api, version = APIS[context.api_key], context.api_version
    if not api.family:
        return 0
    first = next((field for field in api.response.FIELDS if field.in_version(version)), None)
    if first is None or first.name != "throttle_time_ms":
        return 0
    begins = _CORRELATION_ID_BYTES + api.response_header_version(version)
    return int.from_bytes(data[begins : begins + _INT32_BYTES], "big", signed=True)


def _refusal(waiting: _Waiting, error: Error) -> ForwardedAnswer:
    """As if the controller had answered so."""
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
    """With the header of the one that came."""
    frame = encode_request_frame(request, context.api_version, context.correlation_id, context.client_id)
    data = frame[_SIZE_BYTES:]
    return ForwardedRequest(data, decode_request_header(data, 0, len(data)).body_pos)


def _decoded(context: RequestContext, request: Message, answer: ForwardedAnswer) -> Message:
    version = context.api_version
    try:
        body_at = response_body(answer.data, type(request), version, context.correlation_id)
        return decode(APIS[context.api_key].response, version, answer.data, body_at)
    except CodecError as error:
        log.error("the controller's answer to what was forwarded makes no sense: %s", error)
    return refusal(context.api_key, version, request, Error.UNKNOWN_SERVER_ERROR)


def _encoded(principal: Principal) -> bytes:
    """As Kafka's `DefaultKafkaPrincipalBuilder` has it: its version, and the message."""
    data = DefaultPrincipalData(
        type=principal.type, name=principal.name, token_authenticated=principal.token_authenticated
    )
    return b"\0\0" + bytes(encode(data, 0))
