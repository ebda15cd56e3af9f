"""DescribeCluster (60), versions 0 to 2, of a controller: the cluster's controllers (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.describe_cluster import BROKERS, CONTROLLERS
from broker.security.authorizer import (
    CLUSTER_NAME,
    Operation,
    ResourceType,
    authorized_operations,
    cluster_refusal,
)
from protocol.errors import Error, KafkaError
from protocol.messages.metadata import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


def handle(
    node: NodePorts,
    context: RequestContext,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.ALTER) or _mistake(
        request.endpoint_type, context.api_version
    )
    if refusal is not None:
        return DescribeClusterResponse(error_code=refusal.error, error_message=refusal.message)
    response = DescribeClusterResponse(
        endpoint_type=CONTROLLERS, cluster_id=node.cluster_id, controller_id=node.node_id
    )
    if request.include_cluster_authorized_operations and node.authorizer.allows(
        context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        response.cluster_authorized_operations = authorized_operations(
            node.authorizer, context, ResourceType.CLUSTER, CLUSTER_NAME
        )
    told = node.endpoints.advertised(context.listener_name)
    if told is not None:
        host, port = told
        response.brokers = [DescribeClusterBroker(broker_id=node.node_id, host=host, port=port)]
    return response


def _mistake(asked: int, api_version: int) -> KafkaError | None:
    """The error if the client wants another type of endpoint. Version 0 has no type and so wants brokers."""
    if asked == CONTROLLERS:
        return None
    if asked == BROKERS:
        error = Error.MISMATCHED_ENDPOINT_TYPE
        message = "This endpoint is of type CONTROLLER, and one of type BROKER was wanted"
    else:
        error, message = Error.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {asked}"
    return KafkaError(Error.INVALID_REQUEST if api_version == 0 else error, message)
