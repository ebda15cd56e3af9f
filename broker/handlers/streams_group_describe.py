"""StreamsGroupDescribe (89), version 0 (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.group_descriptions import DescribeApi, described_groups
from protocol.messages.groups_streams import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext
    from coordinator.group.shard import GroupShard

HIDDEN_STREAMS_TOPICS = "The described group uses topics that the client is not authorized to describe."


async def handle(
    node: GroupPorts, context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    return await described_groups(
        node.groups, node.authorizer, context, request, _API, is_served=node.groups.serves_streams_groups
    )


def _describe(shard: GroupShard, group_id: str) -> DescribedGroup:
    return shard.describe_streams_group(group_id)


def _topics(group: DescribedGroup) -> list[str]:
    topics = []
    for subtopology in () if group.topology is None else group.topology.subtopologies or ():
        topics += subtopology.source_topics
        topics += subtopology.repartition_sink_topics
        topics += [topic.name for topic in subtopology.repartition_source_topics]
        topics += [topic.name for topic in subtopology.state_changelog_topics]
    return topics


_API = DescribeApi(
    StreamsGroupDescribeResponse,
    DescribedGroup,
    _describe,
    _topics,
    hidden_topics=HIDDEN_STREAMS_TOPICS,
)
