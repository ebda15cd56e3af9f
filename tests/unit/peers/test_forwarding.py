"""Clients' requests that go to a controller elsewhere: the answer, in the client's version, and what happens without an
answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.network.answers import CloseConnectionError, ForwardedRequest
from broker.peers.forwarding import (
    FORWARDED,
    FORWARDING_TIMEOUT_MS,
    ForwardedAnswer,
    Forwarding,
    refusal,
)
from broker.security.authorizer import ANONYMOUS
from protocol.apis import APIS
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.broker_to_controller import EnvelopeRequest, EnvelopeResponse
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.waiting import Later
from protocol.wire.codec import decode, encode
from protocol.wire.schema import error_codes
from tests.support.controller_channel import Channel, Timers

HEADER = b"the header"
CREATE_TOPICS, ELECT_LEADERS = 19, 43
DECIDED = sorted(FORWARDED)


def context(api_key: int, version: int, correlation_id: int = 7) -> Any:
    return SimpleNamespace(
        api_key=api_key,
        api_version=version,
        correlation_id=correlation_id,
        principal=ANONYMOUS,
        peer_host="127.0.0.1",
    )


class Forwarded:
    def __init__(self) -> None:
        self.channel, self.timers = Channel(), Timers()
        self.forwarding = Forwarding(self.channel, self.timers)

    def ask(self, request: Any, version: int, api_key: int = CREATE_TOPICS) -> Any:
        data = HEADER + bytes(encode(request, version))
        return self.forwarding.forward(context(api_key, version), ForwardedRequest(data, len(HEADER)))


def topics(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in names])


def result(later: Any) -> Any:
    assert isinstance(later, Later)
    later.when_answered(lambda: None)
    return later.result()


def refused(answer: ForwardedAnswer, api_key: int, version: int) -> Any:
    data = memoryview(answer.data)
    assert bytes(data[:4]) == (7).to_bytes(4, "big")
    body_at = 5 if APIS[api_key].response_header_version(version) else 4
    return decode(APIS[api_key].response, version, data, body_at)


def test_the_controller_gets_the_request_as_it_came_and_the_client_its_answer() -> None:
    node = Forwarded()
    answer = node.ask(topics("t"), 7)
    asked = node.channel.request
    assert isinstance(asked, EnvelopeRequest)
    assert bytes(asked.request_data) == HEADER + bytes(encode(topics("t"), 7))
    assert bytes(asked.client_host_address) == bytes([127, 0, 0, 1])
    assert node.channel.timeout_ms == FORWARDING_TIMEOUT_MS
    node.channel.answer(EnvelopeResponse(response_data=b"told"))
    assert result(answer).data == b"told"


@pytest.mark.parametrize("version", [5, 7])
def test_a_client_throttled_by_the_controller_is_throttled_here(version: int) -> None:
    node = Forwarded()
    answer = node.ask(topics("t"), version)
    body = bytes(encode(CreateTopicsResponse(throttle_time_ms=250), version))
    header = bytes(4 + APIS[CREATE_TOPICS].response_header_version(version))
    node.channel.answer(EnvelopeResponse(response_data=header + body))
    assert result(answer).throttle_time_ms == 250


def test_requests_go_one_after_the_other_and_none_for_a_gone_client() -> None:
    node = Forwarded()
    first, second, third = (node.ask(topics(name), 7) for name in "abc")
    second.abandon(lambda error: None)
    node.channel.answer(EnvelopeResponse(response_data=b"first"))
    assert b"c" in bytes(node.channel.request.request_data)
    node.channel.answer(EnvelopeResponse(response_data=b"third"))
    assert not node.channel.is_busy
    assert (result(first).data, result(third).data) == (b"first", b"third")


def test_each_request_waits_for_a_minute_from_its_arrival() -> None:
    node = Forwarded()
    node.ask(topics("a"), 7)
    node.timers.now_s = 20.0
    node.ask(topics("b"), 7)
    node.timers.now_s = 60.0
    node.channel.answer(KafkaError(Error.REQUEST_TIMED_OUT))
    assert node.channel.timeout_ms == 20_000
    node.ask(topics("c"), 7)
    node.timers.now_s = 125.0
    node.channel.answer(KafkaError(Error.REQUEST_TIMED_OUT))
    assert node.channel.timeout_ms == 0


@pytest.mark.parametrize("version", [5, 7])
@pytest.mark.parametrize(
    ("told", "error"),
    [
        (KafkaError(Error.REQUEST_TIMED_OUT), Error.REQUEST_TIMED_OUT),
        (KafkaError(Error.UNSUPPORTED_VERSION), Error.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(error_code=int(Error.CLUSTER_AUTHORIZATION_FAILED)), Error.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(), Error.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_request_that_the_controller_cannot_be_asked_is_refused(
    told: Any, error: Error, version: int
) -> None:
    node = Forwarded()
    answer = node.ask(topics("a", "b"), version)
    node.channel.answer(told)
    found = refused(result(answer), CREATE_TOPICS, version)
    assert [(each.name, each.error_code) for each in found.topics] == [("a", error), ("b", error)]


def test_a_version_that_the_controller_doesnt_know_closes_the_connection() -> None:
    node = Forwarded()
    answer = node.ask(topics("a"), 7)
    node.channel.answer(EnvelopeResponse(error_code=int(Error.UNSUPPORTED_VERSION)))
    with pytest.raises(CloseConnectionError):
        result(answer)


def test_nonsense_without_a_possible_refusal_closes_the_connection_and_delays_nobody() -> None:
    node = Forwarded()
    nonsense = node.forwarding.forward(context(CREATE_TOPICS, 7), ForwardedRequest(HEADER + b"\xff" * 9, 10))
    behind = node.ask(topics("a"), 7)
    node.channel.answer(EnvelopeResponse(error_code=int(Error.INVALID_REQUEST)))
    with pytest.raises(CodecError):
        result(nonsense)
    node.channel.answer(EnvelopeResponse(response_data=b"told"))
    assert result(behind).data == b"told"


def test_a_request_without_a_form_for_the_controller_is_refused_and_delays_nobody() -> None:
    node = Forwarded()
    first = node.ask(topics("a"), 7)
    odd = context(CREATE_TOPICS, 7)
    odd.peer_host = "no address"
    data = HEADER + bytes(encode(topics("b"), 7))
    second = node.forwarding.forward(odd, ForwardedRequest(data, len(HEADER)))
    third = node.ask(topics("c"), 7)
    node.channel.answer(EnvelopeResponse(response_data=b"first"))
    found = refused(result(second), CREATE_TOPICS, 7)
    assert [each.error_code for each in found.topics] == [Error.UNKNOWN_SERVER_ERROR]
    node.channel.answer(EnvelopeResponse(response_data=b"third"))
    assert (result(first).data, result(third).data) == (b"first", b"third")


def filled(cls: Any, version: int) -> Any:
    """Return a message with one entry in each list that this version has."""
    present = [field for field in cls.FIELDS if field.in_version(version)]
    return cls(
        **{field.name: _value(field, version) for field in present if field.kind in ("array", "string")}
    )


def _value(field: Any, version: int) -> Any:
    if field.kind == "string":
        return "a"
    element = field.element
    if isinstance(element, type):
        return [filled(element, version)]
    return ["a"] if element == "string" else [1]


@pytest.mark.parametrize("api_key", DECIDED)
def test_each_api_has_a_refusal_in_each_version(api_key: int) -> None:
    api = APIS[api_key]
    for version in range(api.min_version, api.max_version + 1):
        request = decode(api.request, version, encode(filled(api.request, version), version))
        answer = refusal(api_key, version, request, Error.REQUEST_TIMED_OUT)
        assert answer is not None
        told = decode(api.response, version, encode(answer, version))
        codes = [*error_codes(told)]
        if (api_key, version) == (ELECT_LEADERS, 0):
            codes.remove(Error.NONE)  # the error of the whole answer, which this version doesn't have
        assert {*codes} == {Error.REQUEST_TIMED_OUT}, version


def test_clients_see_the_controllers_versions_of_forwarded_apis() -> None:
    """Kafka 4.3's controller doesn't know UnregisterController. Until the controller has told its versions,
    ours count."""
    forwarded = Forwarded()
    assert forwarded.forwarding.served(94, 0, 0) == (0, 0)
    forwarded.channel.versions = {CREATE_TOPICS: (2, 6), ELECT_LEADERS: (0, 9), 1: (4, 4)}
    assert forwarded.forwarding.served(CREATE_TOPICS, 3, 7) == (3, 6)
    assert forwarded.forwarding.served(CREATE_TOPICS, 7, 7) is None
    assert forwarded.forwarding.served(ELECT_LEADERS, 0, 2) == (0, 2)
    assert forwarded.forwarding.served(94, 0, 0) is None
    assert forwarded.forwarding.served(1, 4, 18) == (4, 18), "it isn't forwarded"
