"""DescribeUserScramCredentials (50), version 0 (KIP-554): who has which credentials; keys are never shown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.controller.scram_decisions import credentials
from protocol.errors import Error
from protocol.messages.scram import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    known: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), record in credentials(server.metadata.image).items():
        info = CredentialInfo(mechanism=mechanism, iterations=record.iterations)
        known.setdefault(user, []).append(info)
    asked = Counter(user.name for user in request.users or ()) or Counter(known.keys())
    response = DescribeUserScramCredentialsResponse(error_message="")
    for user, times in asked.items():
        result = DescribeUserScramCredentialsResult(user=user, error_message="")
        if times > 1:
            result.error_code = Error.DUPLICATE_RESOURCE
            result.error_message = f"A user can be described once in a request, and not twice: {user}"
        elif user not in known:
            result.error_code = Error.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {user}"
        else:
            result.credential_infos = known[user]
        response.results.append(result)
    return response
