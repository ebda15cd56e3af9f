"""DescribeCluster (60), versions 0 to 2.

v1: the client says which type of endpoint it wants (KIP-919), and a broker's listener serves only that of brokers;
v2: fenced brokers (KIP-1073).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.image import ListenerView
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType, authorized_operations
from protocol.errors import Error
from protocol.messages.metadata import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext

BROKERS = 1
CONTROLLERS = 2
NO_CONTROLLER = -1


def handle(
    node: NodePorts,
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
    response = DescribeClusterResponse(cluster_id=node.cluster_id, controller_id=node.node_id)
    if request.include_cluster_authorized_operations:
        may_describe = node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        response.cluster_authorized_operations = (
            authorized_operations(node.authorizer, context, ResourceType.CLUSTER, CLUSTER_NAME)
            if may_describe
            else 0
        )
    response.brokers = [
        DescribeClusterBroker(
            broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack, is_fenced=each.fenced
        )
        for each in ListenerView(node.metadata.image, context.listener_name).nodes.values()
        if not each.fenced or request.include_fenced_brokers
    ]
    if all(broker.broker_id != node.node_id for broker in response.brokers):
        response.controller_id = NO_CONTROLLER  # clients couldn't find it
    return response
