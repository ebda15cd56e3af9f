"""DescribeTopicPartitions (75), version 0 (KIP-966): topics sorted by name, in pages of partitions.

A page ends after `ResponsePartitionLimit` partitions, at most `max.request.partition.size.limit`; the cursor of the
answer says where the next one begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.controller.image import ListenerView, invalid_name_reason, is_internal
from broker.security.authorizer import Operation, ResourceType, authorized_operations
from protocol.errors import Error
from protocol.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import PartitionImage
    from broker.controller.metadata_log import MetadataLog
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer


async def handle(
    node: NodePorts,
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse:
    asked = _Asked(node.config, node.metadata, node.authorizer)
    return await _described(asked, context, request)


class _Asked(NamedTuple):
    """The parts of the node that an answer comes from."""

    config: BrokerConfig
    metadata: MetadataLog
    authorizer: Authorizer


async def _described(
    asked: _Asked, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    config, metadata, authorizer = asked
    pause = Pause()
    image = metadata.image
    view = ListenerView(image, context.listener_name)
    names = {topic.name for topic in request.topics}
    if "" in names:
        return _refuse_all(request, Error.UNKNOWN_SERVER_ERROR)  # Kafka fails on it
    every = not names
    if every:
        names = set(image.topics)
    first_topic, first_index = "", 0
    if request.cursor is not None:
        first_topic, first_index = request.cursor.topic_name, request.cursor.partition_index
        if first_index < 0 or (not every and first_topic not in names):
            return _refuse_all(request, Error.INVALID_REQUEST)
    allowed: list[str] = []
    denied: list[str] = []
    for name in sorted(names):
        if pause.is_due():
            await turn()
        if name < first_topic:
            continue
        may_see = authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        (allowed if may_see else denied).append(name)
    left = max(1, min(request.response_partition_limit, config.get_int("max.request.partition.size.limit")))
    response = DescribeTopicPartitionsResponse()
    for name in allowed:
        if pause.is_due():
            await turn()
        if left <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        begin = first_index if name == first_topic else 0
        indexes = sorted(index for index in topic.partitions if index >= begin)
        partitions = [_partition(index, topic.partitions[index], view) for index in indexes[:left]]
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=is_internal(topic.name),
                partitions=partitions,
            )
        )
        if len(indexes) > left:
            response.next_cursor = Cursor(topic_name=name, partition_index=indexes[left])
            break
        left -= len(indexes)
    for described in response.topics:
        if pause.is_due():
            await turn()
        described.topic_authorized_operations = authorized_operations(
            authorizer, context, ResourceType.TOPIC, described.name or ""
        )
    if not every:  # a client that didn't name a topic must not learn that it exists
        response.topics += [
            DescribeTopicPartitionsResponseTopic(error_code=Error.TOPIC_AUTHORIZATION_FAILED, name=name)
            for name in denied
        ]
    return response


def _refuse_all(request: DescribeTopicPartitionsRequest, error: Error) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=error, name=topic.name)
            for topic in request.topics
        ]
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    error = (
        Error.UNKNOWN_TOPIC_OR_PARTITION
        if invalid_name_reason(name) is None
        else Error.INVALID_TOPIC_EXCEPTION
    )
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name, is_internal=is_internal(name))


def _partition(
    index: int, partition: PartitionImage, view: ListenerView
) -> DescribeTopicPartitionsResponsePartition:
    """A partition has no error, as in Kafka, even if it has no leader."""
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=view.leader(partition),
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=partition.elr,
        last_known_elr=partition.last_known_elr,
        offline_replicas=view.offline_replicas(partition),
    )
