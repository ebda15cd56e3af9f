"""CreateDelegationToken (38), versions 1 to 3 (KIP-48): no tokens over an unauthenticated connection, as in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Error
from protocol.messages.delegation_tokens import CreateDelegationTokenRequest, CreateDelegationTokenResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server

PRINCIPAL_TYPE, ANONYMOUS = "User", "ANONYMOUS"  # KafkaPrincipal.ANONYMOUS


def handle(
    server: Server, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    response = CreateDelegationTokenResponse(
        error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=PRINCIPAL_TYPE,
        principal_name=ANONYMOUS,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    if context.api_version >= 3:
        response.token_requester_principal_type = PRINCIPAL_TYPE
        response.token_requester_principal_name = ANONYMOUS
        owner_type, owner_name = request.owner_principal_type, request.owner_principal_name
        if owner_name and owner_type is None:
            response.error_code = Error.UNKNOWN_SERVER_ERROR  # Kafka's handler fails
        elif owner_name:
            response.principal_type, response.principal_name = owner_type or "", owner_name
    return response
