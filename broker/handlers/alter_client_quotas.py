"""AlterClientQuotas (49), versions 0 and 1 (KIP-546): quotas are set, changed and removed. v1 flexible.

Quotas are enforced from the next request on (`broker.quotas`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.quota_decisions import altered
from protocol.errors import Error
from protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntryResult,
    EntityData,
)

if TYPE_CHECKING:
    from broker.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    decided, outcomes = altered(server.metadata.image, request.entries)
    failure = None if request.validate_only else server.metadata.try_append(decided)
    if failure is not None:
        outcomes = {entity: refusal or failure for entity, refusal in outcomes.items()}
    return AlterClientQuotasResponse(
        entries=[
            AlterEntryResult(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in sorted(entity)],
                error_code=Error.NONE if refusal is None else refusal.error,
                error_message=None if refusal is None else refusal.message,
            )
            for entity, refusal in outcomes.items()
        ]
    )
