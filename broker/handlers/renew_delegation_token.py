"""RenewDelegationToken (39), versions 1 to 2 (KIP-48): no tokens over an unauthenticated connection, as in
Kafka; its controller, which allows them of whom a broker has authenticated, has none without a secret key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Error
from protocol.messages.security import RenewDelegationTokenRequest, RenewDelegationTokenResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


def handle(
    node: NodePorts, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    if context.is_forwarded:
        return RenewDelegationTokenResponse(error_code=Error.DELEGATION_TOKEN_AUTH_DISABLED)
    return RenewDelegationTokenResponse(
        error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
    )
