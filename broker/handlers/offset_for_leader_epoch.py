"""OffsetForLeaderEpoch (23), versions 2 to 4: where an epoch of a partition ends (KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import KafkaError
from protocol.messages.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_of_epoch(server, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_of_epoch(server: Server, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    partition = server.partitions.find(topic, asked.partition)
    if partition is None:
        answer.error_code = server.partitions.missing(topic, asked.partition)
        return answer
    try:
        partition.check_leader_epoch(asked.current_leader_epoch)
    except KafkaError as error:
        answer.error_code = error.error
        return answer
    answer.leader_epoch, answer.end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    return answer
