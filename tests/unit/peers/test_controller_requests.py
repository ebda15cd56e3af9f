"""What a broker asks of a controller elsewhere in its own name: topics that are used, and producer ids."""

from __future__ import annotations

from typing import Any

import pytest

from broker.controller.registration import BrokerIncarnation
from broker.peers.producer_id_requests import ProducerIdRequests
from broker.peers.topic_creation_requests import TopicCreationRequests
from protocol.errors import Error, KafkaError
from protocol.messages.producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.support.controller_channel import Channel
from tests.support.submitting import unexpected

TOPIC_ID = b"the topic's id.."


class Creating:
    def __init__(self) -> None:
        self.channel = Channel()
        self.requests = TopicCreationRequests(self.channel)
        self.answers: list[Any] = []

    def create(self, *names: str) -> Any:
        wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        return self.requests.create(wanted, self.answers.append, unexpected)

    @property
    def asked(self) -> list[str]:
        assert isinstance(self.channel.request, CreateTopicsRequest)
        return [topic.name for topic in self.channel.request.topics]


def made(*results: tuple[str, int]) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=name, topic_id=TOPIC_ID, error_code=error_code, error_message="why")
            for name, error_code in results
        ]
    )


def test_who_uses_topics_is_told_what_the_controller_makes_of_each() -> None:
    node = Creating()
    node.create("a", "b", "c", "d")
    assert node.asked == [*"abcd"]
    node.channel.answer(made(("b", 36), ("a", 0), ("d", 9_999)))
    [outcomes] = node.answers
    found = {topic.name: outcome for topic, outcome in outcomes}
    assert found["a"] == TOPIC_ID
    assert [found[name].error for name in "bcd"] == [
        Error.TOPIC_ALREADY_EXISTS,
        Error.UNKNOWN_SERVER_ERROR,  # nothing was said of it
        Error.UNKNOWN_SERVER_ERROR,
    ]


def test_one_request_goes_after_the_other_and_none_for_who_has_gone() -> None:
    node = Creating()
    first, second = node.create("a"), node.create("b")
    node.create("c")
    assert second()
    assert not first()  # it has been sent
    refusal = KafkaError(Error.REQUEST_TIMED_OUT)
    node.channel.answer(refusal)
    assert node.answers == [refusal]
    assert node.asked == ["c"]


class Allocating:
    def __init__(self) -> None:
        self.channel = Channel()
        self.answers: list[Any] = []
        ProducerIdRequests(self.channel, BrokerIncarnation(7, 33)).allocate(1_000, self.answers.append)


def test_producer_ids_come_in_blocks_of_the_controllers() -> None:
    node = Allocating()
    asked = node.channel.request
    assert isinstance(asked, AllocateProducerIdsRequest)
    assert (asked.broker_id, asked.broker_epoch) == (7, 33)
    node.channel.answer(AllocateProducerIdsResponse(producer_id_start=5_000, producer_id_len=1_000))
    assert node.answers == [5_000]


@pytest.mark.parametrize(
    "answer",
    [
        KafkaError(Error.UNSUPPORTED_VERSION),
        AllocateProducerIdsResponse(error_code=int(Error.STALE_BROKER_EPOCH)),
        AllocateProducerIdsResponse(error_code=9_999),
        AllocateProducerIdsResponse(producer_id_start=5_000, producer_id_len=999),
    ],
)
def test_none_are_given_out_where_the_controller_refuses(answer: Any) -> None:
    node = Allocating()
    node.channel.answer(answer)
    [refusal] = node.answers
    assert isinstance(refusal, KafkaError)
