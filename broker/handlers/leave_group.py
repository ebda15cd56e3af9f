"""LeaveGroup (13), versions 0 to 5.

Up to v2 one member leaves, and its error is the answer's; v3: several at once, by member id or instance id (KIP-345);
v4: flexible; v5: reasons (KIP-800).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import Operation, ResourceType
from protocol.errors import Error, KafkaError
from protocol.messages.groups_classic import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

if TYPE_CHECKING:
    from broker.coordination.groups import Groups
    from broker.network.context import RequestContext
    from broker.network.later import Later
    from broker.security.authorizer import Authorizer

BATCH_VERSION = 3


def handle(
    groups: Groups, authorizer: Authorizer, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Later[LeaveGroupResponse]:
    if not authorizer.allows(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return LeaveGroupResponse(error_code=Error.INVALID_GROUP_ID)
    is_batch = context.api_version >= BATCH_VERSION
    if not is_batch:
        request.members = [MemberIdentity(member_id=request.member_id)]

    def respond(found: tuple[Error, list[MemberResponse]] | KafkaError) -> LeaveGroupResponse:
        if isinstance(found, KafkaError):
            return LeaveGroupResponse(error_code=found.error)
        error, members = found
        if is_batch:
            return LeaveGroupResponse(error_code=error, members=members)
        return LeaveGroupResponse(error_code=error if error is not Error.NONE else members[0].error_code)

    return groups.answer(request.group_id, lambda shard: shard.leave(request), respond)
