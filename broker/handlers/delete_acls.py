"""DeleteAcls (31), versions 1 to 3: there is no authorizer, which is answered with SECURITY_DISABLED, as in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import NO_AUTHORIZER_FOR_CHANGES, Operation, cluster_refusal
from protocol.errors import Error, KafkaError
from protocol.messages.security import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


def handle(node: NodePorts, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.ALTER)
    if refusal is None:
        refusal = KafkaError(Error.SECURITY_DISABLED, NO_AUTHORIZER_FOR_CHANGES)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=refusal.error, error_message=refusal.message)
            for _ in request.filters
        ]
    )
