"""Requests of a broker, in its own name, to a controller elsewhere: topics to create, and producer ids."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker.controller.broker_records import BrokerIncarnation
from broker.coordination.producer_id_blocks import ProducerIdBlocks
from broker.network.turns import Turns
from broker.peers.controller_channel import LONGEST_WAIT_S, TopicCreationRequests
from protocol.errors import Error, KafkaError
from protocol.messages.produce import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.waiting import Later
from tests.support.controller_channel import Channel

TOPIC_ID = b"the topic's id.."


class Creating:
    """A broker that asks the controller. Its metadata has the topics in `known`."""

    def __init__(self, *known: str) -> None:
        self.channel = Channel()
        self.late: list[Callable[[], object]] = []
        self.metadata: Any = SimpleNamespace(
            following=SimpleNamespace(told=[], is_behind=False),
            image=SimpleNamespace(
                topics=dict.fromkeys(known), topics_by_id=dict.fromkeys([TOPIC_ID][: len(known)])
            ),
        )
        self.requests = TopicCreationRequests(self.channel, self.metadata, self)  # type: ignore[arg-type]
        self.answers: list[Any] = []
        self.turns = Turns(SimpleNamespace(call_soon=lambda call: call()))  # type: ignore[arg-type]

    def call_later(self, delay_s: float, then: Callable[[], object]) -> Any:
        assert delay_s == LONGEST_WAIT_S
        self.late.append(then)
        return SimpleNamespace(cancel=lambda: self.late.remove(then))

    def follow(self, *known: str, is_behind: bool = False) -> None:
        self.metadata.following.is_behind = is_behind
        self.metadata.image.topics.update(dict.fromkeys(known))
        self.metadata.image.topics_by_id[TOPIC_ID] = None
        for told in self.metadata.following.told:
            told()

    def create(self, *names: str, reply: Callable[[Any], object] | None = None) -> Later[None]:
        wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]

        async def told() -> None:
            (reply or self.answers.append)(await self.requests.create(wanted))

        under_way = self.turns.answer(told(), to_the_end=True)
        assert isinstance(under_way, Later)
        return under_way

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


def test_a_requester_of_topics_gets_the_controllers_outcome_for_each() -> None:
    node = Creating("a", "b")
    node.create("a", "b", "c", "d")
    assert node.asked == [*"abcd"]
    node.channel.answer(made(("b", 36), ("a", 0), ("d", 9_999)))
    [outcomes] = node.answers
    found = {topic.name: outcome for topic, outcome in outcomes}
    assert found["a"] == TOPIC_ID
    assert [found[name].error for name in "bcd"] == [
        Error.TOPIC_ALREADY_EXISTS,
        Error.UNKNOWN_SERVER_ERROR,  # the answer doesn't mention this topic
        Error.UNKNOWN_SERVER_ERROR,
    ]


@pytest.mark.parametrize("error", [Error.NONE, Error.TOPIC_ALREADY_EXISTS], ids=["by it", "by another one"])
def test_a_requester_is_answered_once_this_broker_knows_and_follows_the_topic(error: Error) -> None:
    node = Creating()
    node.create("a")
    node.channel.answer(made(("a", int(error))))
    assert node.answers == []
    node.follow("a", is_behind=True)
    assert node.answers == []
    node.follow()
    assert len(node.answers) == 1
    assert node.late == []
    node.follow()
    assert len(node.answers) == 1


@pytest.mark.limit("broker.peers.controller_channel.LONGEST_WAIT_S")
def test_a_requester_is_answered_after_a_while_without_metadata_and_not_at_all_after_a_stop() -> None:
    node = Creating()
    node.create("a")
    node.channel.answer(made(("a", 0)))
    [tell] = node.late
    tell()
    assert len(node.answers) == 1
    node.create("a")
    node.channel.answer(made(("a", 0)))
    node.requests.stop()
    node.follow("a")
    assert (len(node.answers), node.late) == (1, [])


def test_a_callback_that_fails_does_not_keep_others_from_being_called() -> None:
    node = Creating()

    def fails(_: Any) -> None:
        raise ValueError("the first")

    asked = []
    for reply in (fails, node.answers.append):
        asked.append(node.create("a", reply=reply))
        node.channel.answer(made(("a", 0)))
    node.follow("a")
    with pytest.raises(ValueError, match="the first"):
        asked[0].result()
    assert (len(node.answers), node.late) == (1, [])


def test_a_callback_may_trigger_the_others() -> None:
    node = Creating()
    for number in range(2):

        def reply(_: Any, number: int = number) -> None:
            node.answers.append(number)
            node.follow()

        node.create("a", reply=reply)
        node.channel.answer(made(("a", 0)))
    node.follow("a")
    assert node.answers == [0, 1]


def test_requests_go_one_after_the_other_and_none_for_a_gone_client() -> None:
    node = Creating()
    first, second = node.create("a"), node.create("b")
    node.create("c")
    second.abandon()
    first.abandon()  # this request has already been sent
    refusal = KafkaError(Error.REQUEST_TIMED_OUT)
    node.channel.answer(refusal)
    assert node.answers == [refusal]
    assert node.asked == ["c"]


class Allocating:
    def __init__(self) -> None:
        self.channel = Channel()
        self.answers: list[Any] = []
        first = ProducerIdBlocks(self.channel, BrokerIncarnation(7, 33)).allocate(1_000)
        first.when_answered(lambda: self.answers.append(first.result()))


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
def test_no_ids_are_given_out_if_the_controller_refuses(answer: Any) -> None:
    node = Allocating()
    node.channel.answer(answer)
    [refusal] = node.answers
    assert isinstance(refusal, KafkaError)
