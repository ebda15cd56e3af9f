"""UnregisterController (94), version 0 (KIP-1312): the cluster forgets a controller that is no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.broker_registration import unregister_controller
from broker.network.later import Later
from broker.security.authorizer import Operation, cluster_refusal
from protocol.messages.cluster_admin import UnregisterControllerRequest, UnregisterControllerResponse

if TYPE_CHECKING:
    from broker.controller.controller_result import ControllerResult
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from protocol.errors import KafkaError
    from protocol.waiting import Waiting


async def handle(
    node: ControllerPorts, context: RequestContext, request: UnregisterControllerRequest
) -> UnregisterControllerResponse:
    later: Later[UnregisterControllerResponse] = Later()

    def decide(image: ClusterImage) -> Waiting[ControllerResult[KafkaError | None]]:
        return unregister_controller(image, request.controller_id, active_id=node.node_id)

    def reply(failure: KafkaError | None) -> None:
        response = UnregisterControllerResponse()
        if failure is not None:
            response.error_code, response.error_message = failure.error, failure.message
        later.reply(response)

    refusal = cluster_refusal(node.authorizer, context, Operation.ALTER)
    if refusal is None:
        later.waits_for(node.controller.submit(decide, later.guarded(reply), later.fail))
    else:
        reply(refusal)
    return await later
