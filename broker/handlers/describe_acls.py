"""DescribeAcls (29), versions 1 to 3: there is no authorizer, which is answered with SECURITY_DISABLED, as in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import NO_AUTHORIZER, Operation, cluster_refusal
from protocol.errors import Error
from protocol.messages.security import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


def handle(node: NodePorts, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.DESCRIBE)
    if refusal is not None:
        return DescribeAclsResponse(error_code=refusal.error, error_message=refusal.message)
    return DescribeAclsResponse(error_code=Error.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
