"""Heartbeat (12), versions 0 to 4. v3: static members; v4: flexible.

While the coordinator loads, the answer has no error: a member mustn't look for another coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import GROUP, READ
from protocol.errors import Error, KafkaError
from protocol.messages.groups import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext


async def handle(node: GroupPorts, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    if not node.authorizer.allows(context, READ, GROUP, request.group_id):
        return HeartbeatResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return HeartbeatResponse(error_code=Error.INVALID_GROUP_ID)
    found = await node.groups.ask(request.group_id, lambda shard: shard.classic_heartbeat(request))
    if isinstance(found, KafkaError):
        found = found.error
        if found is Error.COORDINATOR_LOAD_IN_PROGRESS:
            found = Error.NONE
    return HeartbeatResponse(error_code=found)
