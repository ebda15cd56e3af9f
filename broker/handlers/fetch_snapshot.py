"""FetchSnapshot (59), versions 0 to 1, of a controller: a piece of a snapshot of the metadata (KIP-630).

v1: the sender's directory (KIP-853), which doesn't matter unless it votes, and the leader's address in the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import Operation, cluster_refusal
from protocol.messages.raft import FetchSnapshotRequest, FetchSnapshotResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext

FIRST_VERSION_WITH_ENDPOINTS = 1


def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: FetchSnapshotRequest,
) -> FetchSnapshotResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.CLUSTER_ACTION)
    if refusal is not None:
        return FetchSnapshotResponse(error_code=refusal.error)
    response = node.quorum.fetch_snapshot(request)
    if context.api_version < FIRST_VERSION_WITH_ENDPOINTS:
        response.node_endpoints = []
    return response
