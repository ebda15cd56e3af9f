"""Topics of a broker in this process, made and deleted by its controller, which answers at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.controller.topic_requests import Created, Deleted, Extended, TopicRequests
from broker.server import Server
from protocol.errors import KafkaError
from tests.support.submitting import unexpected
from tests.support.whole_server import take_turns


class TopicsNow:
    """What `TopicRequests` replies; a refusal of the whole request is raised."""

    def __init__(self, node: Server) -> None:
        self._node = node
        self._topics: TopicRequests = node.topics

    def create(self, *args: Any, **options: Any) -> Created:
        return self._answer(lambda reply: self._topics.create(*args, reply, unexpected, **options))

    def delete(self, *args: Any, **options: Any) -> Deleted:
        return self._answer(lambda reply: self._topics.delete(*args, reply, unexpected, **options))

    def add_partitions(self, *args: Any, **options: Any) -> Extended:
        return self._answer(lambda reply: self._topics.add_partitions(*args, reply, unexpected, **options))

    def _answer(self, ask: Callable[[Callable[[Any], None]], None]) -> Any:
        replies: list[Any] = []
        ask(replies.append)
        take_turns(self._node)
        (outcome,) = replies
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome


def topics_of(node: Server) -> TopicsNow:
    return TopicsNow(node)
