"""InitializeShareGroupState (83), version 0 (KIP-932): sets the offset at which share partitions begin, for a group
coordinator.

The answer leaves out topics without partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.share_state_requests import ShareStateApi, share_state_answer
from broker.network.turns import runs_to_its_end
from protocol.messages.share_state import (
    InitializePartition,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import ShareGroupPorts
    from broker.network.context import RequestContext
    from coordinator.share.shard import ShareShard
    from coordinator.share.share_partition_key import SharePartitionKey


@runs_to_its_end
async def handle(
    node: ShareGroupPorts,
    context: RequestContext,
    request: InitializeShareGroupStateRequest,
) -> InitializeShareGroupStateResponse:
    return await share_state_answer(node, context, request, _API)


def _ask(shard: ShareShard, key: SharePartitionKey, asked: InitializePartition) -> None:
    shard.initialize(key, asked.state_epoch, asked.start_offset)


_API = ShareStateApi(
    _ask, InitializeShareGroupStateResponse, InitializeStateResult, PartitionResult, topics_may_be_empty=True
)
