"""DeleteGroups (42), versions 0 to 2. A group goes with its offsets, unless it has members. v2: flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError
from protocol.messages.groups_admin import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server
    from coordinator.group.shard import GroupShard


def handle(server: Server, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """A group that is named twice is answered once. The groups of a shard go in one batch, or not at all."""
    errors: dict[str, Error] = {}
    of_shards: dict[int, tuple[GroupShard, list[str]]] = {}
    for group_id in dict.fromkeys(request.groups_names):
        errors[group_id] = Error.NONE
        try:
            shard = server.groups.shard_of(group_id)
        except KafkaError as error:
            errors[group_id] = error.error
        else:
            of_shards.setdefault(id(shard), (shard, []))[1].append(group_id)
    for shard, group_ids in of_shards.values():
        try:
            found = shard.delete_groups(group_ids)
        except KafkaError as error:
            found = [error.error] * len(group_ids)
        errors.update(zip(group_ids, found, strict=True))
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error) for group_id, error in errors.items()
        ]
    )
