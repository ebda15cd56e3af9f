"""DeleteGroups (42), versions 0 to 2. A group goes with its offsets, unless it has members. v2: flexible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.coordination.gathering import Gathering
from broker.network.later import Later
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import Error, KafkaError
from protocol.messages.groups_admin import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from broker.coordination.groups import Groups
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer
    from coordinator.group.shard import GroupShard


def handle(
    groups: Groups, authorizer: Authorizer, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Later[DeleteGroupsResponse]:
    """A group that is named twice is answered once, groups that may not be deleted last. The groups of a shard go in
    one batch, or not at all."""
    errors: dict[str, Error] = {}
    denied: dict[str, Error] = {}
    of_shards: dict[GroupShard, list[str]] = {}
    for group_id in dict.fromkeys(request.groups_names):
        if not authorizer.allows(context, Operation.DELETE, ResourceType.GROUP, group_id):
            denied[group_id] = Error.GROUP_AUTHORIZATION_FAILED
            continue
        errors[group_id] = Error.NONE
        try:
            shard = groups.shard_of(group_id)
        except KafkaError as error:
            errors[group_id] = error.error
        else:
            of_shards.setdefault(shard, []).append(group_id)
    later: Later[DeleteGroupsResponse] = Later()

    def reply(found: list[list[Error] | KafkaError]) -> None:
        for group_ids, answer in zip(of_shards.values(), found, strict=True):
            of_groups = [answer.error] * len(group_ids) if isinstance(answer, KafkaError) else answer
            errors.update(zip(group_ids, of_groups, strict=True))
        later.reply(
            DeleteGroupsResponse(
                results=[
                    DeletableGroupResult(group_id=group_id, error_code=error)
                    for group_id, error in {**errors, **denied}.items()
                ]
            )
        )

    gathering = Gathering(len(of_shards), reply)
    for index, (shard, group_ids) in enumerate(of_shards.items()):
        shard.ask(_deletion(group_ids), gathering.place(index))
    return later.answer()


def _deletion(group_ids: Sequence[str]) -> Callable[[GroupShard], list[Error]]:
    return lambda shard: shard.delete_groups(group_ids)
