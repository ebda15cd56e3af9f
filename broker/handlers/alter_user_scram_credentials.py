"""AlterUserScramCredentials (51), version 0 (KIP-554): creates, replaces and deletes credentials.

The metadata log keeps them. Clients sign in with them (`broker.security.sasl`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.controller import ControllerResult
from broker.controller.scram_decisions import Outcomes, altered
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, cluster_refusal
from protocol.errors import Error, KafkaError
from protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


@runs_to_its_end
async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse:
    async def decide(image: ClusterImage) -> ControllerResult[Outcomes]:
        decided, outcomes = await altered(image, request.deletions, request.upsertions)
        return ControllerResult(
            decided, lambda failure: {user: refusal or failure for user, refusal in outcomes.items()}
        )

    outcomes: Outcomes | KafkaError | None = cluster_refusal(node.authorizer, context, Operation.ALTER)
    if outcomes is None:
        outcomes = await node.controller.submit(decide)
    if isinstance(outcomes, KafkaError):
        users = {each.name for each in request.deletions} | {each.name for each in request.upsertions}
        outcomes = dict.fromkeys(sorted(users), outcomes)
    return _response(outcomes)


def _response(outcomes: Outcomes) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user,
                error_code=Error.NONE if refusal is None else refusal.error,
                error_message=None if refusal is None else refusal.message,
            )
            for user, refusal in outcomes.items()
        ]
    )
