"""DeleteGroups (42), versions 0 to 3: deletes a group and its offsets, unless it has members. v2: flexible; v3: an
error message. Kafka fills it only if a plug-in can't delete the topology of a Streams group.

The share coordinator forgets the state of share groups first (KIP-932).
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
"""Offsets that one batch, and so one turn of the loop (some 30 ms), deletes. The last group of a batch may go beyond
it. In Kafka all groups of a partition are one batch. Kafka refuses it if it exceeds `max.message.bytes`, which is at
some 15,000 offsets by default."""

MOST_SHARE_GROUPS = 20
"""Share groups whose states one turn deletes."""


@runs_to_its_end
async def handle(
    node: GroupPorts,
    context: RequestContext,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse:
    """The answer has each group once. Groups that the client may not delete come last."""
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
    """Delete the states of the share groups among these. Returns the error of each that is refused."""
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
    """Batches of groups, each deleted as a whole or not at all, and whether the batch is full."""
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
