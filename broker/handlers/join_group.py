"""JoinGroup (11), versions 0 to 9.

v1: rebalance timeout (v0 uses the session timeout); v4: a new member gets its id with MEMBER_ID_REQUIRED (KIP-394);
v5: static members (KIP-345); v6: flexible; v7: protocol type (KIP-559); v8: reasons (KIP-800); v9: a leader that need
not assign (KIP-814). The answer waits until the group's members have joined.

A group of the newer protocol (KIP-848) can have members of this one, too, unless `group.consumer.migration.policy`
forbids it. Their answers don't wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.groups import client_of
from broker.security.authorizer import GROUP, READ
from protocol.errors import Error, KafkaError
from protocol.messages.groups import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext
    from coordinator.group.ports import Deferred
    from coordinator.group.shard import GroupShard
    from protocol.waiting import Later

NULL_PROTOCOL_NAME_VERSION = 7


async def handle(node: GroupPorts, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    version = context.api_version
    if not node.authorizer.allows(context, READ, GROUP, request.group_id):
        return _finished(JoinGroupResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED), version)
    if not request.group_id:
        refused = JoinGroupResponse(member_id=request.member_id, error_code=Error.INVALID_GROUP_ID)
        return _finished(refused, version)
    client = client_of(context, node.authorizer)

    def join(shard: GroupShard) -> JoinGroupResponse | Deferred[JoinGroupResponse] | Later[JoinGroupResponse]:
        return shard.join(client, request)

    found = await node.groups.decide(request, join)
    if isinstance(found, KafkaError):
        found = JoinGroupResponse(error_code=found.error)
    return _finished(found, version)


def _finished(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """Without a protocol its name is null from v7 on, and the empty string before."""
    if version >= NULL_PROTOCOL_NAME_VERSION:
        response.protocol_name = response.protocol_name or None
    else:
        response.protocol_name = response.protocol_name or ""
    return response
