"""DescribeGroups (15), versions 0 to 6: classic groups.

v3: authorized operations (KIP-430); v4: static members; v5: flexible; v6: GROUP_ID_NOT_FOUND (KIP-1043), where a group
that isn't there was a Dead one before. No authorizer: every operation is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.authorized_operations import GROUP_OPERATIONS
from protocol.errors import Error, KafkaError
from protocol.messages.groups_admin import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(server: Server, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    response = DescribeGroupsResponse()
    for group_id in request.groups:
        try:
            group = server.groups.shard_of(group_id).describe_group(group_id, api_version=context.api_version)
        except KafkaError as error:
            group = DescribedGroup(group_id=group_id, error_code=error.error)
        if request.include_authorized_operations and group.error_code == Error.NONE:
            group.authorized_operations = GROUP_OPERATIONS
        response.groups.append(group)
    return response
