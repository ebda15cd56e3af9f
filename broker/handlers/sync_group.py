"""SyncGroup (14), versions 0 to 5.

v3: static members; v4: flexible; v5: protocol type and name, both required (KIP-559). A follower's answer waits for the
leader's assignments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import GROUP, READ
from protocol.errors import Error, KafkaError
from protocol.messages.groups import SyncGroupRequest, SyncGroupResponse
from protocol.waiting import Later

if TYPE_CHECKING:
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext
    from coordinator.group.shard import GroupShard

PROTOCOL_VERSION = 5


async def handle(node: GroupPorts, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    if context.api_version >= PROTOCOL_VERSION and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=Error.INCONSISTENT_GROUP_PROTOCOL)
    if not node.authorizer.allows(context, READ, GROUP, request.group_id):
        return SyncGroupResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return SyncGroupResponse(error_code=Error.INVALID_GROUP_ID)

    async def sync(shard: GroupShard) -> SyncGroupResponse:
        synced = shard.sync(request)
        return await synced if isinstance(synced, Later) else synced

    found = await node.groups.ask_waiting(request.group_id, sync)
    return SyncGroupResponse(error_code=found.error) if isinstance(found, KafkaError) else found
