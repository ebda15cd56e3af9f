"""SaslAuthenticate (36), versions 0 to 2: a token of a client that signs in. v1: the lifetime of the session (KIP-368).
If none is expected, the answer is ILLEGAL_SASL_STATE, as in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Error
from protocol.messages.security import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


def handle(
    node: NodePorts, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    gate = context.connection.gate
    if gate is None:
        context.connection.listener.refused_sasl(context.sender, "")
        return SaslAuthenticateResponse(
            error_code=Error.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    told = gate.authenticate(context.connection, bytes(request.auth_bytes))
    return SaslAuthenticateResponse(
        error_code=told.error,
        error_message=told.message,
        auth_bytes=told.token,
        session_lifetime_ms=told.lifetime_ms,
    )
