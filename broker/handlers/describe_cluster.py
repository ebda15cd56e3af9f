"""DescribeCluster (60), versions 0 to 2.

v1: the type of endpoint asked for (KIP-919), of which a broker's listener serves the brokers' only; v2: fenced
brokers (KIP-1073), of which a single node that answers has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorized_operations import authorized_operations
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import Error
from protocol.messages.metadata import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.network.endpoints import Endpoints
    from broker.security.authorizer import Authorizer

BROKERS = 1
CONTROLLERS = 2


def handle(
    node_id: int,
    rack: str | None,
    cluster_id: str,
    endpoints: Endpoints,
    authorizer: Authorizer,
    context: RequestContext,
    request: DescribeClusterRequest,
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
    response = DescribeClusterResponse(cluster_id=cluster_id, controller_id=node_id)
    if request.include_cluster_authorized_operations:
        may_describe = authorizer.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        response.cluster_authorized_operations = (
            authorized_operations(authorizer, context, ResourceType.CLUSTER, CLUSTER_NAME)
            if may_describe
            else 0
        )
    endpoint = endpoints.advertised(context.listener_name)
    if endpoint is not None:
        host, port = endpoint
        response.brokers.append(DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack))
    return response
