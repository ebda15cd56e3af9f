"""ReadShareGroupStateSummary (87), versions 0 and 1 (KIP-932): where share partitions are, for who describes a group.

v1: how many records behind the start are done with (KIP-1226)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.share_state_requests import ShareStateApi, share_state_answer
from protocol.errors import KafkaError
from protocol.messages.share_state import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
    SummaryPartition,
    SummaryPartitionResult,
)

if TYPE_CHECKING:
    from broker.coordination.share_states import ShareStates
    from broker.network.context import RequestContext
    from broker.network.later import Later
    from broker.network.turns import RequestSteps, Turns
    from broker.security.authorizer import Authorizer
    from coordinator.persister import ShareStateSummary
    from coordinator.share.shard import ShareShard
    from coordinator.share.share_partition_key import SharePartitionKey


def handle(
    share_states: ShareStates,
    authorizer: Authorizer,
    turns: Turns,
    context: RequestContext,
    request: ReadShareGroupStateSummaryRequest,
) -> ReadShareGroupStateSummaryResponse | Later[ReadShareGroupStateSummaryResponse]:
    steps = _answered(share_states, authorizer, turns, context, request)
    return turns.answer(steps, context, to_the_end=True)


def _answered(
    share_states: ShareStates,
    authorizer: Authorizer,
    turns: Turns,
    context: RequestContext,
    request: ReadShareGroupStateSummaryRequest,
) -> RequestSteps[ReadShareGroupStateSummaryResponse]:
    results = yield from share_state_answer(
        share_states, authorizer, turns, context, request.group_id, request.topics, _API
    )
    return ReadShareGroupStateSummaryResponse(results=results)


def _ask(shard: ShareShard, key: SharePartitionKey, asked: SummaryPartition) -> ShareStateSummary:
    return shard.summarize(key)


def _result(partition: int, said: ShareStateSummary | KafkaError) -> SummaryPartitionResult:
    if isinstance(said, KafkaError):
        return SummaryPartitionResult(partition=partition, error_code=said.error, error_message=said.message)
    return SummaryPartitionResult(
        partition=partition,
        state_epoch=said.state_epoch,
        leader_epoch=said.leader_epoch,
        start_offset=said.start_offset,
        delivery_complete_count=said.delivery_complete_count,
    )


def _of_topic(topic_id: bytes, results: list[SummaryPartitionResult]) -> ReadStateSummaryResult:
    return ReadStateSummaryResult(topic_id=topic_id, partitions=results)


_API = ShareStateApi(_ask, _result, _of_topic)
