"""DescribeAcls (29), versions 1 to 3: the ACLs that match a filter. Without an authorizer the answer is
SECURITY_DISABLED, as in Kafka (`AclApis`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.acls import AclFilter
from broker.network.answers import CloseConnectionError
from broker.security.authorizer import NO_AUTHORIZER, Operation, cluster_refusal
from protocol.errors import Error
from protocol.messages.security import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


async def handle(
    node: NodePorts, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    wanted = AclFilter.of(request)
    if wanted.is_nonsense:
        raise CloseConnectionError("DescribeAcls with the code UNKNOWN")
    refusal = cluster_refusal(node.authorizer, context, Operation.DESCRIBE)
    if refusal is not None:
        return DescribeAclsResponse(error_code=refusal.error, error_message=refusal.message)
    if node.config.authorizer is None:
        return DescribeAclsResponse(error_code=Error.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    found: dict[tuple[int, int, str], DescribeAclsResource] = {}
    pause = Pause()
    for acl in [*node.metadata.image.kept.acls]:
        if pause.is_due():
            await turn()
        if not wanted.matches(acl):
            continue
        pattern = acl.resource_type, acl.pattern_type, acl.resource_name
        if pattern not in found:
            found[pattern] = DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
            )
        found[pattern].acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
        )
    return DescribeAclsResponse(resources=[*found.values()])
