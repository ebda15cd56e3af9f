"""DescribeCluster (60), versions 0 to 2.

v1: the type of endpoint asked for (KIP-919), of which a broker's listener serves the brokers' only; v2: fenced
brokers (KIP-1073), of which a single node that answers has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.authorized_operations import CLUSTER_OPERATIONS
from protocol.errors import Error
from protocol.messages.metadata import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server

BROKERS = 1
CONTROLLERS = 2


def handle(
    server: Server, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=Error.MISMATCHED_ENDPOINT_TYPE,
            error_message="This endpoint is of type BROKER, and one of type CONTROLLER was wanted",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=Error.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    response = DescribeClusterResponse(cluster_id=server.cluster_id, controller_id=server.node_id)
    endpoint = server.advertised_endpoint(context.listener_name)
    if endpoint is not None:
        host, port = endpoint
        response.brokers.append(
            DescribeClusterBroker(broker_id=server.node_id, host=host, port=port, rack=server.rack)
        )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
