"""Fetch (1), versions 4 to 18.

v5: log start offset; v7: sessions (KIP-227); v9: current leader epoch (KIP-320); v11: rack (KIP-392); v12: last
fetched epoch and the diverging epoch (KIP-595); v13: topic ids (KIP-516); v15: ReplicaState (KIP-903); v16: the
current leader in answers (KIP-951); v17: the replica's directory; v18: the replica's high watermark.

A follower also gets records that aren't committed yet, unless a quota on replication throttles it. The offset it asks
for tells its leader what it has. Since v11 a consumer may read from any replica, and `replica.selector.class` may send
it to the one in its rack. Snapshots and tiered storage play no part here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from broker.network.pieces import EntryList, pieces
from broker.network.turns import PER_TURN, in_turns, portions
from broker.replicas.fetch_sessions import NO_SESSION
from broker.replicas.fetching import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    DelayedFetch,
    FetchParameters,
    Reading,
    Results,
    refusal,
)
from broker.replicas.replica import NO_BROKER_EPOCH
from broker.security.authorizer import CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, READ, TOPIC
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
from protocol.wire.codec import encoder_in_steps

if TYPE_CHECKING:
    from broker.handlers.node_ports import ReplicaPorts
    from broker.network.context import RequestContext
    from broker.quotas import ClientQuotas
    from broker.replicas.current_leaders import CurrentLeaders
    from broker.replicas.fetch_sessions import FetchPlan, FetchTarget

Listed: TypeAlias = "Sequence[tuple[FetchTarget, PartitionData]]"

FRAME_SIZE_BYTES = 4  # counted by quotas on fetched bytes, beside the body

FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_TOLD_LEADERS = 16
TOLD_WITH_LEADER = (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH)

FETCHED_PARTITIONS = EntryList("topics", "responses", "partitions", "partitions", at_once=PER_TURN)
"""The part of a request that one turn goes through."""


async def handle(node: ReplicaPorts, context: RequestContext, request: FetchRequest) -> FetchResponse:
    version = context.api_version

    # 1. The session takes over what the request names.
    by_id = version >= FIRST_VERSION_WITH_IDS
    sessions, now_ms = node.fetch_sessions, node.clock.now_ms
    plan = await sessions.begin(
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        by_id=by_id,
        wanted=[(topic.topic_id if by_id else topic.topic, topic.partitions) for topic in request.topics],
        forgotten=request.forgotten_topics_data,
        now_ms=now_ms,
    )
    if plan.error:
        return FetchResponse(error_code=plan.error)

    # 2. The terms of reading.
    state, quotas, authorizer = request.replica_state, node.quotas, node.authorizer
    replica_id = request.replica_id if state is None else state.replica_id
    max_bytes = min(request.max_bytes, node.fetch_max_bytes)
    leader_quota = selector = None
    if replica_id >= 0:
        context.is_between_nodes = True
        leader_quota = node.replication_quotas.leader
    elif quotas.enforced:
        max_bytes = _within_quota(quotas, context, max_bytes)
    if request.rack_id and node.replica_selector:
        selector = node.replica_selector(context, request.rack_id)
    parameters = FetchParameters(
        api_version=version,
        replica_id=replica_id,
        replica_epoch=NO_BROKER_EPOCH if state is None else state.replica_epoch,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=max_bytes,
        read_committed=request.isolation_level == READ_COMMITTED,
        selector=selector,
        leader_quota=leader_quota,
    )

    targets = plan.targets
    is_long = len(targets) > PER_TURN
    if leader_quota is not None and not authorizer.allows(context, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
        results = await _refused(targets)
    else:
        # 3. Read what is there, many partitions in turns.
        may_read = None  # a follower may read all
        if leader_quota is None and not authorizer.allows_everything:
            may_read = partial(authorizer.allows, context, READ, TOPIC)
        reading = Reading(node.partitions, parameters, may_read)
        for some in portions(targets) if is_long else (targets,):
            if is_long:
                await turn()
            reading.read(some)
        if reading.found and request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            return await _failed_whole(request, by_id=by_id)

        # 4. Wait until there is enough, or the time is over; then read again.
        if reading.may_wait:
            reading.forget()
            await DelayedFetch(reading).wait(node.scheduler, node.turns)
            for again in portions(reading.found):
                if is_long:
                    await turn()
                reading.read_anew(again)
        results = reading.results if reading.unknown_ids or reading.refused else reading.answers

    # 5. Charge the quotas. A consumer isn't charged for an answer that it doesn't get.
    if leader_quota is not None:
        if leader_quota.throttled:
            is_throttled = leader_quota.is_throttled

            def counted(some: Listed) -> Listed:
                """Throttled partitions count, whether their replicas are in sync or not."""
                return [
                    each for each in news_of(plan, some) if is_throttled(each[0].topic_name, each[0].index)
                ]

            leader_quota.record(await _size(node, context, results, counted))
    elif quotas.enforced:
        throttle_ms = await _throttled(node, context, plan, results)
        if throttle_ms > 0:
            known = plan.session
            session_id = NO_SESSION if known is None else known.session_id
            return FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id)

    # 6. Answer, and update the session.
    session_id, listed = NO_SESSION, results
    if plan.session is not None or plan.of_new_session is not None:
        session_id, listed = await sessions.finish(plan, results, now_ms)
    response = FetchResponse.of(session_id=session_id, responses=[])
    for part in portions(listed) if is_long else (listed,):
        _by_topic(part, response.responses)
        if version >= FIRST_VERSION_TOLD_LEADERS:
            _tell_leaders(node.current_leaders, response, part, context, parameters)
        if len(part) == PER_TURN:
            await turn()
    return response


def _within_quota(quotas: ClientQuotas, context: RequestContext, max_bytes: int) -> int:
    """Limit the bytes to what the quota lets through at once. Else each fetch would throttle the consumer."""
    most = quotas.fetch.most_at_once(context.principal.name, context.client_id or "")
    return max_bytes if most is None else int(min(max_bytes, most))


async def _refused(targets: Sequence[FetchTarget]) -> Results:
    """The answer to a follower without the right to be one."""
    refusals: Results = []

    def refuse(some: Sequence[FetchTarget]) -> None:
        refusals.extend([(target, refusal(target, Error.TOPIC_AUTHORIZATION_FAILED)) for target in some])

    await in_turns(targets, refuse)
    return refusals


async def _failed_whole(request: FetchRequest, *, by_id: bool) -> FetchResponse:
    """Kafka's answer if it fails on a request. Below v13 each *requested* partition has the error, too."""
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


