"""CreateDelegationToken (38), versions 1 to 3 (KIP-48): no tokens over an unauthenticated connection, as in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Error
from protocol.messages.delegation_tokens import CreateDelegationTokenRequest, CreateDelegationTokenResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext


def handle(context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    principal_type, principal_name = context.principal
    response = CreateDelegationTokenResponse(
        error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=principal_type,
        principal_name=principal_name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    if context.api_version >= 3:
        response.token_requester_principal_type = principal_type
        response.token_requester_principal_name = principal_name
        owner_type, owner_name = request.owner_principal_type, request.owner_principal_name
        if owner_name and owner_type is None:
            response.error_code = Error.UNKNOWN_SERVER_ERROR  # Kafka's handler fails
        elif owner_name:
            response.principal_type, response.principal_name = owner_type or "", owner_name
    return response
