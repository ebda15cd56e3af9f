"""OffsetForLeaderEpoch (23), versions 2 to 4: the end of a partition's leader epoch (KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import Error, KafkaError
from protocol.messages.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import ReplicaPorts
    from broker.network.context import RequestContext
    from broker.replicas.partitions import Partitions


def handle(
    node: ReplicaPorts,
    context: RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse:
    """Brokers may ask for any topic, clients for those that they may describe. Refused topics come last."""
    by_broker = node.authorizer.allows(
        context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, log_denied=False
    )
    allowed = {
        name: by_broker or node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        for name in dict.fromkeys(topic.topic for topic in request.topics)
    }
    answers = []
    refused = []
    for topic in request.topics:
        if allowed[topic.topic]:
            ends = [_end_of_epoch(node.partitions, topic.topic, asked) for asked in topic.partitions]
            answers.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
        else:
            ends = [
                EpochEndOffset(partition=asked.partition, error_code=Error.TOPIC_AUTHORIZATION_FAILED)
                for asked in topic.partitions
            ]
            refused.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
    return OffsetForLeaderEpochResponse(topics=answers + refused)


def _end_of_epoch(partitions: Partitions, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    try:
        partition = partitions.get(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        log = partition.leader().log
    except KafkaError as error:
        answer.error_code = error.error
        return answer
    answer.leader_epoch, answer.end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    return answer
