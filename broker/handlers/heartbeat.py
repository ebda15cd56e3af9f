"""Heartbeat (12), versions 0 to 4. v3: static members; v4: flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError
from protocol.messages.groups_classic import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from broker.context import RequestContext
    from broker.server import Server


def handle(server: Server, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        if not request.group_id:
            raise KafkaError(Error.INVALID_GROUP_ID)
        error = server.groups.shard_of(request.group_id).heartbeat(request)
    except KafkaError as refused:
        error = refused.error
    return HeartbeatResponse(error_code=error)
