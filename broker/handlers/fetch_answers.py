"""What Fetch answers, made of what was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from broker.network.pieces import EntryList, pieces
from broker.network.turns import PER_TURN, portions
from broker.replicas.fetch_sessions import NO_SESSION
from protocol.errors import Error
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from protocol.waiting import turn
from protocol.wire.codec import encoder, encoder_in_steps

if TYPE_CHECKING:
    from broker.environment.scheduler import Clock
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from broker.quotas import ClientQuotas
    from broker.replicas.current_leaders import CurrentLeaders
    from broker.replicas.fetch_sessions import FetchPlan, FetchSessions
    from broker.replicas.fetch_targets import FetchTarget
    from broker.replicas.fetching import FetchParameters, Results

Listed: TypeAlias = "Sequence[tuple[FetchTarget, PartitionData]]"

FRAME_SIZE_BYTES = 4  # counted by quotas on fetched bytes, beside the body

FIRST_VERSION_TOLD_LEADERS = 16
TOLD_WITH_LEADER = (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH)

FETCHED_PARTITIONS = EntryList("topics", "responses", "partitions", "partitions", at_once=PER_TURN)
"""What one turn goes through of a request."""


async def failed_fetch(request: FetchRequest, *, by_id: bool) -> FetchResponse:
    """Kafka's answer where it fails on a request: below v13 each partition that was *asked for* says so as well."""
    topics: list[FetchableTopicResponse] = []
    if not by_id:
        for part, goes_on in pieces(request, FETCHED_PARTITIONS):
            if topics:
                await turn()
            failed = [_failed(topic) for topic in part.topics]
            if goes_on:
                topics[-1].partitions += failed.pop(0).partitions
            topics += failed
    return FetchResponse(
        error_code=Error.UNKNOWN_SERVER_ERROR, session_id=request.session_id, responses=topics
    )


def _failed(topic: FetchTopic) -> FetchableTopicResponse:
    partitions = [
        PartitionData(
            partition_index=wanted.partition,
            error_code=Error.UNKNOWN_SERVER_ERROR,
            high_watermark=-1,
            aborted_transactions=[],
            records=b"",
        )
        for wanted in topic.partitions
    ]
    return FetchableTopicResponse(topic=topic.topic, partitions=partitions)


