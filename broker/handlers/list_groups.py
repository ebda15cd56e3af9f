"""ListGroups (16), versions 0 to 5. v3: flexible; v4: states, shown and filtered by (KIP-518); v5: types (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.gathering import Gathering
from broker.network.later import Later
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import KafkaError
from protocol.messages.groups_admin import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from broker.coordination.groups import Groups
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer
    from coordinator.group.shard import GroupShard


def handle(
    groups: Groups, authorizer: Authorizer, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse | Later[ListGroupsResponse]:
    """Who may describe the cluster sees all groups, others those that they may describe."""
    sees_all = authorizer.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    try:
        shards = groups.all_shards()
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.error)
    later: Later[ListGroupsResponse] = Later()

    def reply(found: list[list[ListedGroup] | KafkaError]) -> None:
        listed: list[ListedGroup] = []
        for of_shard in found:
            if isinstance(of_shard, KafkaError):
                return later.reply(ListGroupsResponse(error_code=of_shard.error))
            listed += of_shard
        if not sees_all:
            listed = [
                group
                for group in listed
                if authorizer.allows(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
            ]
        return later.reply(ListGroupsResponse(groups=listed))

    def listed_by(shard: GroupShard) -> list[ListedGroup]:
        return shard.list_groups(request.states_filter, request.types_filter)

    gathering = Gathering(len(shards), reply)
    for index, shard in enumerate(shards):
        shard.ask(listed_by, gathering.place(index))
    return later.answer()
