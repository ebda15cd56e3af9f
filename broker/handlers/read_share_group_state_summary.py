"""ReadShareGroupStateSummary (87), versions 0 and 1 (KIP-932): the positions of share partitions, to describe a group.

v1: how many records behind the start are complete (KIP-1226)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.handlers.share_state_requests import ShareStateApi, share_state_answer
from broker.network.turns import runs_to_its_end
from protocol.messages.share_state import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
    SummaryPartition,
    SummaryPartitionResult,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import ShareGroupPorts
    from broker.network.context import RequestContext
    from coordinator.persister import ShareStateSummary
    from coordinator.share.shard import ShareShard
    from coordinator.share.share_partition_key import SharePartitionKey


@runs_to_its_end
async def handle(
    node: ShareGroupPorts,
    context: RequestContext,
    request: ReadShareGroupStateSummaryRequest,
) -> ReadShareGroupStateSummaryResponse:
    return await share_state_answer(node, context, request, _API)


def _ask(shard: ShareShard, key: SharePartitionKey, asked: SummaryPartition) -> ShareStateSummary:
    return shard.summarize(key)


def _told(said: ShareStateSummary) -> dict[str, Any]:
    return said._asdict()


_API = ShareStateApi(
    _ask, ReadShareGroupStateSummaryResponse, ReadStateSummaryResult, SummaryPartitionResult, _told
)
