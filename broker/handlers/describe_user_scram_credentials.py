"""DescribeUserScramCredentials (50), version 0 (KIP-554): who has which credentials; keys are never shown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.controller.scram_decisions import credentials
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import Error
from protocol.messages.scram import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer


def handle(
    metadata: MetadataLog,
    authorizer: Authorizer,
    context: RequestContext,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse:
    if not authorizer.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = Error.CLUSTER_AUTHORIZATION_FAILED
        return DescribeUserScramCredentialsResponse(
            error_code=denied,
            error_message=None,
            results=[  # without a name, as in Kafka
                DescribeUserScramCredentialsResult(error_code=denied, error_message=None)
                for _ in request.users or ()
            ],
        )
    known: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), record in credentials(metadata.image).items():
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
