"""DeleteShareGroupOffsets (92), version 0 (KIP-932): forgets the positions of a share group without members in topics.

A conscious difference: a request may have 20,000 topics. Kafka has no limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.turns import runs_to_its_end
from broker.security.authorizer import AUTHORIZATION_FAILED, GROUP, READ, TOPIC, Operation, denied
from protocol.errors import Error, KafkaError
from protocol.messages.groups_share import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext


MOST_FORGOTTEN_TOPICS = 20_000
"""Most topics in a request: one turn decides on all of them."""


@runs_to_its_end
async def handle(
    node: GroupPorts, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """The answer lists topics first that the client may not read."""
    if not node.groups.serves_share_groups:
        return _refused(KafkaError(Error.UNSUPPORTED_VERSION, "Share groups aren't served."))
    if not node.authorizer.allows(context, Operation.DELETE, GROUP, request.group_id):
        return _refused(denied(GROUP))
    if len(request.topics) > MOST_FORGOTTEN_TOPICS:
        return _refused(KafkaError(Error.INVALID_REQUEST, "There are too many topics in the request."))
    refused = []
    allowed = []
    for topic in request.topics:
        if node.authorizer.allows(context, READ, TOPIC, topic.topic_name):
            allowed.append(topic.topic_name)
        else:
            refused.append(
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=topic.topic_name,
                    error_code=Error.TOPIC_AUTHORIZATION_FAILED,
                    error_message=AUTHORIZATION_FAILED[Error.TOPIC_AUTHORIZATION_FAILED],
                )
            )
    if not request.group_id:
        return _refused(KafkaError(Error.INVALID_GROUP_ID, "A group has to have an id."))

    found = await node.groups.ask_waiting(
        request.group_id, lambda shard: shard.share_groups.offsets.delete(request.group_id, allowed)
    )
    if isinstance(found, KafkaError):
        return _refused(found)
    return DeleteShareGroupOffsetsResponse(responses=refused + found)


def _refused(error: KafkaError) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error.error, error_message=error.message)