# --- what quotas say of an answer (`KafkaApis.handleFetchRequest`, `KafkaApis.sizeOfThrottledPartitions`) ---------


async def _throttled(node: ReplicaPorts, context: RequestContext, plan: FetchPlan, results: Results) -> int:
    """Charge the answer. Returns how long, in ms, the consumer has to wait instead of getting it."""
    size = await _size(node, context, results, partial(news_of, plan))
    quota, now_ms = node.quotas.fetch, node.clock.now_ms()
    user, client_id = context.principal.name, context.client_id or ""
    throttle_ms = quota.charge(user, client_id, size, now_ms)
    if throttle_ms > 0:
        quota.charge(user, client_id, -size, now_ms)
    return throttle_ms


async def _size(
    node: ReplicaPorts, context: RequestContext, results: Results, listed_of: Callable[[Listed], Listed]
) -> int:
    """The size in bytes of an answer with these results, as quotas count it. `listed_of` picks those that count."""
    topics: list[FetchableTopicResponse] = []
    for some in portions(results):
        _by_topic(listed_of(some), topics)
        if len(some) == PER_TURN:
            await turn()
    size = FRAME_SIZE_BYTES
    chunks: list[bytes | bytearray | memoryview] = []
    for _ in encoder_in_steps(FetchResponse, context.api_version)(FetchResponse(responses=topics), chunks):
        size += sum(map(len, chunks))
        chunks.clear()
        if node.turns.is_over:
            await turn()
    return size + sum(map(len, chunks))


def news_of(plan: FetchPlan, results: Listed) -> Listed:
    """The results that the answer will list."""
    return results if plan.session is None else [each for each in results if each[0].is_news(each[1])]


# --- the answer -------------------------------------------------------------------------------------------------


def _by_topic(listed: Listed, topics: list[FetchableTopicResponse]) -> None:
    """Append the partitions to `topics`."""
    last = topics[-1].topic or topics[-1].topic_id if topics else None
    for target, answer in listed:
        if target.topic != last:
            # As in Kafka, partitions of a topic share an entry only if they follow one another.
            last = target.topic
            topics.append(
                FetchableTopicResponse.of(topic_id=last)
                if isinstance(last, bytes)
                else FetchableTopicResponse.of(topic=last)
            )
        topics[-1].partitions.append(answer)


def _tell_leaders(
    leaders: CurrentLeaders,
    response: FetchResponse,
    listed: Listed,
    context: RequestContext,
    parameters: FetchParameters,
) -> None:
    """Name the current leaders, and their addresses for consumers. A follower knows these from its metadata."""
    for target, answer in listed:
        if answer.error_code not in TOLD_WITH_LEADER:
            continue
        leader_id, leader_epoch = leaders.of(target.topic_name, target.index)
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        if parameters.from_follower or any(each.node_id == leader_id for each in response.node_endpoints):
            continue
        node = leaders.node(leader_id, context.listener_name)
        if node is not None:
            response.node_endpoints.append(
                NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            )
