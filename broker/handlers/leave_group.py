"""LeaveGroup (13), versions 0 to 5.

Up to v2 one member leaves, and its error is the answer's; v3: several at once, by member id or instance id (KIP-345);
v4: flexible; v5: reasons (KIP-800).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError
from protocol.messages.groups_classic import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server

BATCH_VERSION = 3


def handle(server: Server, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    is_batch = context.api_version >= BATCH_VERSION
    if not is_batch:
        request.members = [MemberIdentity(member_id=request.member_id)]
    try:
        if not request.group_id:
            raise KafkaError(Error.INVALID_GROUP_ID)
        error, members = server.groups.shard_of(request.group_id).leave(request)
    except KafkaError as refused:
        return LeaveGroupResponse(error_code=refused.error)
    if is_batch:
        return LeaveGroupResponse(error_code=error, members=members)
    return LeaveGroupResponse(error_code=error if error is not Error.NONE else members[0].error_code)
