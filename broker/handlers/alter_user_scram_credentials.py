"""AlterUserScramCredentials (51), version 0 (KIP-554): credentials are made, replaced and deleted.

They are kept in the metadata log for a Kafka that is started on this folder; SASL isn't built here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.scram_decisions import altered
from broker.security.authorizer import Operation, check_cluster_operation
from protocol.errors import Error, KafkaError
from protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer


def handle(
    metadata: MetadataLog,
    authorizer: Authorizer,
    context: RequestContext,
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse:
    failure: KafkaError | None = None
    outcomes: dict[str, KafkaError | None]
    try:
        check_cluster_operation(authorizer, context, Operation.ALTER)
        decided, outcomes = altered(metadata.image, request.deletions, request.upsertions)
        failure = metadata.try_append(decided)
    except KafkaError as refusal:
        users = {each.name for each in request.deletions} | {each.name for each in request.upsertions}
        outcomes = dict.fromkeys(sorted(users), refusal)
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
