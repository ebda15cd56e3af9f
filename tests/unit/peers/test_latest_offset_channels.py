"""End offsets of partitions that other nodes lead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from broker.controller.image import NO_LEADER
from broker.coordination.latest_offsets import LatestOffsets
from broker.peers.other_brokers import LatestOffsetChannels
from protocol.errors import Error, KafkaError
from protocol.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.topic_partition import TopicPartition
from tests.support.wishes import drive
from tests.unit.peers.several_brokers import OWN, SECOND, Channels, cluster


class Asking:
    """A node that asks. It leads partition 0 of topic `t`, another node leads 1 and 2, and nobody leads 3."""

    def __init__(self) -> None:
        self.channels = Channels()
        self.answers: dict[int, Any] = {}
        elsewhere = LatestOffsetChannels(self.channels)
        self.stop = elsewhere.stop
        leader = SimpleNamespace(log=SimpleNamespace(high_watermark=77))
        partitions = SimpleNamespace(get=lambda name, index: SimpleNamespace(leader=lambda: leader))
        image = cluster("t", [OWN, SECOND, SECOND, NO_LEADER])
        self.offsets = LatestOffsets(OWN, image, partitions, elsewhere.ask)  # type: ignore[arg-type]

    def ask(self, index: int, name: str = "t") -> None:
        def told(answer: int | KafkaError) -> None:
            self.answers[index] = answer.error if isinstance(answer, KafkaError) else answer

        drive(self.offsets.ask(name, index), told)


def answer(*parts: tuple[int, int, int]) -> ListOffsetsResponse:
    """Return an answer of (index, error, offset)."""
    found = [
        ListOffsetsPartitionResponse(partition_index=index, error_code=code, offset=offset)
        for index, code, offset in parts
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=found)])


def test_partitions_led_here_or_by_nobody_are_answered_at_once() -> None:
    node = Asking()
    node.ask(0)
    node.ask(3)
    node.ask(9)
    node.ask(5, "nowhere")
    unknown = Error.LEADER_NOT_AVAILABLE
    assert node.answers == {0: 77, 3: unknown, 9: unknown, 5: unknown}
    assert node.channels.said == {}


def test_leaders_elsewhere_are_asked_as_consumers_ask() -> None:
    node = Asking()

    def asked() -> Any:
        node.channels.said.clear()
        for index in (1, 2, 1):
            node.ask(index)
        return node.channels.items(SECOND)

    items = asked()
    request = node.channels.request_of(items)
    assert (request.replica_id, request.isolation_level) == (-1, 0)
    (topic,) = request.topics
    assert [(part.partition_index, part.timestamp) for part in topic.partitions] == [(1, -1), (2, -1)]
    node.channels.answered(items, answer((1, 0, 5), (2, Error.NOT_LEADER_OR_FOLLOWER, -1)))
    assert node.answers == {1: 5, 2: Error.NOT_LEADER_OR_FOLLOWER}
    node.channels.answered(asked(), answer((1, 0, 6)))
    assert node.answers == {1: 6, 2: Error.UNKNOWN_TOPIC_OR_PARTITION}
    node.channels.answered(asked(), KafkaError(Error.NETWORK_EXCEPTION))
    assert node.answers == {1: Error.NETWORK_EXCEPTION, 2: Error.NETWORK_EXCEPTION}
    node.stop()
    assert node.channels.is_stopped


class Timer:
    """A scheduler that keeps the one timer that is set."""

    is_set = False

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.is_set, self.fire = True, callback
        return self

    def cancel(self) -> None:
        self.is_set = False


def of_many(node: Asking, timer: Timer, *indexes: int) -> list[Mapping[TopicPartition, int]]:
    """Ask for these partitions, and return a list that is filled when the answer comes."""
    told: list[Mapping[TopicPartition, int]] = []
    drive(node.offsets.of_many([("t", index) for index in indexes], timer, 2.0), told.append)  # type: ignore[arg-type]
    return told


def test_many_leaders_are_asked_at_once_and_the_answer_comes_with_the_last() -> None:
    node, timer = Asking(), Timer()
    told = of_many(node, timer, 0, 1, 2, 3)
    assert told == []
    items = node.channels.items(SECOND)
    node.channels.answered(items, answer((1, 0, 5), (2, Error.NOT_LEADER_OR_FOLLOWER, -1)))
    assert told == [{("t", 1): 5}], "what is led here or by nobody isn't asked for"
    assert not timer.is_set
    assert of_many(node, timer, 0, 3) == [{}]


def test_a_leader_that_does_not_answer_in_time_is_left_out() -> None:
    node, timer = Asking(), Timer()
    told = of_many(node, timer, 1, 2)
    items = node.channels.items(SECOND)
    node.channels.answered(items[:1], answer((1, 0, 5)))
    assert told == []
    timer.fire()
    assert told == [{("t", 1): 5}]
    node.channels.answered(items[1:], answer((2, 0, 6)))
    assert told == [{("t", 1): 5}], "too late"
