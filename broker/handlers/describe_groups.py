"""DescribeGroups (15), versions 0 to 6: classic groups.

v3: authorized operations (KIP-430); v4: static members; v5: flexible; v6: GROUP_ID_NOT_FOUND for a group that doesn't
exist (KIP-1043), which was Dead before.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.network.pieces import answered
from broker.security.authorizer import Operation, ResourceType, authorized_operations
from protocol.errors import Error, KafkaError
from protocol.messages.groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.waiting import together

if TYPE_CHECKING:
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext
    from coordinator.group.shard import GroupShard


async def handle(
    node: GroupPorts, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """The answer lists groups first that the client may not describe, as in Kafka."""
    allowed = []
    answers = []
    for group_id in answered(request.groups, str):
        if node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.GROUP, group_id):
            allowed.append(group_id)
        else:
            answers.append(DescribedGroup(group_id=group_id, error_code=Error.GROUP_AUTHORIZATION_FAILED))

    def describe(group_id: str, shard: GroupShard) -> DescribedGroup:
        return shard.describe_group(group_id, api_version=context.api_version)

    found = await together([node.groups.ask(each, partial(describe, each)) for each in allowed])
    for group_id, group in zip(allowed, found, strict=True):
        if isinstance(group, KafkaError):
            group = DescribedGroup(group_id=group_id, error_code=group.error)
        elif request.include_authorized_operations and group.error_code == Error.NONE:
            group.authorized_operations = authorized_operations(
                node.authorizer, context, ResourceType.GROUP, group_id
            )
        answers.append(group)
    return DescribeGroupsResponse(groups=answers)
