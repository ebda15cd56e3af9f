"""CreateDelegationToken (38), versions 1 to 3 (KIP-48; KIP-373: for another owner): the controller creates a token.

Sources: `KafkaApis.handleCreateTokenRequest`, `ControllerApis.handleCreateDelegationTokenRequest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.controller import ControllerResult
from broker.controller.token_decisions import created
from broker.handlers.token_requests import is_at_controller, may_ask_for_tokens
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import ANONYMOUS, USER, USER_TYPE, Operation, Principal
from broker.security.delegation_tokens import token_settings
from protocol.errors import Error, KafkaError
from protocol.messages.security import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from protocol.wire.primitives import uuid_to_text

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from protocol.wire.schema import Message


@runs_to_its_end
async def handle(
    node: ControllerPorts, context: RequestContext, request: CreateDelegationTokenRequest
) -> Message:
    owner = requester = context.principal
    if request.owner_principal_name:
        if request.owner_principal_type is None:  # Kafka's handler fails
            return _refused(context, Error.UNKNOWN_SERVER_ERROR, ANONYMOUS, ANONYMOUS)
        owner = Principal(request.owner_principal_type, request.owner_principal_name)
    at_controller = is_at_controller(node, context)
    if not may_ask_for_tokens(node, context):
        return _refused(context, Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, owner, requester)
    if owner != requester and not node.authorizer.allows(context, Operation.CREATE_TOKENS, USER, str(owner)):
        return _refused(context, Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED, owner, requester)
    if not at_controller:
        if any(each.principal_type != USER_TYPE for each in request.renewers):
            return _refused(context, Error.INVALID_PRINCIPAL_TYPE, owner, requester)
        if node.forwarding is not None:
            return await node.forwarding.ask(context, request)

    def decide(image: ClusterImage) -> ControllerResult[CreateDelegationTokenResponse | KafkaError]:
        decided, answer = created(
            image,
            token_settings(node.config),
            request,
            owner=owner,
            requester=requester,
            token_id=uuid_to_text(node.chance.uuid()),
            now_ms=node.clock.now_ms(),
        )
        return ControllerResult(decided, lambda failure: failure or answer)

    answer = await node.controller.submit(decide)
    if isinstance(answer, KafkaError):
        return _refused(context, answer.error, ANONYMOUS, ANONYMOUS)
    return _as_known_to(context, answer)


def _refused(
    context: RequestContext, error: Error, owner: Principal, requester: Principal
) -> CreateDelegationTokenResponse:
    """The answer to a request that the controller didn't decide."""
    response = CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    return _as_known_to(context, response)


def _as_known_to(
    context: RequestContext, response: CreateDelegationTokenResponse
) -> CreateDelegationTokenResponse:
    if context.api_version < 3:
        response.token_requester_principal_type = response.token_requester_principal_name = ""
    return response
