"""SaslHandshake (17), versions 0 to 1: the mechanism by which a client signs in. The answer is ILLEGAL_SASL_STATE if
clients don't have to sign in, or if this client has already signed in, as in Kafka. KIP-368 lets clients sign in
again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Error
from protocol.messages.security import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


def handle(node: NodePorts, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    gate = context.connection.gate
    if gate is None:
        context.connection.listener.refused_sasl(context.sender, request.mechanism)
        return SaslHandshakeResponse(error_code=Error.ILLEGAL_SASL_STATE)
    error = gate.shake(request.mechanism, context.api_version)
    mechanisms = [] if error is Error.ILLEGAL_SASL_STATE else gate.mechanisms
    return SaslHandshakeResponse(error_code=error, mechanisms=mechanisms)
