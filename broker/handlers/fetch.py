"""Fetch (1), versions 4 to 18.

v5: log start offset; v7: sessions (KIP-227); v9: current leader epoch (KIP-320); v11: rack (KIP-392); v12: last
fetched epoch and the diverging epoch (KIP-595); v13: topic ids (KIP-516); v15: ReplicaState (KIP-903); v16: the
current leader in answers (KIP-951); v17: the replica's directory; v18: the replica's high watermark.

There are no followers yet: a replica id is answered with NOT_LEADER_OR_FOLLOWER. Preferred read replicas, snapshots
and tiered storage have nothing to say on one node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from broker.replicas.fetch_sessions import NO_SESSION, FetchPlan, FetchTarget
from broker.replicas.fetching import DelayedFetch, FetchParameters, Reading, Results
from protocol.errors import Error
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from protocol.wire.codec import encoder

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

FRAME_SIZE_BYTES = 4  # counted by quotas on fetched bytes, beside the body


def handle(
    server: Server, context: RequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    by_id = context.api_version >= 13
    plan = server.fetch_sessions.begin(
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        by_id=by_id,
        wanted=[(topic.topic_id if by_id else topic.topic, topic.partitions) for topic in request.topics],
        forgotten=request.forgotten_topics_data,
        now_ms=server.clock.now_ms(),
    )
    if plan.error:
        return FetchResponse(error_code=plan.error)
    parameters = FetchParameters(
        api_version=context.api_version,
        replica_id=request.replica_id if request.replica_state is None else request.replica_state.replica_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=_max_bytes(server, context, request),
        read_committed=request.isolation_level == READ_COMMITTED,
    )
    reading = Reading(server.partitions, parameters, plan.targets)
    if reading.found and request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _fail_all(request, by_id)
    if (
        reading.must_answer
        or reading.bytes_read >= parameters.min_bytes
        or request.max_wait_ms <= 0
        or not reading.found
    ):
        return _answer(server, context, plan, parameters, reading.results)
    delayed = DelayedFetch(server.partitions, server.scheduler, parameters, reading)
    if delayed.answer.done():
        return _answer(server, context, plan, parameters, delayed.answer.result())
    return _wait(server, context, plan, parameters, delayed)


async def _wait(
    server: Server,
    context: RequestContext,
    plan: FetchPlan,
    parameters: FetchParameters,
    delayed: DelayedFetch,
) -> FetchResponse:
    return _answer(server, context, plan, parameters, await delayed.answer)


def _max_bytes(server: Server, context: RequestContext, request: FetchRequest) -> int:
    """At most what a quota lets through at once, or the consumer would be throttled by each of its fetches."""
    allowed = min(request.max_bytes, server.fetch_max_bytes)
    if server.quotas.enforced:
        most = server.quotas.fetch.most_at_once(context.client_id or "")
        if most is not None:
            return int(min(allowed, most))
    return allowed


def _throttled(server: Server, context: RequestContext, plan: FetchPlan, results: Results) -> int:
    """For how long the consumer has to wait instead of being answered; what it isn't given isn't charged."""
    told = results if plan.session is None else [each for each in results if each[0].is_news(each[1])]
    answer: list[bytes | bytearray | memoryview] = []
    encoder(FetchResponse, context.api_version)(FetchResponse(responses=_by_topic(told)), answer)
    size = FRAME_SIZE_BYTES + sum(map(len, answer))
    now_ms = server.clock.now_ms()
    client_id = context.client_id or ""
    throttle_ms = server.quotas.fetch.charge(client_id, size, now_ms)
    if throttle_ms > 0:
        server.quotas.fetch.charge(client_id, -size, now_ms)
    return throttle_ms


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


def _answer(
    server: Server, context: RequestContext, plan: FetchPlan, parameters: FetchParameters, results: Results
) -> FetchResponse:
    if server.quotas.enforced:
        throttle_ms = _throttled(server, context, plan, results)
        if throttle_ms > 0:
            known = plan.session
            return FetchResponse(
                throttle_time_ms=throttle_ms, session_id=NO_SESSION if known is None else known.session_id
            )
    session_id, listed = server.fetch_sessions.finish(plan, results, server.clock.now_ms())
    response = FetchResponse(session_id=session_id, responses=_by_topic(listed))
    if parameters.replica_id < 0 and any(answer.current_leader is not None for _, answer in listed):
        endpoint = server.endpoints.advertised(context.listener_name)
        if endpoint is not None:
            host, port = endpoint
            response.node_endpoints.append(
                NodeEndpoint(node_id=server.node_id, host=host, port=port, rack=server.rack)
            )
    return response


def _by_topic(listed: Sequence[tuple[FetchTarget, PartitionData]]) -> list[FetchableTopicResponse]:
    topics: list[FetchableTopicResponse] = []
    last: str | bytes | None = None
    for target, answer in listed:
        if target.topic != last:
            # As in Kafka, partitions of a topic share an entry only where they follow one another.
            last = target.topic
            topics.append(
                FetchableTopicResponse(topic_id=last)
                if isinstance(last, bytes)
                else FetchableTopicResponse(topic=last)
            )
        topics[-1].partitions.append(answer)
    return topics
