"""InitializeShareGroupState (83), version 0 (KIP-932): a group coordinator has share partitions begin anew.

A topic without partitions goes unanswered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.share_state_requests import ShareStateApi, share_state_answer
from protocol.errors import KafkaError
from protocol.messages.share_state import (
    InitializePartition,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)

if TYPE_CHECKING:
    from broker.coordination.share_states import ShareStates
    from broker.network.context import RequestContext
    from broker.network.later import Later
    from broker.network.turns import RequestSteps, Turns
    from broker.security.authorizer import Authorizer
    from coordinator.share.shard import ShareShard
    from coordinator.share.share_partition_key import SharePartitionKey


def handle(
    share_states: ShareStates,
    authorizer: Authorizer,
    turns: Turns,
    context: RequestContext,
    request: InitializeShareGroupStateRequest,
) -> InitializeShareGroupStateResponse | Later[InitializeShareGroupStateResponse]:
    steps = _answered(share_states, authorizer, turns, context, request)
    return turns.answer(steps, context, to_the_end=True)


def _answered(
    share_states: ShareStates,
    authorizer: Authorizer,
    turns: Turns,
    context: RequestContext,
    request: InitializeShareGroupStateRequest,
) -> RequestSteps[InitializeShareGroupStateResponse]:
    results = yield from share_state_answer(
        share_states, authorizer, turns, context, request.group_id, request.topics, _API
    )
    return InitializeShareGroupStateResponse(results=results)


def _ask(shard: ShareShard, key: SharePartitionKey, asked: InitializePartition) -> None:
    shard.initialize(key, asked.state_epoch, asked.start_offset)


def _result(partition: int, said: KafkaError | None) -> PartitionResult:
    if said is None:
        return PartitionResult(partition=partition)
    return PartitionResult(partition=partition, error_code=said.error, error_message=said.message)


def _of_topic(topic_id: bytes, results: list[PartitionResult]) -> InitializeStateResult:
    return InitializeStateResult(topic_id=topic_id, partitions=results)


_API = ShareStateApi(_ask, _result, _of_topic, topics_may_be_empty=True)
