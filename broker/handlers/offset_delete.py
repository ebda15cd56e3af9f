"""OffsetDelete (47), version 0 (KIP-496)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from broker.network.turns import PER_TURN, in_turns, runs_to_its_end
from broker.security.authorizer import Operation, ResourceType
from coordinator.group.offsets.commit import Tombstones
from protocol.errors import Error, KafkaError
from protocol.messages.groups import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.coordination.groups import Groups
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext


@runs_to_its_end
async def handle(
    node: GroupPorts,
    context: RequestContext,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse:
    """An error of the group takes precedence. Unknown topics and partitions have errors of their own.

    The deletions are one batch, as in Kafka, prepared in several turns of the loop, and decided and written in one."""
    image, authorizer = node.metadata.image, node.authorizer
    group_id = request.group_id
    if not authorizer.allows(context, Operation.DELETE, ResourceType.GROUP, group_id):
        return OffsetDeleteResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return OffsetDeleteResponse(error_code=Error.INVALID_GROUP_ID)
    answers = _Answers()
    known: list[tuple[str, int]] = []
    left = PER_TURN
    for asked in request.topics:
        topic = image.topics.get(asked.name)
        allowed = authorizer.allows(context, Operation.READ, ResourceType.TOPIC, asked.name)
        for partition in asked.partitions:
            if not allowed:
                answers.add(asked.name, partition.partition_index, Error.TOPIC_AUTHORIZATION_FAILED)
            elif topic is None or partition.partition_index not in topic.partitions:
                answers.add(asked.name, partition.partition_index, Error.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                known.append((asked.name, partition.partition_index))
            left -= 1
            if not left:
                left = PER_TURN
                await turn()
    found = await _written(node.groups, group_id, known)
    if isinstance(found, KafkaError):
        return OffsetDeleteResponse(error_code=found.error)
    answered = iter(zip(known, found, strict=True))

    def answer(some: Sequence[Error]) -> None:
        for (name, index), error in islice(answered, len(some)):
            answers.add(name, index, error)

    await in_turns(found, answer)
    return answers.response()


class _Answers:
    def __init__(self) -> None:
        self._topics: dict[str, OffsetDeleteResponseTopic] = {}

    def add(self, name: str, index: int, error: Error) -> None:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = OffsetDeleteResponseTopic(name=name)
        topic.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))

    def response(self) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(topics=[*self._topics.values()])


async def _written(
    groups: Groups, group_id: str, partitions: Sequence[tuple[str, int]]
) -> list[Error] | KafkaError:
    """Delete the offsets. Returns each partition's error, or one for all of them."""
    staged = Tombstones()

    def stage(some: Sequence[tuple[str, int]]) -> None:
        with suppress(KafkaError):  # `groups.ask` below returns it
            groups.shard_of(group_id).stage_deletion(staged, group_id, some)

    await in_turns(partitions, stage)
    return await groups.ask(group_id, lambda shard: shard.delete_offsets(group_id, partitions, staged))
