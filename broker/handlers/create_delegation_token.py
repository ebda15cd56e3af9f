"""CreateDelegationToken (38), versions 1 to 3 (KIP-48): no tokens over an unauthenticated connection, as in
Kafka; its controller, which allows them of whom a broker has authenticated, has none without a secret key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import USER, Operation, Principal
from protocol.errors import Error
from protocol.messages.security import CreateDelegationTokenRequest, CreateDelegationTokenResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer


def handle(
    node: NodePorts, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    owner = requester = context.principal
    error = None
    if context.api_version >= 3 and request.owner_principal_name:
        if request.owner_principal_type is None:
            error = Error.UNKNOWN_SERVER_ERROR  # Kafka's handler fails
        else:
            owner = Principal(request.owner_principal_type, request.owner_principal_name)
    if error is None:
        error = _refusal(node.authorizer, context, owner)
    response = CreateDelegationTokenResponse(
        error_code=error, principal_type=owner.type, principal_name=owner.name
    )
    if context.api_version >= 3:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    if error is not Error.DELEGATION_TOKEN_AUTH_DISABLED:
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = -1
    return response


def _refusal(authorizer: Authorizer, context: RequestContext, owner: Principal) -> Error:
    if not context.is_forwarded:
        return Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if owner != context.principal and not authorizer.allows(
        context, Operation.CREATE_TOKENS, USER, f"{owner.type}:{owner.name}"
    ):
        return Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    return Error.DELEGATION_TOKEN_AUTH_DISABLED
