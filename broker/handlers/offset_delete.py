"""OffsetDelete (47), version 0 (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError
from protocol.messages.groups_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(server: Server, context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """An error of the group goes before everything else; unknown topics and partitions have their own."""
    image = server.metadata.image
    topics: dict[str, OffsetDeleteResponseTopic] = {}
    known: list[tuple[str, int]] = []

    def add(name: str, index: int, error: Error) -> None:
        topic = topics.setdefault(name, OffsetDeleteResponseTopic(name=name))
        topic.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))

    for asked in request.topics:
        topic = image.topics.get(asked.name)
        for partition in asked.partitions:
            if topic is None or partition.partition_index not in topic.partitions:
                add(asked.name, partition.partition_index, Error.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                known.append((asked.name, partition.partition_index))
    try:
        if not request.group_id:
            raise KafkaError(Error.INVALID_GROUP_ID)
        errors = server.groups.shard_of(request.group_id).delete_offsets(request.group_id, known)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.error)
    for (name, index), error_code in zip(known, errors, strict=True):
        add(name, index, error_code)
    return OffsetDeleteResponse(topics=[*topics.values()])
