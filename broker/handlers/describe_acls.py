"""DescribeAcls (29), versions 1 to 3: there is no authorizer, which is answered with SECURITY_DISABLED, as in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import NO_AUTHORIZER, Operation, check_cluster_operation
from protocol.errors import Error, KafkaError
from protocol.messages.acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer


def handle(
    authorizer: Authorizer, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    try:
        check_cluster_operation(authorizer, context, Operation.DESCRIBE)
    except KafkaError as refusal:
        return DescribeAclsResponse(error_code=refusal.error, error_message=refusal.message)
    return DescribeAclsResponse(error_code=Error.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
