"""ConsumerGroupDescribe (69), versions 0 and 1 (KIP-848). v1: each member's protocol (KIP-1099)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.group_descriptions import DescribeApi, described_groups
from protocol.messages.groups_consumer import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext
    from coordinator.group.shard import GroupShard


async def handle(
    node: GroupPorts, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    return await described_groups(
        node.groups, node.authorizer, context, request, _API, is_served=node.groups.serves_consumer_groups
    )


def _describe(shard: GroupShard, group_id: str) -> DescribedGroup:
    return shard.describe_consumer_group(group_id)


def _topics(group: DescribedGroup) -> list[str]:
    return [
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    ]


_API = DescribeApi(ConsumerGroupDescribeResponse, DescribedGroup, _describe, _topics)
