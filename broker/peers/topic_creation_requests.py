"""Topics that are used and aren't there, asked of a controller elsewhere (Kafka: `AutoTopicCreationManager`)."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import Error, KafkaError, error_of
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.controller.auto_topic_creation import Created
    from broker.controller.controller import Withdraw
    from broker.peers.controller_channel import ToController
    from coordinator.commit_waiters import Failed
    from protocol.messages.topics import CreatableTopic
    from protocol.wire.schema import Message

TIMEOUT_MS = 30_000
"""`request.timeout.ms`."""


class _Wanted(NamedTuple):
    topics: Sequence[CreatableTopic]
    reply: Callable[[Created | KafkaError], None]


class TopicCreationRequests:
    """One after the other. Each waits in the name of clients that have one request in work; the same topic isn't asked
    for twice (`AutoTopicCreation`)."""

    def __init__(self, to_controller: ToController) -> None:
        self._to_controller = to_controller
        self._waiting: deque[_Wanted] = deque()

    def create(
        self,
        topics: Sequence[CreatableTopic],
        reply: Callable[[Created | KafkaError], None],
        failed: Failed,
    ) -> Withdraw | None:
        """`reply` is told what the controller has made of each; this broker learns of the topics from the metadata."""
        wanted = _Wanted(topics, reply)
        self._waiting.append(wanted)
        self._go_on()
        return partial(self._withdraw, wanted)

    def _withdraw(self, wanted: _Wanted) -> bool:
        """Whether it hasn't been sent."""
        found = [each for each in self._waiting if each is not wanted]
        still_waited = len(found) < len(self._waiting)
        self._waiting = deque(found)
        return still_waited

    def _go_on(self) -> None:
        if self._waiting and not self._to_controller.is_busy:
            wanted = self._waiting.popleft()
            request = CreateTopicsRequest(topics=[*wanted.topics], timeout_ms=TIMEOUT_MS)
            self._to_controller.ask(request, partial(self._answered, wanted), timeout_ms=TIMEOUT_MS)

    def _answered(self, wanted: _Wanted, answer: Message | KafkaError) -> None:
        self._go_on()
        wanted.reply(answer if isinstance(answer, KafkaError) else _outcomes(wanted.topics, answer))


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