class FetchAnswers:
    """Makes the answer of a request out of what was read, now or later."""

    __slots__ = ("_clock", "_leaders", "_quotas", "_sessions")

    def __init__(
        self, sessions: FetchSessions, quotas: ClientQuotas, leaders: CurrentLeaders, clock: Clock
    ) -> None:
        self._sessions = sessions
        self._quotas = quotas
        self._leaders = leaders
        self._clock = clock

    def answer(
        self, context: RequestContext, plan: FetchPlan, results: Results, parameters: FetchParameters
    ) -> FetchResponse:
        """In one turn: of few partitions."""
        if self._quotas.enforced:
            throttle_ms = self._throttled(context, plan, results)
            if throttle_ms > 0:
                return _withheld(plan, throttle_ms)
        session_id, listed = self._sessions.finish(plan, results, self._clock.now_ms())
        response = FetchResponse.of(session_id=session_id, responses=_by_topic(listed, []))
        if context.api_version >= FIRST_VERSION_TOLD_LEADERS:
            self._tell_leaders(response, listed, context, parameters)
        return response

    async def answer_in_turns(
        self,
        turns: Turns,
        context: RequestContext,
        plan: FetchPlan,
        results: Results,
        parameters: FetchParameters,
    ) -> FetchResponse:
        """The same of many."""
        if self._quotas.enforced:
            throttle_ms = await self._throttled_in_turns(turns, context, plan, results)
            if throttle_ms > 0:
                return _withheld(plan, throttle_ms)
            await turn()
        session_id, listed = await self._sessions.finish_in_turns(plan, results, self._clock.now_ms())
        response = FetchResponse.of(session_id=session_id, responses=[])
        for some in portions(listed):
            _by_topic(some, response.responses)
            if context.api_version >= FIRST_VERSION_TOLD_LEADERS:
                self._tell_leaders(response, some, context, parameters)
            if len(some) == PER_TURN:
                await turn()
        return response

    def _tell_leaders(
        self,
        response: FetchResponse,
        listed: Listed,
        context: RequestContext,
        parameters: FetchParameters,
    ) -> None:
        for target, answer in listed:
            if answer.error_code in TOLD_WITH_LEADER:
                self._tell_leader(target, answer)
                if not parameters.from_follower:
                    self._tell_node(response, answer, context.listener_name)

    def _tell_leader(self, target: FetchTarget, answer: PartitionData) -> None:
        leader_id, leader_epoch = self._leaders.of(target.topic_name, target.index)
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)

    def _tell_node(self, response: FetchResponse, answer: PartitionData, listener_name: str) -> None:
        """Where consumers find the leader; a follower knows that from its metadata."""
        assert answer.current_leader is not None
        leader_id = answer.current_leader.leader_id
        if any(each.node_id == leader_id for each in response.node_endpoints):
            return
        node = self._leaders.node(leader_id, listener_name)
        if node is not None:
            response.node_endpoints.append(
                NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            )

    def _throttled(self, context: RequestContext, plan: FetchPlan, results: Results) -> int:
        """For how long the consumer has to wait instead of being answered; what it isn't given isn't charged."""
        return self._charge(context, self._size(context, news_of(plan, results)))

    async def _throttled_in_turns(
        self, turns: Turns, context: RequestContext, plan: FetchPlan, results: Results
    ) -> int:
        size = await self._size_in_turns(turns, context, results, lambda some: news_of(plan, some))
        return self._charge(context, size)

    def _size(self, context: RequestContext, listed: Listed) -> int:
        """Of an answer that lists these, as quotas count it."""
        chunks: list[bytes | bytearray | memoryview] = []
        encoder(FetchResponse, context.api_version)(FetchResponse(responses=_by_topic(listed, [])), chunks)
        return FRAME_SIZE_BYTES + sum(map(len, chunks))

    async def _size_in_turns(
        self, turns: Turns, context: RequestContext, results: Results, listed_of: Callable[[Listed], Listed]
    ) -> int:
        """The same of many: `listed_of` says of some results which of them count."""
        topics: list[FetchableTopicResponse] = []
        for some in portions(results):
            _by_topic(listed_of(some), topics)
            if len(some) == PER_TURN:
                await turn()
        size = FRAME_SIZE_BYTES
        chunks: list[bytes | bytearray | memoryview] = []
        for _ in encoder_in_steps(FetchResponse, context.api_version)(
            FetchResponse(responses=topics), chunks
        ):
            size += sum(map(len, chunks))
            chunks.clear()
            if turns.is_over:
                await turn()
        return size + sum(map(len, chunks))

    def _charge(self, context: RequestContext, size: int) -> int:
        quota = self._quotas.fetch
        now_ms = self._clock.now_ms()
        user, client_id = context.principal.name, context.client_id or ""
        throttle_ms = quota.charge(user, client_id, size, now_ms)
        if throttle_ms > 0:
            quota.charge(user, client_id, -size, now_ms)
        return throttle_ms


def news_of(plan: FetchPlan, results: Listed) -> Listed:
    """What the answer will list."""
    return results if plan.session is None else [each for each in results if each[0].is_news(each[1])]


def _withheld(plan: FetchPlan, throttle_ms: int) -> FetchResponse:
    known = plan.session
    return FetchResponse(
        throttle_time_ms=throttle_ms, session_id=NO_SESSION if known is None else known.session_id
    )


def _by_topic(listed: Listed, topics: list[FetchableTopicResponse]) -> list[FetchableTopicResponse]:
    """Put behind the topics that are there."""
    last = topics[-1].topic or topics[-1].topic_id if topics else None
    for target, answer in listed:
        if target.topic != last:
            # As in Kafka, partitions of a topic share an entry only where they follow one another.
            last = target.topic
            topics.append(
                FetchableTopicResponse.of(topic_id=last)
                if isinstance(last, bytes)
                else FetchableTopicResponse.of(topic=last)
            )
        topics[-1].partitions.append(answer)
    return topics
