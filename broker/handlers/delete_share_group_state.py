"""DeleteShareGroupState (86), version 0 (KIP-932): deletes the state of share partitions, for a group coordinator.
Deleting a state that doesn't exist succeeds, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.share_state_requests import ShareStateApi, share_state_answer
from broker.network.turns import runs_to_its_end
from protocol.messages.share_state import (
    DeletePartition,
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
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
    request: DeleteShareGroupStateRequest,
) -> DeleteShareGroupStateResponse:
    return await share_state_answer(node, context, request, _API)


def _ask(shard: ShareShard, key: SharePartitionKey, asked: DeletePartition) -> None:
    shard.delete(key)


_API = ShareStateApi(_ask, DeleteShareGroupStateResponse, DeleteStateResult, PartitionResult)
