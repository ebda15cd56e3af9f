"""BrokerRegistration (62), versions 0 to 4, of a controller (KIP-631).

v1: migration from ZooKeeper, which isn't supported; v2: log directories (KIP-858); v3: the epoch of the previous run
(KIP-966); v4: features whose lowest level is 0 (KIP-1022).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, cluster_refusal
from protocol.errors import KafkaError
from protocol.messages.broker_to_controller import BrokerRegistrationRequest, BrokerRegistrationResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


@runs_to_its_end
async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: BrokerRegistrationRequest,
) -> BrokerRegistrationResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.CLUSTER_ACTION)
    if refusal is not None:
        return BrokerRegistrationResponse(error_code=refusal.error)
    epoch = await node.cluster_control.register(request, context.api_version)
    if isinstance(epoch, KafkaError):
        return BrokerRegistrationResponse(error_code=epoch.error)
    return BrokerRegistrationResponse(broker_epoch=epoch)
