"""The channel to the current controller, and creating missing topics through it when clients use them.
`forwarding.py` sends clients' own requests through it.

A request is sent again until it is answered, or its time is up.

Source: `NodeToControllerChannelManager`, `NodeToControllerRequestThread`.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker.environment.scheduler import Waker
from broker.peers.peer import OnePeer, PeerSettings
from protocol.errors import Error, KafkaError, error_of, tell_each
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.waiting import Later, carry_on
from protocol.wire.schema import error_codes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.controller.metadata_log import MetadataLog
    from broker.controller.observer import LeaderEndpoint
    from broker.controller.topic_requests import Created
    from broker.environment.network import Network
    from broker.environment.scheduler import Scheduled, Scheduler
    from protocol.messages.topics import CreatableTopic
    from protocol.wire.schema import Message


log = logging.getLogger("barnabas.peers")


CONTROLLER_RETRY_S = 0.05
"""How long to wait before trying again. It doesn't grow."""


class ToController(Protocol):
    """A way to the controller for one request at a time: `ControllerChannel`, or `OwnController` in the same
    process."""

    trouble: str
    """What has kept the current request from being answered so far. Empty if nothing is known."""

    @property
    def is_busy(self) -> bool:
        """True while a request is in flight."""

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The first and last version of each API that the controller has, as far as it has reported them."""

    async def ask(self, request: Message, *, timeout_ms: int | None) -> Message: ...

    def stop(self) -> None: ...


class ControllerChannel:
    """One request at a time. Each purpose has a channel, and so a connection, of its own: a long request
    doesn't hold up other kinds."""

    def __init__(
        self,
        controller: Callable[[], LeaderEndpoint | None],
        settings: PeerSettings,
        network: Network,
        scheduler: Scheduler,
        *,
        why_unknown: Callable[[], str] = lambda: "",
    ) -> None:
        """`controller` returns the controller, as far as it is known. `why_unknown` says what keeps it from
        being known. Each answer may take `request_timeout_ms`."""
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
        """Return the answer, with whatever error it has. After NOT_CONTROLLER anywhere in it, ask again, and
        by then perhaps another node.

        Raises KafkaError: UNSUPPORTED_VERSION; REQUEST_TIMED_OUT if there is no answer in time, with the
        trouble as its message. With `timeout_ms` None, there is no limit.
        """
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
        """Ask once. Returns None if it has to be asked again; `trouble` says why."""
        controller = self._controller()
        if controller is None or not controller.host:
            self.trouble = self._why_unknown() or "no controller is known yet"
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
            self.trouble = "the node asked isn't the controller any more"
            return None
        return answer

    def stop(self) -> None:
        """Stop: nothing is answered any more."""
        self._asked.stop()
        self._again.stop()


# --- Missing topics that clients use (Kafka: `AutoTopicCreationManager`) ------------------------------------
# The answer comes once this broker has the topics, too; they arrive with the metadata. Kafka doesn't wait for
# that, since it has already sent its client away.


TIMEOUT_MS = 30_000
"""`request.timeout.ms`."""
LONGEST_WAIT_S = 3.0
"""How long to wait for the metadata of topics that the controller has created."""


class _Wanted:
    __slots__ = ("outcome", "topics")

    def __init__(self, topics: Sequence[CreatableTopic]) -> None:
        self.topics = topics
        self.outcome: Later[Created | KafkaError] = Later()


class TopicCreationRequests:
    """Requests to create topics, one after the other. Each waits for clients with one request in work, and no
    topic is requested twice (`AutoTopicCreation`)."""

    def __init__(self, to_controller: ToController, metadata: MetadataLog, scheduler: Scheduler) -> None:
        self._to_controller = to_controller
        self._metadata = metadata
        self._scheduler = scheduler
        self._waiting: deque[_Wanted] = deque()
        self._created: dict[_Wanted, tuple[Created, Scheduled]] = {}
        metadata.following.told.append(self._look)

    async def create(self, topics: Sequence[CreatableTopic]) -> Created | KafkaError:
        """Return the controller's result for each topic. This broker learns of the topics from the metadata.
        A request that isn't sent yet may be abandoned."""
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
        """Check the created topics: the metadata is followed, or begins to be. A callback may cause another
        check, which answers others."""
        tell_each([*self._created], self._tell_if_here, log, "a callback for a created topic failed")

    def _tell_if_here(self, wanted: _Wanted) -> None:
        if wanted in self._created and self._are_here(self._created[wanted][0]):
            self._tell(wanted)

    def _tell(self, wanted: _Wanted) -> None:
        created, late = self._created.pop(wanted)
        late.cancel()
        wanted.outcome.reply(created)

    def stop(self) -> None:
        """Stop: nothing is answered any more."""
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
            found.append(
                (topic, KafkaError(Error.UNKNOWN_SERVER_ERROR, "the controller's answer doesn't mention it"))
            )
        elif result.error_code:
            found.append((topic, KafkaError(error_of(result.error_code), result.error_message)))
        else:
            found.append((topic, result.topic_id))
    return found
