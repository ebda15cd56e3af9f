"""BrokerHeartbeat (63), versions 0 to 2, of a controller (KIP-631).

v1: failed directories (KIP-858); v2: cordoned ones (KIP-1066).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, cluster_refusal
from protocol.errors import KafkaError
from protocol.messages.broker_to_controller import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


@runs_to_its_end
async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: BrokerHeartbeatRequest,
) -> BrokerHeartbeatResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.CLUSTER_ACTION)
    if refusal is not None:
        return BrokerHeartbeatResponse(error_code=refusal.error)
    answer = await node.cluster_control.heartbeat(request)
    if isinstance(answer, KafkaError):
        return BrokerHeartbeatResponse(error_code=answer.error)
    return BrokerHeartbeatResponse(
        is_caught_up=answer.is_caught_up,
        is_fenced=answer.is_fenced,
        should_shut_down=answer.should_shut_down,
    )
