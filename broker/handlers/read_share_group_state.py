"""ReadShareGroupState (84), version 0 (KIP-932): the state with which a leader of share partitions begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.handlers.share_state_requests import ShareStateApi, share_state_answer
from broker.network.turns import runs_to_its_end
from protocol.messages.share_state import (
    ReadPartition,
    ReadPartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import ShareGroupPorts
    from broker.network.context import RequestContext
    from coordinator.persister import ShareState
    from coordinator.share.shard import ShareShard
    from coordinator.share.share_partition_key import SharePartitionKey


@runs_to_its_end
async def handle(
    node: ShareGroupPorts,
    context: RequestContext,
    request: ReadShareGroupStateRequest,
) -> ReadShareGroupStateResponse:
    return await share_state_answer(node, context, request, _API)


def _ask(shard: ShareShard, key: SharePartitionKey, asked: ReadPartition) -> ShareState:
    return shard.read(key, asked.leader_epoch)


def _told(said: ShareState) -> dict[str, Any]:
    return {
        "state_epoch": said.state_epoch,
        "start_offset": said.start_offset,
        "state_batches": [
            StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in said.batches
        ],
    }


_API = ShareStateApi(_ask, ReadShareGroupStateResponse, ReadStateResult, ReadPartitionResult, _told)
