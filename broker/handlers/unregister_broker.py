"""UnregisterBroker (64), version 0 (KIP-500): the cluster forgets a broker.

Conscious difference: the answer is INVALID_REQUEST for the broker in the controller's own process. Without it a cluster
of one would have no broker.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.controller.cluster_control import unregister
from broker.controller.partition_changes import updates_of_unregistered
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, cluster_refusal
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from broker.controller.controller import ControllerResult
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from protocol.waiting import Waiting


@runs_to_its_end
async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: UnregisterBrokerRequest,
) -> UnregisterBrokerResponse:
    broker_id = request.broker_id

    def decide(image: ClusterImage) -> Waiting[ControllerResult[KafkaError | None]]:
        if broker_id == node.node_id and broker_id in image.brokers:
            raise KafkaError(
                Error.INVALID_REQUEST, "The broker in the controller's own process can't be unregistered"
            )
        return unregister(image, broker_id, partial(updates_of_unregistered, own=node.own_settings))

    failure = cluster_refusal(node.authorizer, context, Operation.ALTER)
    if failure is None:
        failure = await node.controller.submit(decide)
    response = UnregisterBrokerResponse()
    if failure is not None:
        response.error_code, response.error_message = failure.error, failure.message
    return response
