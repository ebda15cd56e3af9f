"""Creating and deleting topics of a broker in this process, by its controller, which answers at once."""

from __future__ import annotations

from typing import Any

from broker.controller.topic_requests import Created, Deleted, Extended, TopicRequests
from broker.server import Server
from protocol.errors import KafkaError
from protocol.waiting import Waiting
from tests.support.submitting import ask_controller
from tests.support.whole_server import take_turns


class TopicsNow:
    """Returns what `TopicRequests` replies, and raises if the whole request is refused."""

    def __init__(self, node: Server) -> None:
        self._node = node
        self._topics: TopicRequests = node.topics

    def create(self, *args: Any, **options: Any) -> Created:
        return self._answer(self._topics.create(*args, **options))

    def delete(self, *args: Any, **options: Any) -> Deleted:
        return self._answer(self._topics.delete(*args, **options))

    def add_partitions(self, *args: Any, **options: Any) -> Extended:
        return self._answer(self._topics.add_partitions(*args, **options))

    def _answer(self, steps: Waiting[Any]) -> Any:
        replies: list[Any] = []
        ask_controller(self._node.controller, steps, replies.append)
        take_turns(self._node)
        (outcome,) = replies
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome


def topics_of(node: Server) -> TopicsNow:
    return TopicsNow(node)
