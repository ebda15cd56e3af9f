"""Fetch (1), versions 4 to 18.

v5: log start offset; v7: sessions (KIP-227); v9: current leader epoch (KIP-320); v11: rack (KIP-392); v12: last
fetched epoch and the diverging epoch (KIP-595); v13: topic ids (KIP-516); v15: ReplicaState (KIP-903); v16: the
current leader in answers (KIP-951); v17: the replica's directory; v18: the replica's high watermark.

A follower takes what isn't committed yet, as far as no quota on replication throttles it, and by what it asks for its
leader knows what it has. A consumer may read from any replica since v11, and is sent to the one in its rack where
`replica.selector.class` says so; snapshots and tiered storage have nothing to say here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.handlers.fetch_answers import FetchAnswers, failed_fetch
from broker.handlers.follower_answers import FollowerAnswers
from broker.handlers.long_fetch import MOST_READ_IN_PASSING, LongFetch, read_in_turns
from broker.network.later import Later
from broker.network.turns import PER_TURN, in_turns
from broker.replicas.delayed_fetch import DelayedFetch
from broker.replicas.fetch_sessions import FetchPlan
from broker.replicas.fetch_targets import FetchTarget
from broker.replicas.fetching import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchParameters,
    Reading,
    Results,
    refusal,
)
from broker.replicas.replica import NO_BROKER_EPOCH
from broker.security.authorizer import CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, READ, TOPIC
from protocol.errors import Error
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
)
from protocol.waiting import Waiting, turn

if TYPE_CHECKING:
    from broker.environment.scheduler import Clock, Scheduler
    from broker.handlers.node_ports import ReplicaPorts
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from broker.quotas import ClientQuotas, ReplicationQuotas
    from broker.replicas.current_leaders import CurrentLeaders
    from broker.replicas.fetch_sessions import FetchSessions
    from broker.replicas.partitions import Partitions
    from broker.replicas.replica_selector import RackAwareReplicaSelector
    from broker.security.authorizer import Authorizer


def handle(
    node: ReplicaPorts,
    context: RequestContext,
    request: FetchRequest,
) -> FetchResponse | Later[FetchResponse]:
    by_id = context.api_version >= 13
    named = [(topic.topic_id if by_id else topic.topic, topic.partitions) for topic in request.topics]
    go_on = partial(
        _fetch,
        node.partitions,
        node.fetch_sessions,
        node.fetch_max_bytes,
        node.quotas,
        node.current_leaders,
        node.authorizer,
        node.clock,
        node.scheduler,
        node.turns,
        node.replica_selector,
        node.replication_quotas,
        context,
        request,
    )
    has_one = len(named) == 1 and len(named[0][1]) == 1 and not request.forgotten_topics_data  # as most have
    if not has_one and _names_many(request):
        begins = node.fetch_sessions.begin_in_turns(
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            by_id=by_id,
            wanted=named,
            forgotten=request.forgotten_topics_data,
            now_ms=node.clock.now_ms(),
        )
        return node.turns.answer(_once_begun(begins, go_on), context)
    plan = node.fetch_sessions.begin(
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        by_id=by_id,
        wanted=named,
        forgotten=request.forgotten_topics_data,
        now_ms=node.clock.now_ms(),
    )
    return go_on(plan)


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
    replica_selector: Callable[[RequestContext, str], RackAwareReplicaSelector] | None,
    replication_quotas: ReplicationQuotas,
    context: RequestContext,
    request: FetchRequest,
    plan: FetchPlan,
) -> FetchResponse | Later[FetchResponse]:
    """Once the session has taken the request over."""
    if plan.error:
        return FetchResponse(error_code=plan.error)
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    context.is_between_nodes = replica_id >= 0
    leader_quota = replication_quotas.leader if context.is_between_nodes else None
    parameters = FetchParameters(
        api_version=context.api_version,
        replica_id=replica_id,
        replica_epoch=NO_BROKER_EPOCH
        if request.replica_state is None
        else request.replica_state.replica_epoch,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=_max_bytes(fetch_max_bytes, quotas, context, request, replica_id),
        read_committed=request.isolation_level == READ_COMMITTED,
        selector=replica_selector(context, request.rack_id) if replica_selector and request.rack_id else None,
        leader_quota=leader_quota,
    )
    answers = FetchAnswers(fetch_sessions, quotas, current_leaders, clock)
    if leader_quota is not None:
        answers = FollowerAnswers(fetch_sessions, quotas, current_leaders, clock, leader_quota)
        if not authorizer.allows(context, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
            return turns.answer(_refuse_all(answers, turns, context, plan, parameters), context)

        def may_read(topic: str) -> bool:
            return True
    else:

        def may_read(topic: str) -> bool:
            return authorizer.allows(context, READ, TOPIC, topic)

    if len(plan.targets) > PER_TURN:
        reads = partial(read_in_turns, partitions, parameters, plan.targets, may_read)
        return turns.answer(_in_turns(reads, scheduler, turns, answers, context, plan, request), context)
    reading = Reading(partitions, parameters, plan.targets, may_read)
    if _fails(request, reading):
        return turns.answer(failed_fetch(request, by_id=plan.by_id), context)
    if not reading.may_wait:
        return answers.answer(context, plan, reading.results, parameters)
    if len(reading.found) > MOST_READ_IN_PASSING:
        fetch = LongFetch(reading, scheduler, turns)
        return turns.answer(_once_waited(fetch, answers, turns, context, plan, reading), context)
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


async def _once_begun(
    begins: Waiting[FetchPlan], go_on: Callable[[FetchPlan], FetchResponse | Later[FetchResponse]]
) -> FetchResponse:
    plan = await begins
    await turn()
    response = go_on(plan)
    if isinstance(response, Later):
        response = await response
    return response


async def _in_turns(
    reads: Callable[[], Waiting[Reading]],
    scheduler: Scheduler,
    turns: Turns,
    answers: FetchAnswers,
    context: RequestContext,
    plan: FetchPlan,
    request: FetchRequest,
) -> FetchResponse:
    """As `handle`, of many partitions."""
    await turn()
    reading = await reads()
    if _fails(request, reading):
        return await failed_fetch(request, by_id=plan.by_id)
    if reading.may_wait:
        fetch = LongFetch(reading, scheduler, turns)
        return await _once_waited(fetch, answers, turns, context, plan, reading)
    return await answers.answer_in_turns(turns, context, plan, reading.results, reading.parameters)


async def _once_waited(
    fetch: LongFetch,
    answers: FetchAnswers,
    turns: Turns,
    context: RequestContext,
    plan: FetchPlan,
    reading: Reading,
) -> FetchResponse:
    await fetch.wait()
    return await answers.answer_in_turns(turns, context, plan, reading.results, reading.parameters)


async def _refuse_all(
    answers: FetchAnswers, turns: Turns, context: RequestContext, plan: FetchPlan, parameters: FetchParameters
) -> FetchResponse:
    """The answer to a follower that may not be one."""
    denied = Error.TOPIC_AUTHORIZATION_FAILED
    refusals: Results = []

    def refuse(targets: Sequence[FetchTarget]) -> None:
        refusals.extend([(target, refusal(target, denied)) for target in targets])

    await in_turns(plan.targets, refuse)
    return await answers.answer_in_turns(turns, context, plan, refusals, parameters)


def _max_bytes(
    fetch_max_bytes: int,
    quotas: ClientQuotas,
    context: RequestContext,
    request: FetchRequest,
    replica_id: int,
) -> int:
    """At most what a quota lets through at once, or the consumer would be throttled by each of its fetches. A
    follower has no such quota."""
    allowed = min(request.max_bytes, fetch_max_bytes)
    if quotas.enforced and replica_id < 0:
        most = quotas.fetch.most_at_once(context.principal.name, context.client_id or "")
        if most is not None:
            return int(min(allowed, most))
    return allowed


def _fails(request: FetchRequest, reading: Reading) -> bool:
    """Of an isolation level that there isn't; who reads nothing isn't asked for it."""
    return bool(reading.found) and request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED)
