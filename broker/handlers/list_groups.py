"""ListGroups (16), versions 0 to 5. v3: flexible; v4: states, shown and filtered by (KIP-518); v5: types (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import KafkaError
from protocol.messages.groups_admin import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(server: Server, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    response = ListGroupsResponse()
    try:
        for shard in server.groups.all_shards():
            response.groups += shard.list_groups(request.states_filter, request.types_filter)
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.error)
    return response
