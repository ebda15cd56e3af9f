"""CreatePartitions (37), versions 0 to 3: more partitions for a topic; they begin empty, and there is no way back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from coordinator.java.maps import JavaMap
from protocol.errors import Error, KafkaError
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    times_named = Counter(topic.name for topic in request.topics)
    if request.timeout_ms <= 0:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=name, error_code=Error.REQUEST_TIMED_OUT)
                for name in times_named
            ]
        )
    results = [
        CreatePartitionsTopicResult(
            name=name, error_code=Error.INVALID_REQUEST, error_message="Duplicate topic name."
        )
        for name, times in times_named.items()
        if times > 1
    ]
    by_name: JavaMap[str, CreatePartitionsTopic] = (
        JavaMap()
    )  # in whose order Kafka comes to the bound of a request
    for topic in request.topics:
        by_name[topic.name] = topic
    wanted = [topic for name, topic in by_name.items() if times_named[name] == 1]
    mutations = server.quotas.mutations_of(context, strict_since=3, now_ms=server.clock.now_ms())
    try:
        outcomes = server.topics.add_partitions(
            wanted, validate_only=request.validate_only, take=mutations.take
        )
    except KafkaError as refusal:
        results = []
        outcomes = [(topic, refusal) for topic in request.topics]
    for topic, error in outcomes:
        if error is None:
            results.append(CreatePartitionsTopicResult(name=topic.name))
        else:
            results.append(
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=error.error, error_message=error.message
                )
            )
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_ms, results=results)
