"""UnregisterController (94), version 0 (KIP-1312): the cluster forgets a controller that is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.cluster_control import unregister_controller
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, cluster_refusal
from protocol.messages.cluster_admin import UnregisterControllerRequest, UnregisterControllerResponse

if TYPE_CHECKING:
    from broker.controller.controller import ControllerResult
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from protocol.errors import KafkaError
    from protocol.waiting import Waiting


@runs_to_its_end
async def handle(
    node: ControllerPorts, context: RequestContext, request: UnregisterControllerRequest
) -> UnregisterControllerResponse:
    def decide(image: ClusterImage) -> Waiting[ControllerResult[KafkaError | None]]:
        return unregister_controller(image, request.controller_id, active_id=node.node_id)

    failure = cluster_refusal(node.authorizer, context, Operation.ALTER)
    if failure is None:
        failure = await node.controller.submit(decide)
    response = UnregisterControllerResponse()
    if failure is not None:
        response.error_code, response.error_message = failure.error, failure.message
    return response
