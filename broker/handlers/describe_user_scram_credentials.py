"""DescribeUserScramCredentials (50), version 0 (KIP-554): the credentials of users, without their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.controller.scram_decisions import credentials
from broker.network.turns import in_turns
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import Error
from protocol.messages.security import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


async def handle(
    node: NodePorts,
    context: RequestContext,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse:
    if not node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = Error.CLUSTER_AUTHORIZATION_FAILED
        return DescribeUserScramCredentialsResponse(
            error_code=denied,
            error_message=None,
            results=[  # without a name, as in Kafka
                DescribeUserScramCredentialsResult(error_code=denied, error_message=None)
                for _ in request.users or ()
            ],
        )
    return await _described(node.metadata, request)


async def _described(
    metadata: MetadataLog, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    known: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), record in credentials(metadata.image).items():
        info = CredentialInfo(mechanism=mechanism, iterations=record.iterations)
        known.setdefault(user, []).append(info)
    asked = Counter(user.name for user in request.users or ()) or Counter(known.keys())
    response = DescribeUserScramCredentialsResponse(error_message="")

    def describe(some: Sequence[tuple[str, int]]) -> None:
        response.results += [_result(user, times, known.get(user)) for user, times in some]

    await in_turns([*asked.items()], describe)
    return response


def _result(user: str, times: int, found: list[CredentialInfo] | None) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=user, error_message="")
    if times > 1:
        result.error_code = Error.DUPLICATE_RESOURCE
        result.error_message = f"A user can be described once in a request, and not twice: {user}"
    elif found is None:
        result.error_code = Error.RESOURCE_NOT_FOUND
        result.error_message = f"Attempt to describe a user credential that does not exist: {user}"
    else:
        result.credential_infos = found
    return result
