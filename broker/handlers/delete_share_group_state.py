"""DeleteShareGroupState (86), version 0 (KIP-932): a group coordinator has share partitions forgotten. One that is none
is forgotten, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.share_state_requests import ShareStateApi, share_state_answer
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
    from broker.network.later import Later
    from coordinator.share.shard import ShareShard
    from coordinator.share.share_partition_key import SharePartitionKey


def handle(
    node: ShareGroupPorts,
    context: RequestContext,
    request: DeleteShareGroupStateRequest,
) -> DeleteShareGroupStateResponse | Later[DeleteShareGroupStateResponse]:
    return share_state_answer(node.share_states, node.authorizer, node.turns, context, request, _API)


def _ask(shard: ShareShard, key: SharePartitionKey, asked: DeletePartition) -> None:
    shard.delete(key)


_API = ShareStateApi(_ask, DeleteShareGroupStateResponse, DeleteStateResult, PartitionResult)
