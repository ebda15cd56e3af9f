"""DescribeTopicPartitions (75), version 0 (KIP-966): topics sorted by name, in pages of partitions.

A page ends after `ResponsePartitionLimit` partitions, at most `max.request.partition.size.limit`; the cursor of the
answer says where the next one begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.assigned_directories import offline_replicas
from broker.controller.authorized_operations import TOPIC_OPERATIONS
from broker.controller.image import TopicImage
from broker.controller.topic_names import invalid_name_reason, is_internal
from protocol.errors import Error
from protocol.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image = server.metadata.image
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
    left = max(
        1, min(request.response_partition_limit, server.config.get_int("max.request.partition.size.limit"))
    )
    response = DescribeTopicPartitionsResponse()
    for name in sorted(names):
        if name < first_topic:
            continue
        if left <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        begin = first_index if name == first_topic else 0
        indexes = sorted(index for index in topic.partitions if index >= begin)
        response.topics.append(_topic(server, topic, indexes[:left]))
        if len(indexes) > left:
            response.next_cursor = Cursor(topic_name=name, partition_index=indexes[left])
            break
        left -= len(indexes)
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
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic(server: Server, topic: TopicImage, indexes: list[int]) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in indexes:
        partition = topic.partitions[index]
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=Error.NONE if partition.leader >= 0 else Error.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=partition.elr,
                last_known_elr=partition.last_known_elr,
                offline_replicas=offline_replicas(partition, server.node_id, server.log_dirs.ids),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
