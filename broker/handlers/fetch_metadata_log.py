"""Fetch (1), versions 4 to 18, of a controller: followers fetch the metadata log, and nothing else (KIP-595).

v15: `replica_state` says which broker fetches (KIP-903); v17: the answer has the leader's address (KIP-853), as in
`RaftUtil.singletonFetchResponse`; v18: the broker says which high watermark it knows.
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
