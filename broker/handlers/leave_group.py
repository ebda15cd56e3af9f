"""LeaveGroup (13), versions 0 to 5.

Up to v2 one member leaves, and the answer has its error; v3: several leave at once, by member id or instance id
(KIP-345); v4: flexible; v5: reasons (KIP-800).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.network.turns import PER_TURN, runs_to_its_end
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import Error, KafkaError
from protocol.messages.groups import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.coordination.groups import Groups
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext
    from coordinator.group.shard import GroupShard

BATCH_VERSION = 3


@runs_to_its_end
async def handle(node: GroupPorts, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if not node.authorizer.allows(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return LeaveGroupResponse(error_code=Error.INVALID_GROUP_ID)
    at_once = _at_once(node.groups, request.group_id)
    if len(request.members) > at_once:
        return await _in_turns(node.groups, request, at_once)
    is_batch = context.api_version >= BATCH_VERSION
    if not is_batch:
        request.members = [MemberIdentity(member_id=request.member_id)]
    found = await node.groups.ask(request.group_id, lambda shard: shard.leave(request))
    if isinstance(found, KafkaError):
        return LeaveGroupResponse(error_code=found.error)
    error, members = found
    if is_batch:
        return LeaveGroupResponse(error_code=error, members=members)
    return LeaveGroupResponse(error_code=error if error is not Error.NONE else members[0].error_code)


def _at_once(groups: Groups, group_id: str) -> int:
    try:
        shard = groups.shard_of(group_id)
    except KafkaError:
        return PER_TURN
    return shard.leaving_in_passing(group_id) or PER_TURN


async def _in_turns(groups: Groups, request: LeaveGroupRequest, at_once: int) -> LeaveGroupResponse:
    """Have many members leave in portions, as if a request for each portion came after the other."""
    left: list[MemberResponse] = []
    for start in range(0, len(request.members), at_once):
        some = LeaveGroupRequest(group_id=request.group_id, members=request.members[start : start + at_once])
        found = await groups.ask(request.group_id, partial(_leave, some))
        if isinstance(found, KafkaError):
            return LeaveGroupResponse(error_code=found.error)
        error, answered = found
        if error is not Error.NONE:
            return LeaveGroupResponse(error_code=error)
        left += answered
        await turn()
    return LeaveGroupResponse(members=left)


def _leave(request: LeaveGroupRequest, shard: GroupShard) -> tuple[Error, list[MemberResponse]]:
    return shard.leave(request)
