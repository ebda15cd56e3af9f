"""CreatePartitions (37), versions 0 to 3: adds partitions to a topic. They begin empty, and stay for good.

Source: ControllerApis.createPartitions.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.security.authorizer import Operation, ResourceType, denied
from coordinator.java.maps import JavaMap
from protocol.errors import Error, KafkaError
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer


async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse:
    times_named = Counter(topic.name for topic in request.topics)
    if request.timeout_ms <= 0:
        late = KafkaError(Error.REQUEST_TIMED_OUT)
        return CreatePartitionsResponse(results=[_result(name, late) for name in times_named])
    mutations = node.quotas.mutations_of(context, strict_since=3, now_ms=node.clock.now_ms())

    refused, wanted = await _chosen(node.authorizer, context, request, times_named)
    outcomes = await node.turns.to_the_end(
        node.topics.add_partitions(wanted, validate_only=request.validate_only, take=mutations.take)
    )
    if isinstance(outcomes, KafkaError):
        results = [_result(topic.name, outcomes) for topic in request.topics]
    else:
        results = refused + [_result(topic.name, error) for topic, error in outcomes]
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_ms, results=results)


async def _chosen(
    authorizer: Authorizer,
    context: RequestContext,
    request: CreatePartitionsRequest,
    times_named: Counter[str],
) -> tuple[list[CreatePartitionsTopicResult], list[CreatePartitionsTopic]]:
    """The results of topics that their name alone rules out, and the other topics.

    These are in the order of Kafka's map: in this order Kafka counts them against the limit of a request."""
    twice = KafkaError(Error.INVALID_REQUEST, "Duplicate topic name.")
    refused = [_result(name, twice) for name, times in times_named.items() if times > 1]
    by_name: JavaMap[str, CreatePartitionsTopic] = JavaMap()
    pause = Pause()
    for topic in request.topics:
        if pause.is_due():
            await turn()
        by_name[topic.name] = topic
    wanted = []
    for name, topic in by_name.items():
        if pause.is_due():
            await turn()
        if times_named[name] > 1:
            continue
        if authorizer.allows(context, Operation.ALTER, ResourceType.TOPIC, name):
            wanted.append(topic)
        else:
            refused.append(_result(name, KafkaError(denied(ResourceType.TOPIC).error)))
    return refused, wanted


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=error.error, error_message=error.message)
