"""Fetch (1), versions 4 to 18.

v5: log start offset; v7: sessions (KIP-227); v9: current leader epoch (KIP-320); v11: rack (KIP-392); v12: last
fetched epoch and the diverging epoch (KIP-595); v13: topic ids (KIP-516); v15: ReplicaState (KIP-903); v16: the
current leader in answers (KIP-951); v17: the replica's directory; v18: the replica's high watermark.

A follower takes what isn't committed yet, and by what it asks for its leader knows what it has. A consumer may read
from any replica since v11; preferred read replicas, snapshots and tiered storage have nothing to say here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.handlers.long_fetch import MOST_READ_IN_PASSING, LongFetch, read_in_turns
from broker.network.later import Later
from broker.network.turns import PER_TURN, portions
from broker.replicas.delayed_fetch import DelayedFetch
from broker.replicas.fetch_sessions import NO_SESSION, FetchPlan
from broker.replicas.fetch_targets import FetchTarget
from broker.replicas.fetching import FetchParameters, Reading, Results, refusal
from broker.replicas.replica import NO_BROKER_EPOCH
from broker.security.authorizer import CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, READ, TOPIC
from protocol.errors import Error
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from protocol.wire.codec import encoder

if TYPE_CHECKING:
    from broker.environment.clock import Clock
    from broker.environment.scheduler import Scheduler
    from broker.network.context import RequestContext
    from broker.network.turns import RequestSteps, Turns
    from broker.quotas.client_quotas import ClientQuotas
    from broker.replicas.current_leaders import CurrentLeaders
    from broker.replicas.fetch_sessions import FetchSessions
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

FRAME_SIZE_BYTES = 4  # counted by quotas on fetched bytes, beside the body

FIRST_VERSION_TOLD_LEADERS = 16
TOLD_WITH_LEADER = (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH)


def handle(
    partitions: Partitions,
    fetch_sessions: FetchSessions,
    fetch_max_bytes: int,
    quotas: ClientQuotas,
    current_leaders: CurrentLeaders,
    authorizer: Authorizer,
    clock: Clock,
    scheduler: Scheduler,
    turns: Turns,
    context: RequestContext,
    request: FetchRequest,
) -> FetchResponse | Later[FetchResponse]:
    by_id = context.api_version >= 13
    named = [(topic.topic_id if by_id else topic.topic, topic.partitions) for topic in request.topics]
    has_one = len(named) == 1 and len(named[0][1]) == 1 and not request.forgotten_topics_data  # as most have
    if not has_one and _names_many(request):
        begins = fetch_sessions.begin_in_turns(
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            by_id=by_id,
            wanted=named,
            forgotten=request.forgotten_topics_data,
            now_ms=clock.now_ms(),
        )
        go_on = partial(
            _fetch,
            partitions,
            fetch_sessions,
            fetch_max_bytes,
            quotas,
            current_leaders,
            authorizer,
            clock,
            scheduler,
            turns,
            context,
            request,
        )
        return turns.answer(_once_begun(begins, go_on), context)
    plan = fetch_sessions.begin(
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        by_id=by_id,
        wanted=named,
        forgotten=request.forgotten_topics_data,
        now_ms=clock.now_ms(),
    )
    return _fetch(
        partitions,
        fetch_sessions,
        fetch_max_bytes,
        quotas,
        current_leaders,
        authorizer,
        clock,
        scheduler,
        turns,
        context,
        request,
        plan,
    )


def _fetch(
    partitions: Partitions,
    fetch_sessions: FetchSessions,
    fetch_max_bytes: int,
    quotas: ClientQuotas,
    current_leaders: CurrentLeaders,
    authorizer: Authorizer,
    clock: Clock,
    scheduler: Scheduler,
    turns: Turns,
    context: RequestContext,
    request: FetchRequest,
    plan: FetchPlan,
) -> FetchResponse | Later[FetchResponse]:
    """Once the session has taken the request over."""
    if plan.error:
        return FetchResponse(error_code=plan.error)
    parameters = FetchParameters(
        api_version=context.api_version,
        replica_id=request.replica_id if request.replica_state is None else request.replica_state.replica_id,
        replica_epoch=NO_BROKER_EPOCH
        if request.replica_state is None
        else request.replica_state.replica_epoch,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=_max_bytes(fetch_max_bytes, quotas, context, request),
        read_committed=request.isolation_level == READ_COMMITTED,
    )
    answers = _Answers(fetch_sessions, quotas, current_leaders, clock)
    if parameters.from_follower:
        if not authorizer.allows(context, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
            denied = Error.TOPIC_AUTHORIZATION_FAILED
            refusals = [(target, refusal(target, denied)) for target in plan.targets]
            return answers.answer(context, plan, refusals, parameters)

        def may_read(topic: str) -> bool:
            return True
    else:

        def may_read(topic: str) -> bool:
            return authorizer.allows(context, READ, TOPIC, topic)

    if len(plan.targets) > PER_TURN:
        reads = read_in_turns(partitions, parameters, plan.targets, may_read)
        return turns.answer(_in_turns(reads, scheduler, turns, answers, context, plan, request), context)
    reading = Reading(partitions, parameters, plan.targets, may_read)
    if _fails(request, reading):
        return _fail_all(request, plan.by_id)
    if not reading.may_wait:
        return answers.answer(context, plan, reading.results, parameters)
    if len(reading.found) > MOST_READ_IN_PASSING:
        fetch = LongFetch(reading, scheduler, turns)
        return turns.answer(_once_waited(fetch, answers, context, plan, reading), context)
    later: Later[FetchResponse] = Later()

    def reply(results: Results) -> None:
        try:
            response = answers.answer(context, plan, results, parameters)
        except Exception as error:
            later.fail(error)
        else:
            later.reply(response)

    delayed = DelayedFetch(reading, scheduler, reply, later.fail)
    if not delayed.is_over:
        later.on_abandon = delayed.abandon
    return later.answer()


def _names_many(request: FetchRequest) -> bool:
    named = len(request.topics) + len(request.forgotten_topics_data)
    for topic in request.topics:
        named += len(topic.partitions)
    for gone in request.forgotten_topics_data:
        named += len(gone.partitions)
    return named > PER_TURN


def _once_begun(
    begins: RequestSteps[FetchPlan], go_on: Callable[[FetchPlan], FetchResponse | Later[FetchResponse]]
) -> RequestSteps[FetchResponse]:
    plan = yield from begins
    yield None
    response = go_on(plan)
    if isinstance(response, Later):
        response = yield response
    return response


def _in_turns(
    reads: RequestSteps[Reading],
    scheduler: Scheduler,
    turns: Turns,
    answers: _Answers,
    context: RequestContext,
    plan: FetchPlan,
    request: FetchRequest,
) -> RequestSteps[FetchResponse]:
    """As `handle`, of many partitions."""
    yield None
    reading = yield from reads
    if _fails(request, reading):
        return _fail_all(request, plan.by_id)
    if reading.may_wait:
        fetch = LongFetch(reading, scheduler, turns)
        return (yield from _once_waited(fetch, answers, context, plan, reading))
    return (yield from answers.answer_in_turns(context, plan, reading.results, reading.parameters))


def _once_waited(
    fetch: LongFetch, answers: _Answers, context: RequestContext, plan: FetchPlan, reading: Reading
) -> RequestSteps[FetchResponse]:
    yield from fetch.wait()
    return (yield from answers.answer_in_turns(context, plan, reading.results, reading.parameters))


def _max_bytes(
    fetch_max_bytes: int, quotas: ClientQuotas, context: RequestContext, request: FetchRequest
) -> int:
    """At most what a quota lets through at once, or the consumer would be throttled by each of its fetches."""
    allowed = min(request.max_bytes, fetch_max_bytes)
    if quotas.enforced:
        most = quotas.fetch.most_at_once(context.principal.name, context.client_id or "")
        if most is not None:
            return int(min(allowed, most))
    return allowed


def _fails(request: FetchRequest, reading: Reading) -> bool:
    """Of an isolation level that there isn't; who reads nothing isn't asked for it."""
    return bool(reading.found) and request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED)


def _fail_all(request: FetchRequest, by_id: bool) -> FetchResponse:
    """Kafka's answer where it fails on a request: below v13 each partition that was *asked for* says so as well."""
    topics = []
    if not by_id:
        for topic in request.topics:
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
            topics.append(FetchableTopicResponse(topic=topic.topic, partitions=partitions))
    return FetchResponse(
        error_code=Error.UNKNOWN_SERVER_ERROR, session_id=request.session_id, responses=topics
    )


