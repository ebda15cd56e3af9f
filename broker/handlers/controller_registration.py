"""ControllerRegistration (70), version 0, of a controller: a controller registers itself (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.cluster_control import register_controller
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, cluster_refusal
from protocol.messages.broker_to_controller import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


@runs_to_its_end
async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: ControllerRegistrationRequest,
) -> ControllerRegistrationResponse:
    failure = cluster_refusal(node.authorizer, context, Operation.CLUSTER_ACTION)
    if failure is None:
        failure = await node.controller.submit(lambda image: register_controller(image, request))
    response = ControllerRegistrationResponse(error_message=None)
    if failure is not None:
        response.error_code, response.error_message = failure.error, failure.message
    return response
