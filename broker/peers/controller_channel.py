"""The way to the controller, whoever it is by now, and what goes by it for clients of this broker: blocks of producer
ids, topics that are used and aren't there.

A request goes to it again until it is answered, or its time is up.
Source: `NodeToControllerChannelManager`, `NodeToControllerRequestThread`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker.peers.peer import OnePeer, PeerReply, PeerSettings
from protocol.errors import Error, KafkaError, error_name, error_of, tell_each
from protocol.messages.produce import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.wire.schema import error_codes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.controller.controller import Withdraw
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.observer import LeaderEndpoint
    from broker.controller.registration import BrokerIncarnation
    from broker.controller.topic_requests import Created
    from broker.environment.network import Network
    from broker.environment.scheduler import Scheduled, Scheduler
    from coordinator.commit_waiters import Failed
    from protocol.messages.topics import CreatableTopic
    from protocol.wire.schema import Message

log = logging.getLogger("barnabas.peers")


CONTROLLER_RETRY_MS = 50
"""How soon it is tried again, without growth."""


class ToController(Protocol):
    """A way to the controller, one request at a time: `ControllerChannel`, or `OwnController` in the same process."""

    trouble: str
    """What has kept the request that is under way from being answered so far; empty where nothing is known of it."""

    @property
    def is_busy(self) -> bool: ...

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The first and last one of each API that the controller has, as far as it has told them."""

    def ask(self, request: Message, reply: PeerReply, *, timeout_ms: int | None) -> None: ...

    def stop(self) -> None: ...


class ControllerChannel:
    """One request at a time. Channels of different purposes are connections of their own: a request that takes long
    holds up none of another kind."""

    def __init__(
        self,
        controller: Callable[[], LeaderEndpoint | None],
        settings: PeerSettings,
        network: Network,
        scheduler: Scheduler,
        *,
        why_unknown: Callable[[], str] = lambda: "",
    ) -> None:
        """`controller` says who it is, as far as that is known; `why_unknown` what keeps it from being known.
        Each answer is waited for as long as `request_timeout_ms` says."""
        self._controller = controller
        self._why_unknown = why_unknown
        self.trouble = ""
        self._scheduler = scheduler
        self._asked = OnePeer(settings, network, scheduler)
        self._request: Message | None = None
        self._reply: PeerReply | None = None
        self._deadline: Scheduled | None = None
        self._again: Scheduled | None = None

    @property
    def is_busy(self) -> bool:
        return self._reply is not None

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        return {} if self._asked.peer is None else self._asked.peer.versions

    def ask(self, request: Message, reply: PeerReply, *, timeout_ms: int | None) -> None:
        """`reply` is given the answer, whatever error it has, but for NOT_CONTROLLER anywhere in it: then it is asked
        again, of whoever it is by then. KafkaError: UNSUPPORTED_VERSION, and REQUEST_TIMED_OUT where there is no answer
        in time, whose message is the trouble there was; `timeout_ms` None: it is asked for as long as it takes."""
        assert self._reply is None, "one request at a time"
        self._request, self._reply = request, reply
        self.trouble = ""
        if timeout_ms is not None:
            self._deadline = self._scheduler.call_later(timeout_ms / 1000, self._gave_up)
        self._send()

    def stop(self) -> None:
        """Nobody is told of anything any more."""
        self._forget()
        self._asked.stop()

    def _send(self) -> None:
        self._again = None
        request = self._request
        assert request is not None
        controller = self._controller()
        if controller is None or not controller.host:
            self.trouble = self._why_unknown() or "no controller has said yet where it is"
            self._retry()
            return
        self._asked.at(controller.host, controller.port).ask(request, self._answered)

    def _retry(self) -> None:
        self._again = self._scheduler.call_later(CONTROLLER_RETRY_MS / 1000, self._send)

    def _answered(self, answer: Message | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            is_final = answer.error is Error.UNSUPPORTED_VERSION
            trouble = answer.message or answer.error.name
        else:
            is_final = Error.NOT_CONTROLLER not in error_codes(answer)
            trouble = "whoever was asked is the controller no more"
        if is_final:
            self._forget()(answer)
        else:
            self.trouble = trouble
            self._retry()

    def _gave_up(self) -> None:
        self._forget()(KafkaError(Error.REQUEST_TIMED_OUT, self.trouble or None))

    def _forget(self) -> PeerReply:
        """Whom to tell."""
        reply, self._request, self._reply = self._reply, None, None
        for timer in (self._deadline, self._again):
            if timer is not None:
                timer.cancel()
        self._deadline = self._again = None
        if self._asked.peer is not None:
            self._asked.peer.forget()
        return reply or (lambda answer: None)


# --- Blocks of producer ids, asked of a controller elsewhere (Kafka: `RPCProducerIdManager`) ------------------


class ProducerIdRequests:
    """One at a time, as `ProducerIds` asks."""

    def __init__(self, to_controller: ToController, broker: BrokerIncarnation) -> None:
        self._to_controller = to_controller
        self._broker = broker

    def allocate(self, size: int, then: Callable[[int | KafkaError], None]) -> None:
        """`then` is told the first id of a new block of such a size, or a KafkaError where none is to be had."""

        def answered(answer: Message | KafkaError) -> None:
            then(_first_of(answer, size))

        request = AllocateProducerIdsRequest(
            broker_id=self._broker.node_id, broker_epoch=self._broker.broker_epoch
        )
        self._to_controller.ask(request, answered, timeout_ms=None)


def _first_of(answer: Message | KafkaError, size: int) -> int | KafkaError:
    if isinstance(answer, KafkaError):
        refusal = answer
    else:
        assert isinstance(answer, AllocateProducerIdsResponse)
        if not answer.error_code and answer.producer_id_len >= size:
            return answer.producer_id_start
        told = f"{error_name(answer.error_code)}, a block of {answer.producer_id_len}"
        refusal = KafkaError(Error.UNKNOWN_SERVER_ERROR, told)
    log.error("the controller gives out no producer ids: %s", refusal)
    return refusal


# --- Topics that are used and aren't there (Kafka: `AutoTopicCreationManager`) ------------------------------
#
# Who asks is told once they are there here, too: the metadata that has them comes by itself. Kafka doesn't wait for
# that, since it has sent its client away before.


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