class _Answers:
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
        if self._quotas.enforced:
            throttle_ms = self._throttled(context, plan, results)
            if throttle_ms > 0:
                return _withheld(plan, throttle_ms)
        session_id, listed = self._sessions.finish(plan, results, self._clock.now_ms())
        response = FetchResponse.of(session_id=session_id, responses=_by_topic(listed, []))
        if context.api_version >= FIRST_VERSION_TOLD_LEADERS:
            self._tell_leaders(response, listed, context, parameters)
        return response

    def answer_in_turns(
        self, context: RequestContext, plan: FetchPlan, results: Results, parameters: FetchParameters
    ) -> RequestSteps[FetchResponse]:
        """As `answer`, of many partitions."""
        if self._quotas.enforced:
            throttle_ms = self._throttled(context, plan, results)
            if throttle_ms > 0:
                return _withheld(plan, throttle_ms)
            yield None
        session_id, listed = yield from self._sessions.finish_in_turns(plan, results, self._clock.now_ms())
        response = FetchResponse.of(session_id=session_id, responses=[])
        for some in portions(listed):
            _by_topic(some, response.responses)
            if context.api_version >= FIRST_VERSION_TOLD_LEADERS:
                self._tell_leaders(response, some, context, parameters)
            if len(some) == PER_TURN:
                yield None
        return response

    def _tell_leaders(
        self,
        response: FetchResponse,
        listed: Sequence[tuple[FetchTarget, PartitionData]],
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
        quota = self._quotas.fetch
        told = results if plan.session is None else [each for each in results if each[0].is_news(each[1])]
        answer: list[bytes | bytearray | memoryview] = []
        encoder(FetchResponse, context.api_version)(FetchResponse(responses=_by_topic(told, [])), answer)
        size = FRAME_SIZE_BYTES + sum(map(len, answer))
        now_ms = self._clock.now_ms()
        user, client_id = context.principal.name, context.client_id or ""
        throttle_ms = quota.charge(user, client_id, size, now_ms)
        if throttle_ms > 0:
            quota.charge(user, client_id, -size, now_ms)
        return throttle_ms


def _withheld(plan: FetchPlan, throttle_ms: int) -> FetchResponse:
    known = plan.session
    return FetchResponse(
        throttle_time_ms=throttle_ms, session_id=NO_SESSION if known is None else known.session_id
    )


def _by_topic(
    listed: Sequence[tuple[FetchTarget, PartitionData]], topics: list[FetchableTopicResponse]
) -> list[FetchableTopicResponse]:
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
