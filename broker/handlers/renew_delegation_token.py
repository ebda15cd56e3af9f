"""RenewDelegationToken (39), versions 1 to 2 (KIP-48): a token's owner or renewer extends its life.

Sources: `KafkaApis.handleRenewTokenRequest`, `ControllerApis.handleRenewDelegationTokenRequest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.token_decisions import renewed
from broker.handlers.token_requests import end_changed
from broker.network.turns import runs_to_its_end
from protocol.messages.security import RenewDelegationTokenRequest, RenewDelegationTokenResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from protocol.wire.schema import Message


@runs_to_its_end
async def handle(
    node: ControllerPorts, context: RequestContext, request: RenewDelegationTokenRequest
) -> Message:
    return await end_changed(node, context, request, RenewDelegationTokenResponse, renewed)
