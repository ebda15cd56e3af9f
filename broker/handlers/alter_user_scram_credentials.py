"""AlterUserScramCredentials (51), version 0 (KIP-554): credentials are made, replaced and deleted.

They are kept in the metadata log for a Kafka that is started on this folder; SASL isn't built here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.scram_decisions import altered
from protocol.errors import Error, KafkaError
from protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    decided, outcomes = altered(server.metadata.image, request.deletions, request.upsertions)
    try:
        failure = server.metadata.try_append(decided)
    except KafkaError as refusal:
        failure = None
        outcomes = dict.fromkeys(sorted(outcomes), refusal)
    if failure is not None:
        outcomes = {user: refusal or failure for user, refusal in outcomes.items()}
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
