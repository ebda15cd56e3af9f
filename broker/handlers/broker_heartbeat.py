"""BrokerHeartbeat (63), versions 0 to 2, of a controller (KIP-631).

v1: directories that failed (KIP-858); v2: those that are cordoned (KIP-1066).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.later import Later
from broker.security.authorizer import Operation, cluster_refusal
from protocol.errors import KafkaError
from protocol.messages.broker_to_controller import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from broker.controller.broker_registration import BrokerHeartbeatReply
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: BrokerHeartbeatRequest,
) -> BrokerHeartbeatResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.CLUSTER_ACTION)
    if refusal is not None:
        return BrokerHeartbeatResponse(error_code=refusal.error)
    later: Later[BrokerHeartbeatResponse] = Later()

    def reply(answer: BrokerHeartbeatReply | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            later.reply(BrokerHeartbeatResponse(error_code=answer.error))
            return
        later.reply(
            BrokerHeartbeatResponse(
                is_caught_up=answer.is_caught_up,
                is_fenced=answer.is_fenced,
                should_shut_down=answer.should_shut_down,
            )
        )

    later.waits_for(node.cluster_control.heartbeat(request, later.guarded(reply), later.fail))
    return await later
