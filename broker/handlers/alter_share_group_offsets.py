"""AlterShareGroupOffsets (91), version 0 (KIP-932): sets the offsets at which a share group without members begins.

A conscious difference: a request may have 10,000 topics and partitions together. Kafka has no limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.turns import runs_to_its_end
from broker.security.authorizer import GROUP, READ, TOPIC, denied
from protocol.errors import Error, KafkaError
from protocol.messages.groups_share import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext


MOST_ALTERED_PARTITIONS = 10_000
"""Most partitions and topics, counted together, in a request. One turn decides on all of them, at some 5 µs each."""


@runs_to_its_end
async def handle(
    node: GroupPorts,
    context: RequestContext,
    request: AlterShareGroupOffsetsRequest,
) -> AlterShareGroupOffsetsResponse:
    """The answer lists topics first that the client may not read or that don't exist."""
    if not node.groups.serves_share_groups:
        return _refused(KafkaError(Error.UNSUPPORTED_VERSION, "Share groups aren't served."))
    if not node.authorizer.allows(context, READ, GROUP, request.group_id):
        return _refused(denied(GROUP))
    if sum([len(topic.partitions) + 1 for topic in request.topics]) > MOST_ALTERED_PARTITIONS:
        return _refused(KafkaError(Error.INVALID_REQUEST, "There are too many partitions in the request."))
    refused = []
    allowed = []
    for topic in request.topics:
        known = node.metadata.image.topics.get(topic.topic_name)
        if not node.authorizer.allows(context, READ, TOPIC, topic.topic_name):
            error = denied(TOPIC)
        elif known is None:
            error = KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic.")
        else:
            allowed.append(topic)
            continue
        refused.append(_refused_topic(topic, bytes(16) if known is None else known.topic_id, error))
    if not request.group_id:
        return _refused(KafkaError(Error.INVALID_GROUP_ID, "A group has to have an id."))

    found = await node.groups.ask_waiting(
        request.group_id, lambda shard: shard.share_groups.offsets.alter(request.group_id, allowed)
    )
    if isinstance(found, KafkaError):
        return _refused(found)
    return AlterShareGroupOffsetsResponse(responses=refused + found)


def _refused(error: KafkaError) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error.error, error_message=error.message)


def _refused_topic(
    topic: AlterShareGroupOffsetsRequestTopic, topic_id: bytes, error: KafkaError
) -> AlterShareGroupOffsetsResponseTopic:
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=topic_id,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, error_code=error.error, error_message=error.message
            )
            for each in topic.partitions
        ],
    )
