"""Topics of a broker in this process, made and deleted by its controller, which answers at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.controller.topic_requests import Created, Deleted, Extended, TopicRequests
from broker.server import Server
from protocol.errors import KafkaError


class TopicsNow:
    """What `TopicRequests` replies; a refusal of the whole request is raised."""

    def __init__(self, topics: TopicRequests) -> None:
        self._topics = topics

    def create(self, *args: Any, **options: Any) -> Created:
        return _answer(lambda reply: self._topics.create(*args, reply, **options))

    def delete(self, *args: Any, **options: Any) -> Deleted:
        return _answer(lambda reply: self._topics.delete(*args, reply, **options))

    def add_partitions(self, *args: Any, **options: Any) -> Extended:
        return _answer(lambda reply: self._topics.add_partitions(*args, reply, **options))


def topics_of(node: Server) -> TopicsNow:
    return TopicsNow(node.topics)


def _answer(ask: Callable[[Callable[[Any], None]], None]) -> Any:
    replies: list[Any] = []
    ask(replies.append)
    (outcome,) = replies
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome
