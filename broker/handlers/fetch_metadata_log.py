"""Fetch (1), versions 4 to 18, of a controller: of the metadata log alone, by those that follow it (KIP-595).

Brokers say by `replica_state` who they are (v15, KIP-903), and by v18 which high watermark they know. From v17 on they
are told where the leader is (KIP-853), as `RaftUtil.singletonFetchResponse` has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import Operation, cluster_refusal
from protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from protocol.waiting import Later

FIRST_VERSION_WITH_ENDPOINTS = 17


def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: FetchRequest,
) -> FetchResponse | Later[FetchResponse]:
    refusal = cluster_refusal(node.authorizer, context, Operation.CLUSTER_ACTION)
    if refusal is not None:
        return FetchResponse(error_code=refusal.error)
    context.is_between_nodes = True
    return node.metadata_fetches.fetch(
        request, tells_endpoints=context.api_version >= FIRST_VERSION_WITH_ENDPOINTS
    )
