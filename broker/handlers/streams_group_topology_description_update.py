"""StreamsGroupTopologyDescriptionUpdate (93), version 0 (KIP-1331).

Kafka passes descriptions of topologies to a plugin, and ships none. Without a plugin it asks no client for a
description.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import GROUP, READ
from protocol.errors import Error
from protocol.messages.groups_streams import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext

NO_PLUGIN = "The broker has no streams group topology description plugin configured."


def handle(
    node: GroupPorts, context: RequestContext, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """The answer is always UNSUPPORTED_VERSION or GROUP_AUTHORIZATION_FAILED."""
    if not node.groups.serves_streams_groups:
        return StreamsGroupTopologyDescriptionUpdateResponse(error_code=Error.UNSUPPORTED_VERSION)
    if not node.authorizer.allows(context, READ, GROUP, request.group_id):
        return StreamsGroupTopologyDescriptionUpdateResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    return StreamsGroupTopologyDescriptionUpdateResponse(
        error_code=Error.UNSUPPORTED_VERSION, error_message=NO_PLUGIN
    )
