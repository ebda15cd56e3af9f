"""ListGroups (16), versions 0 to 5. v3: flexible; v4: states and a filter (KIP-518); v5: types (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.network.turns import portions
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import KafkaError
from protocol.messages.groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from coordinator.group.shard import GroupShard


async def handle(
    node: GroupPorts,
    context: RequestContext,
    request: ListGroupsRequest,
) -> ListGroupsResponse:
    """A client that may describe the cluster sees all groups. Others see the groups that they may describe."""
    sees_all = node.authorizer.allows(
        context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, log_denied=False
    )
    try:
        shards = node.groups.all_shards()
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.error)

    def may_see(group: ListedGroup) -> bool:
        return sees_all or node.authorizer.allows(
            context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id, log_denied=False
        )

    return await _listed(shards, node.turns, request, may_see)


async def _listed(
    shards: Sequence[GroupShard],
    turns: Turns,
    request: ListGroupsRequest,
    may_see: Callable[[ListedGroup], bool],
) -> ListGroupsResponse:
    def listed_of(group_ids: Sequence[str]) -> Callable[[GroupShard], list[ListedGroup]]:
        return lambda shard: shard.list_groups(request.states_filter, request.types_filter, group_ids)

    response = ListGroupsResponse()
    for shard in shards:
        for some in portions(shard.group_ids()):
            found = await shard.ask(listed_of(some))
            if isinstance(found, KafkaError):
                return ListGroupsResponse(error_code=found.error)
            response.groups += filter(may_see, found)
            if turns.is_over:
                await turn()
    return response
