"""Heartbeat (12), versions 0 to 4. v3: static members; v4: flexible.

While a coordinator is loading nobody is told to look for another one: the heartbeat counts as good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError
from protocol.messages.groups_classic import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(server: Server, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        if not request.group_id:
            raise KafkaError(Error.INVALID_GROUP_ID)
        error = server.groups.shard_of(request.group_id).heartbeat(request)
    except KafkaError as refused:
        error = Error.NONE if refused.error is Error.COORDINATOR_LOAD_IN_PROGRESS else refused.error
    return HeartbeatResponse(error_code=error)
