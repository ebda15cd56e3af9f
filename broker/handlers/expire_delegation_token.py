"""ExpireDelegationToken (40), versions 1 to 2 (KIP-48): a token's owner, or whoever may renew it, says when it ends.

Sources: `KafkaApis.handleExpireTokenRequest`, `ControllerApis.handleExpireDelegationTokenRequest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.controller import ControllerResult
from broker.controller.token_decisions import expired
from broker.handlers.token_requests import is_at_controller, may_ask_for_tokens
from broker.network.turns import runs_to_its_end
from broker.security.delegation_tokens import token_settings
from protocol.errors import Error, KafkaError
from protocol.messages.security import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from protocol.wire.schema import Message


@runs_to_its_end
async def handle(
    node: ControllerPorts, context: RequestContext, request: ExpireDelegationTokenRequest
) -> Message:
    if not may_ask_for_tokens(node, context):
        return ExpireDelegationTokenResponse(
            error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
        )
    if node.forwarding is not None and not is_at_controller(node, context):
        return await node.forwarding.ask(context, request)

    async def decide(image: ClusterImage) -> ControllerResult[ExpireDelegationTokenResponse | KafkaError]:
        decided, answer = await expired(
            image,
            token_settings(node.config),
            request,
            asks=context.principal,
            now_ms=node.clock.now_ms(),
        )
        return ControllerResult(decided, lambda failure: failure or answer)

    answer = await node.controller.submit(decide)
    if isinstance(answer, KafkaError):
        return ExpireDelegationTokenResponse(error_code=answer.error)
    return answer
