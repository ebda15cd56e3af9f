"""DeleteAcls (31), versions 1 to 3: removes the ACLs that match filters from the metadata log. Without an authorizer
the answer is SECURITY_DISABLED, as in Kafka (`AclApis`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.acl_decisions import Deleted, deleted
from broker.controller.acls import AclFilter
from broker.controller.controller import ControllerResult
from broker.network.answers import CloseConnectionError
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import NO_AUTHORIZER_FOR_CHANGES, Operation, cluster_refusal
from protocol.errors import Error, KafkaError
from protocol.messages.security import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


@runs_to_its_end
async def handle(
    node: ControllerPorts, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    filters = [AclFilter.of(each) for each in request.filters]
    if any(each.is_nonsense for each in filters):
        raise CloseConnectionError("DeleteAcls with the code UNKNOWN")
    refusal = cluster_refusal(node.authorizer, context, Operation.ALTER)
    if refusal is None and node.config.authorizer is None:
        refusal = KafkaError(Error.SECURITY_DISABLED, NO_AUTHORIZER_FOR_CHANGES)
    if refusal is not None:
        return await _response([Deleted([], refusal)] * len(filters))

    async def decide(image: ClusterImage) -> ControllerResult[list[Deleted]]:
        decided, outcomes = await deleted(image, filters)
        return ControllerResult(
            decided,
            lambda failure: (
                outcomes
                if failure is None
                else [each if each.error else Deleted([], failure) for each in outcomes]
            ),
        )

    outcomes = await node.controller.submit(decide)
    if isinstance(outcomes, KafkaError):
        outcomes = [Deleted([], outcomes)] * len(filters)
    return await _response(outcomes)


async def _response(outcomes: list[Deleted]) -> DeleteAclsResponse:
    response = DeleteAclsResponse()
    pause = Pause()
    for acls, error in outcomes:
        found = []
        for acl in acls:
            if pause.is_due():
                await turn()
            found.append(DeleteAclsMatchingAcl(**acl._asdict()))
        response.filter_results.append(
            DeleteAclsFilterResult(
                error_code=Error.NONE if error is None else error.error,
                error_message=None if error is None else error.message,
                matching_acls=found,
            )
        )
    return response
