"""Topics that are used and aren't there, asked of a controller elsewhere (Kafka: `AutoTopicCreationManager`).

Who asks is told once they are there here, too: the metadata that has them comes by itself. Kafka doesn't wait for that,
since it has sent its client away before.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError, error_of, tell_each
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.controller.auto_topic_creation import Created
    from broker.controller.controller import Withdraw
    from broker.controller.metadata_log import MetadataLog
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.peers.controller_channel import ToController
    from coordinator.commit_waiters import Failed
    from protocol.messages.topics import CreatableTopic
    from protocol.wire.schema import Message

log = logging.getLogger("barnabas.peers")

TIMEOUT_MS = 30_000
"""`request.timeout.ms`."""
LONGEST_WAIT_S = 3.0
"""For the metadata of topics that the controller has created."""


class _Wanted:
    __slots__ = ("reply", "topics")

    def __init__(
        self, topics: Sequence[CreatableTopic], reply: Callable[[Created | KafkaError], None]
    ) -> None:
        self.topics = topics
        self.reply = reply


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
        if isinstance(answer, KafkaError):
            wanted.reply(answer)
            return
        created = _outcomes(wanted.topics, answer)
        if self._are_here(created):
            wanted.reply(created)
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
        wanted.reply(created)

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
