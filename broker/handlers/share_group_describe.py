"""ShareGroupDescribe (77), version 1 (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.group_descriptions import DescribeApi, described_groups
from protocol.messages.groups_share import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext
    from coordinator.group.shard import GroupShard


async def handle(
    node: GroupPorts, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    return await described_groups(
        node.groups, node.authorizer, context, request, _API, is_served=node.groups.serves_share_groups
    )


def _describe(shard: GroupShard, group_id: str) -> DescribedGroup:
    return shard.share_groups.describe(group_id)


def _topics(group: DescribedGroup) -> list[str]:
    return [topic.topic_name for member in group.members for topic in member.assignment.topic_partitions]


_API = DescribeApi(
    ShareGroupDescribeResponse,
    DescribedGroup,
    _describe,
    _topics,
    without_coordinator="The coordinator isn't here.",
)
