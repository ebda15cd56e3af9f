"""LeaveGroup (13), versions 0 to 5.

Up to v2 one member leaves, and its error is the answer's; v3: several at once, by member id or instance id (KIP-345);
v4: flexible; v5: reasons (KIP-800).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.network.later import Later
from broker.network.turns import PER_TURN, portions
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
    from broker.network.turns import RequestSteps, Turns
    from broker.security.authorizer import Authorizer
    from coordinator.group.shard import GroupShard

BATCH_VERSION = 3


def handle(
    groups: Groups,
    authorizer: Authorizer,
    turns: Turns,
    context: RequestContext,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse | Later[LeaveGroupResponse]:
    if not authorizer.allows(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return LeaveGroupResponse(error_code=Error.INVALID_GROUP_ID)
    if len(request.members) > PER_TURN:
        return turns.answer(_in_turns(groups, request), context, to_the_end=True)
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


def _in_turns(groups: Groups, request: LeaveGroupRequest) -> RequestSteps[LeaveGroupResponse]:
    """Of many members: some leave after the others, as if they were asked for one request behind the other."""
    left: list[MemberResponse] = []
    for members in portions(request.members):
        some = LeaveGroupRequest(group_id=request.group_id, members=[*members])
        later: Later[tuple[Error, list[MemberResponse]] | KafkaError] = Later()
        groups.ask(request.group_id, partial(_leave, some), later.reply)
        found = yield later
        if isinstance(found, KafkaError):
            return LeaveGroupResponse(error_code=found.error)
        error, answered = found
        if error is not Error.NONE:
            return LeaveGroupResponse(error_code=error)
        left += answered
        yield None
    return LeaveGroupResponse(members=left)


def _leave(request: LeaveGroupRequest, shard: GroupShard) -> tuple[Error, list[MemberResponse]]:
    return shard.leave(request)
