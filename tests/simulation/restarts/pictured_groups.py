"""Groups of every kind for a picture."""

from __future__ import annotations

from typing import Any

from protocol.errors import Error
from protocol.messages.groups import (
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from protocol.messages.groups_consumer import ConsumerGroupDescribeRequest
from protocol.messages.groups_share import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareGroupDescribeRequest,
)
from protocol.messages.groups_streams import StreamsGroupDescribeRequest
from tests.simulation.restarts.nodes import NOT_YET, Nodes
from tests.simulation.restarts.plain import plain


class Groups:
    """`found` receives them; `partitions` has each topic's number."""

    def __init__(self, nodes: Nodes, partitions: dict[str, int], found: dict[str, Any]) -> None:
        self._nodes = nodes
        self._partitions = partitions
        self._found = found

    async def take(self, *, has_shares: bool) -> None:
        for node_id in self._nodes.broker_ids:
            listed = await self._nodes.ask(ListGroupsRequest(), 5, node_id)
            if Error(listed.error_code) in NOT_YET:
                self._found[f"groups at {node_id}"] = plain(listed)  # asked again
            for each in sorted(listed.groups, key=lambda group: str(group.group_id)):
                self._found[f"group {each.group_id} as listed"] = plain(each)
                await self._describe(node_id, each.group_id, each.group_type, has_shares=has_shares)

    async def _describe(self, node_id: int, group_id: str, kind: str, *, has_shares: bool) -> None:
        request, version = {
            "classic": (DescribeGroupsRequest(groups=[group_id]), 6),
            "consumer": (ConsumerGroupDescribeRequest(group_ids=[group_id]), 1),
            "share": (ShareGroupDescribeRequest(group_ids=[group_id]), 1),
            "streams": (StreamsGroupDescribeRequest(group_ids=[group_id]), 0),
        }[kind]
        [described] = (await self._nodes.ask(request, version, node_id)).groups
        described.members.sort(key=lambda member: member.member_id)
        self._found[f"group {group_id}"] = _sorted(plain(described))
        if kind != "share":
            await self._offsets(node_id, group_id)
        elif has_shares:
            await self._share_offsets(node_id, group_id)

    async def _offsets(self, node_id: int, group_id: str) -> None:
        for stable in (False, True):
            asked = OffsetFetchRequestGroup(group_id=group_id, topics=None)
            request = OffsetFetchRequest(groups=[asked], require_stable=stable)
            [answered] = (await self._nodes.ask(request, 9, node_id)).groups
            what = "stable offsets" if stable else "offsets"
            self._found[f"{what} of group {group_id}"] = {"error_code": answered.error_code}
            for topic in answered.topics:
                for each in topic.partitions:
                    key = f"{what} of group {group_id} in {topic.name} {each.partition_index}"
                    # it is the group's, not the log's: it was committed with the offset
                    self._found[key] = plain(each) | {"epoch": each.committed_leader_epoch}

    async def _share_offsets(self, node_id: int, group_id: str) -> None:
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=[asked])
        [answered] = (await self._nodes.ask(request, 1, node_id)).groups
        self._found[f"share offsets of group {group_id}"] = {"error_code": answered.error_code}
        for topic in answered.topics:
            for each in topic.partitions:
                self._found[
                    f"share offsets of group {group_id} in {topic.topic_name} {each.partition_index}"
                ] = plain(each) | {"id": topic.topic_id.hex()}


def _sorted(described: Any) -> Any:
    """Sort assignments: their order means nothing."""
    if isinstance(described, dict):
        return {name: _sorted(value) for name, value in described.items()}
    if isinstance(described, list):
        return sorted((_sorted(each) for each in described), key=str)
    return described
