"""Fetch (1), versions 4 to 18.

v5: log start offset; v7: sessions (KIP-227); v9: current leader epoch (KIP-320); v11: rack (KIP-392); v12: last
fetched epoch and the diverging epoch (KIP-595); v13: topic ids (KIP-516); v15: ReplicaState (KIP-903); v16: the
current leader in answers (KIP-951); v17: the replica's directory; v18: the replica's high watermark.

There are no followers yet: a replica id is answered with NOT_LEADER_OR_FOLLOWER. Preferred read replicas, snapshots
and tiered storage have nothing to say on one node.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from broker.fetch_sessions import FetchPlan
from broker.fetching import DelayedFetch, FetchParameters, Reading, Results
from protocol.errors import Error
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from broker.context import RequestContext
    from broker.server import Server

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


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
        max_bytes=min(request.max_bytes, server.fetch_max_bytes),
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
    delayed = DelayedFetch(server.partitions, parameters, reading)
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
    session_id, listed = server.fetch_sessions.finish(plan, results, server.clock.now_ms())
    topics: list[FetchableTopicResponse] = []
    response = FetchResponse(session_id=session_id, responses=topics)
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
        if answer.current_leader is not None and parameters.replica_id < 0 and not response.node_endpoints:
            endpoint = server.advertised_endpoint(context.listener_name)
            if endpoint is not None:
                host, port = endpoint
                response.node_endpoints.append(
                    NodeEndpoint(node_id=server.node_id, host=host, port=port, rack=server.rack)
                )
    return response
