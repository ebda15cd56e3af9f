"""DeleteShareGroupOffsets (92), version 0 (KIP-932): where a share group without members is in topics is forgotten.

A conscious difference: 20,000 topics may be in a request. Kafka has no limit.
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
"""In a request: what becomes of them is decided at once."""


@runs_to_its_end
async def handle(
    node: GroupPorts, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Topics that may not be read come first."""
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
