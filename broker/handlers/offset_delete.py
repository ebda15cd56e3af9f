"""OffsetDelete (47), version 0 (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import Operation, ResourceType
from protocol.errors import Error, KafkaError
from protocol.messages.groups_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.groups import Groups
    from broker.network.context import RequestContext
    from broker.network.later import Later
    from broker.security.authorizer import Authorizer


def handle(
    groups: Groups,
    metadata: MetadataLog,
    authorizer: Authorizer,
    context: RequestContext,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse | Later[OffsetDeleteResponse]:
    """An error of the group goes before everything else; unknown topics and partitions have their own."""
    group_id = request.group_id
    if not authorizer.allows(context, Operation.DELETE, ResourceType.GROUP, group_id):
        return OffsetDeleteResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return OffsetDeleteResponse(error_code=Error.INVALID_GROUP_ID)
    image = metadata.image
    topics: dict[str, OffsetDeleteResponseTopic] = {}
    known: list[tuple[str, int]] = []

    def add(name: str, index: int, error: Error) -> None:
        topic = topics.setdefault(name, OffsetDeleteResponseTopic(name=name))
        topic.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))

    for asked in request.topics:
        topic = image.topics.get(asked.name)
        allowed = authorizer.allows(context, Operation.READ, ResourceType.TOPIC, asked.name)
        for partition in asked.partitions:
            if not allowed:
                add(asked.name, partition.partition_index, Error.TOPIC_AUTHORIZATION_FAILED)
            elif topic is None or partition.partition_index not in topic.partitions:
                add(asked.name, partition.partition_index, Error.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                known.append((asked.name, partition.partition_index))

    def respond(found: list[Error] | KafkaError) -> OffsetDeleteResponse:
        if isinstance(found, KafkaError):
            return OffsetDeleteResponse(error_code=found.error)
        for (name, index), error in zip(known, found, strict=True):
            add(name, index, error)
        return OffsetDeleteResponse(topics=[*topics.values()])

    return groups.answer(group_id, lambda shard: shard.delete_offsets(group_id, known), respond)
