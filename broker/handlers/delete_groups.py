"""DeleteGroups (42), versions 0 to 3. A group goes with its offsets, unless it has members. v2: flexible; v3: an
error message, which Kafka has where a plugin keeps it from deleting the topology of a Streams group, and nowhere else.

Of share groups the share coordinator forgets what it knows first (KIP-932).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import Error, KafkaError
from protocol.messages.groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.waiting import Later, Waiting, begun, turn

if TYPE_CHECKING:
    from broker.coordination.groups import Groups
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext
    from coordinator.group.shard import GroupShard

MOST_DELETED_OFFSETS = 10_000
"""Offsets that go with their groups in one batch and one turn of the loop, some 30 ms: those of the last group may be
more. All groups of a partition are one batch in Kafka, which refuses them where it is more than `max.message.bytes`, by
default some 15,000 offsets."""

MOST_SHARE_GROUPS = 20
"""Whose states go in one turn."""


@runs_to_its_end
async def handle(
    node: GroupPorts,
    context: RequestContext,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse:
    """A group that is named twice is answered once, groups that may not be deleted last."""
    groups, authorizer, turns = node.groups, node.authorizer, node.turns
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
    asked: list[tuple[Sequence[str], Later[list[Error] | KafkaError]]] = []
    for shard, of_shard in of_shards.items():
        refused = await _states_deleted(groups, shard, of_shard)
        errors.update(refused)
        for group_ids, is_full in _batches(shard, [each for each in of_shard if each not in refused]):
            asked.append((group_ids, begun(shard.ask(_deletion(group_ids)))))
            if is_full or turns.is_over:
                await turn()
    for group_ids, deleted in asked:
        answer = await deleted
        of_groups = [answer.error] * len(group_ids) if isinstance(answer, KafkaError) else answer
        errors.update(zip(group_ids, of_groups, strict=True))
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in {**errors, **denied}.items()
        ]
    )


async def _states_deleted(groups: Groups, shard: GroupShard, group_ids: Sequence[str]) -> dict[str, Error]:
    """The share groups among them whose states can't be deleted, each with its error."""
    refused: dict[str, Error] = {}
    of_share = shard.share_groups.are_among(group_ids)
    for first in range(0, len(of_share), MOST_SHARE_GROUPS):
        some = of_share[first : first + MOST_SHARE_GROUPS]
        found = await groups.ask_waiting(some[0], _deletion_of_states(some))
        refused |= dict.fromkeys(some, found.error) if isinstance(found, KafkaError) else found
        if len(some) == MOST_SHARE_GROUPS:
            await turn()
    return refused


def _deletion_of_states(group_ids: Sequence[str]) -> Callable[[GroupShard], Waiting[dict[str, Error]]]:
    return lambda shard: shard.share_groups.delete_states(group_ids)


def _batches(shard: GroupShard, group_ids: Iterable[str]) -> Iterator[tuple[Sequence[str], bool]]:
    """The groups that go together, or not at all, and whether they are many."""
    batch: list[str] = []
    offsets = 0
    for group_id in group_ids:
        batch.append(group_id)
        offsets += shard.offsets.keys_held(group_id)
        if offsets >= MOST_DELETED_OFFSETS:
            yield batch, True
            batch, offsets = [], 0
    if batch:
        yield batch, False


def _deletion(group_ids: Sequence[str]) -> Callable[[GroupShard], list[Error]]:
    return lambda shard: shard.delete_groups(group_ids)
