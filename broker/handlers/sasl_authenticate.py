"""SaslAuthenticate (36), versions 0 to 2: every listener is PLAINTEXT, where Kafka answers with ILLEGAL_SASL_STATE."""

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
    context.connection.listener.refused_sasl(context.sender, "")
    return SaslAuthenticateResponse(
        error_code=Error.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
