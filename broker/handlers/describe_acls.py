"""DescribeAcls (29), versions 1 to 3: there is no authorizer, which is answered with SECURITY_DISABLED, as in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import NO_AUTHORIZER
from protocol.errors import Error
from protocol.messages.acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext


def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=Error.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
