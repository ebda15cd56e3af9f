"""DescribeDelegationToken (41), versions 1 to 3 (KIP-48): the tokens that the client may see, with their secrets.

A client sees a token if it owns it, requested it or may renew it. It sees others by a right to the token, or to its
owner's tokens (KIP-373). Source: `KafkaApis.handleDescribeTokensRequest`, `DelegationTokenManager.filterToken`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.token_decisions import is_of
from broker.handlers.token_requests import may_ask_for_tokens
from broker.security.authorizer import DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, USER, Principal
from broker.security.delegation_tokens import principal_of_text, token_settings
from protocol.errors import Error
from protocol.messages.metadata_records import DelegationTokenRecord
from protocol.messages.security import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


async def handle(
    node: NodePorts, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    if not may_ask_for_tokens(node, context):
        return DescribeDelegationTokenResponse(error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    settings = token_settings(node.config)
    if settings is None:
        return DescribeDelegationTokenResponse(error_code=Error.DELEGATION_TOKEN_AUTH_DISABLED)
    response = DescribeDelegationTokenResponse()
    owners = request.owners
    if owners is not None and not owners:
        return response
    wanted = (
        None if owners is None else {Principal(each.principal_type, each.principal_name) for each in owners}
    )
    pause = Pause()
    for token in [*node.metadata.image.kept.of_type(DelegationTokenRecord)]:
        if pause.is_due():
            await turn()
        assert isinstance(token, DelegationTokenRecord)
        if wanted is not None and not is_of(token, wanted):
            continue
        if _may_see(node, context, token):
            response.tokens.append(_described(context, token, settings.hmac_of(token.token_id)))
    return response


def _may_see(node: NodePorts, context: RequestContext, token: DelegationTokenRecord) -> bool:
    if is_of(token, (context.principal,)):
        return True
    allows = node.authorizer.allows
    return allows(context, DESCRIBE, DELEGATION_TOKEN, token.token_id) or allows(
        context, DESCRIBE_TOKENS, USER, token.owner
    )


def _described(
    context: RequestContext, token: DelegationTokenRecord, secret: bytes
) -> DescribedDelegationToken:
    owner, requester = principal_of_text(token.owner), principal_of_text(token.requester)
    if context.api_version < 3:
        requester = Principal("", "")
    return DescribedDelegationToken(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=secret,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
            for each in map(principal_of_text, token.renewers)
        ],
    )
