"""JoinGroup (11), versions 0 to 9.

v1: rebalance timeout (v0: the session timeout stands for it); v4: a new member gets its id with MEMBER_ID_REQUIRED
(KIP-394); v5: static members (KIP-345); v6: flexible; v7: protocol type (KIP-559); v8: reasons (KIP-800); v9: a leader
that need not assign (KIP-814). The answer waits until the group's members have joined.

A group of the newer protocol (KIP-848) has members of this one, too, unless `group.consumer.migration.policy` is
against it; nobody waits there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordination.groups import Parked, client_of
from protocol.errors import Error, KafkaError
from protocol.messages.groups_classic import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server

NULL_PROTOCOL_NAME_VERSION = 7


def handle(server: Server, context: RequestContext, request: JoinGroupRequest) -> Any:
    version = context.api_version

    def finish(response: JoinGroupResponse) -> JoinGroupResponse:
        # No protocol is null from v7 on, and before that the empty string.
        if version >= NULL_PROTOCOL_NAME_VERSION:
            response.protocol_name = response.protocol_name or None
        else:
            response.protocol_name = response.protocol_name or ""
        return response

    parked = Parked(finish)
    if not request.group_id:
        return finish(JoinGroupResponse(member_id=request.member_id, error_code=Error.INVALID_GROUP_ID))
    try:
        server.groups.shard_of(request.group_id).join(client_of(context), request, parked.reply)
    except KafkaError as error:
        return finish(JoinGroupResponse(error_code=error.error))
    return parked.answer()
