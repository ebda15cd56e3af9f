"""CreateAcls (30), versions 1 to 3: writes ACLs to the metadata log. Without an authorizer the answer is
SECURITY_DISABLED, as in Kafka (`AclApis`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.acl_decisions import created
from broker.controller.acls import UNKNOWN, Acl
from broker.controller.controller import ControllerResult
from broker.network.answers import CloseConnectionError
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import NO_AUTHORIZER_FOR_CHANGES, Operation, cluster_refusal
from protocol.errors import Error, KafkaError
from protocol.messages.security import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


@runs_to_its_end
async def handle(
    node: ControllerPorts, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    wanted = [Acl.of_creation(each) for each in request.creations]
    if any(
        UNKNOWN in (acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type) for acl in wanted
    ):
        raise CloseConnectionError("CreateAcls with the code UNKNOWN")
    refusal = cluster_refusal(node.authorizer, context, Operation.ALTER)
    if refusal is None and node.config.authorizer is None:
        refusal = KafkaError(Error.SECURITY_DISABLED, NO_AUTHORIZER_FOR_CHANGES)
    if refusal is not None:
        return _response([refusal] * len(wanted))

    async def decide(image: ClusterImage) -> ControllerResult[list[KafkaError | None]]:
        decided, outcomes = await created(image, wanted, node.chance.uuid)
        return ControllerResult(decided, lambda failure: [refusal or failure for refusal in outcomes])

    outcomes = await node.controller.submit(decide)
    return _response([outcomes] * len(wanted) if isinstance(outcomes, KafkaError) else outcomes)


def _response(outcomes: list[KafkaError] | list[KafkaError | None]) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(
                error_code=Error.NONE if refusal is None else refusal.error,
                error_message="" if refusal is None else refusal.message,
            )
            for refusal in outcomes
        ]
    )
