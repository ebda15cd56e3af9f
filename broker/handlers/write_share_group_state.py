"""WriteShareGroupState (85), versions 0 and 1 (KIP-932): stores the delivery states of records of share partitions.

v1: how many of them are complete (KIP-1226).

As in Kafka, the delivery state of a batch isn't checked here. A share partition can't start from one that is unknown.

A conscious difference: the answer is INVALID_REQUEST for a batch that ends before it begins, and for more than 50,000
batches of one share partition. On the former Kafka may merge batches forever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.share_state_requests import ShareStateApi, share_state_answer
from broker.network.turns import runs_to_its_end
from coordinator.persister import StateBatch
from coordinator.share.share_partitions import Write
from protocol.messages.share_state import (
    PartitionResult,
    WritePartition,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
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
    request: WriteShareGroupStateRequest,
) -> WriteShareGroupStateResponse:
    return await share_state_answer(node, context, request, _API)


def _ask(shard: ShareShard, key: SharePartitionKey, asked: WritePartition) -> None:
    batches = [
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in asked.state_batches
    ]
    write = Write(
        asked.state_epoch, asked.leader_epoch, asked.start_offset, asked.delivery_complete_count, batches
    )
    shard.write(key, write)


_API = ShareStateApi(_ask, WriteShareGroupStateResponse, WriteStateResult, PartitionResult)
