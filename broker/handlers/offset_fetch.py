"""OffsetFetch (9), versions 1 to 10.

v2: null asks for all topics, and an error of the group has a place; v5: leader epochs; v6: flexible; v7: require_stable
(KIP-447); v8: several groups at once (KIP-709); v9: member id and epoch, which only a consumer group looks at; v10:
topic ids instead of names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.group.offsets.fetching import INVALID_OFFSET
from protocol.errors import Error, KafkaError
from protocol.messages.groups_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server

GROUP_ERROR_VERSION = 2
BATCH_VERSION = 8
TOPIC_ID_VERSION = 10


def handle(server: Server, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    version = context.api_version
    if version >= BATCH_VERSION:
        return OffsetFetchResponse(
            groups=[_group(server, version, group, request.require_stable) for group in request.groups]
        )
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    answer = _group(server, version, asked, request.require_stable)
    if answer.error_code != Error.NONE and version < GROUP_ERROR_VERSION:
        error = Error(answer.error_code)
        answer.error_code = Error.NONE
        answer.topics = [_refused(topic, error) for topic in topics or ()]
    return OffsetFetchResponse(
        error_code=answer.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in answer.topics
        ],
    )


def _group(
    server: Server, version: int, asked: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(group_id=asked.group_id)
    image = server.metadata.image
    by_id = version >= TOPIC_ID_VERSION
    try:
        shard = server.groups.shard_of(asked.group_id)
        shard.check_fetch(asked.group_id, asked.member_id, asked.member_epoch)
        if asked.topics is None:
            answer.topics = shard.fetch_all_offsets(asked.group_id, require_stable=require_stable)
            if by_id:
                answer.topics = [topic for topic in answer.topics if topic.name in image.topics]
                for topic in answer.topics:
                    topic.topic_id = image.topics[topic.name].topic_id
            return answer
        known = asked.topics
        unknown = []
        if by_id:
            unknown = [topic for topic in asked.topics if topic.topic_id not in image.topics_by_id]
            known = [topic for topic in asked.topics if topic.topic_id in image.topics_by_id]
            for wanted in known:
                wanted.name = image.topics_by_id[wanted.topic_id].name
        else:
            for wanted in known:
                wanted.topic_id = ZERO_UUID
        answer.topics = shard.fetch_offsets(asked.group_id, known, require_stable=require_stable)
        answer.topics += [_refused(topic, Error.UNKNOWN_TOPIC_ID) for topic in unknown]
    except KafkaError as error:
        answer.error_code = error.error
    return answer


def _refused(topic: OffsetFetchRequestTopics, error: Error) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=INVALID_OFFSET, metadata="", error_code=error
            )
            for index in topic.partition_indexes
        ],
    )
