"""SyncGroup (14), versions 0 to 5.

v3: static members; v4: flexible; v5: protocol type and name, both of which have to be there (KIP-559). A follower's
answer waits for the leader's assignments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordination.groups import Parked
from protocol.errors import Error, KafkaError
from protocol.messages.groups_classic import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server

PROTOCOL_VERSION = 5


def handle(server: Server, context: RequestContext, request: SyncGroupRequest) -> Any:
    if context.api_version >= PROTOCOL_VERSION and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=Error.INCONSISTENT_GROUP_PROTOCOL)
    parked = Parked(lambda response: response)
    try:
        if not request.group_id:
            raise KafkaError(Error.INVALID_GROUP_ID)
        server.groups.shard_of(request.group_id).sync(request, parked.reply)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.error)
    return parked.answer()
