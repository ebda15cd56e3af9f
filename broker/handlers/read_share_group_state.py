"""ReadShareGroupState (84), version 0 (KIP-932): what a leader of share partitions begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.share_state_requests import ShareStateApi, share_state_answer
from protocol.errors import KafkaError
from protocol.messages.share_state import (
    ReadPartition,
    ReadPartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)

if TYPE_CHECKING:
    from broker.coordination.share_states import ShareStates
    from broker.network.context import RequestContext
    from broker.network.later import Later
    from broker.network.turns import RequestSteps, Turns
    from broker.security.authorizer import Authorizer
    from coordinator.persister import ShareState
    from coordinator.share.shard import ShareShard
    from coordinator.share.share_partition_key import SharePartitionKey


def handle(
    share_states: ShareStates,
    authorizer: Authorizer,
    turns: Turns,
    context: RequestContext,
    request: ReadShareGroupStateRequest,
) -> ReadShareGroupStateResponse | Later[ReadShareGroupStateResponse]:
    steps = _answered(share_states, authorizer, turns, context, request)
    return turns.answer(steps, context, to_the_end=True)


def _answered(
    share_states: ShareStates,
    authorizer: Authorizer,
    turns: Turns,
    context: RequestContext,
    request: ReadShareGroupStateRequest,
) -> RequestSteps[ReadShareGroupStateResponse]:
    results = yield from share_state_answer(
        share_states, authorizer, turns, context, request.group_id, request.topics, _API
    )
    return ReadShareGroupStateResponse(results=results)


def _ask(shard: ShareShard, key: SharePartitionKey, asked: ReadPartition) -> ShareState:
    return shard.read(key, asked.leader_epoch)


def _result(partition: int, said: ShareState | KafkaError) -> ReadPartitionResult:
    if isinstance(said, KafkaError):
        return ReadPartitionResult(partition=partition, error_code=said.error, error_message=said.message)
    return ReadPartitionResult(
        partition=partition,
        state_epoch=said.state_epoch,
        start_offset=said.start_offset,
        state_batches=[
            StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in said.batches
        ],
    )


def _of_topic(topic_id: bytes, results: list[ReadPartitionResult]) -> ReadStateResult:
    return ReadStateResult(topic_id=topic_id, partitions=results)


_API = ShareStateApi(_ask, _result, _of_topic)
