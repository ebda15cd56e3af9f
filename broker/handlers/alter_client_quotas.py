"""AlterClientQuotas (49), versions 0 and 1 (KIP-546): quotas are set, changed and removed. v1 flexible.

Quotas are enforced from the next request on (`broker.quotas`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.quota_decisions import altered
from broker.network.addresses import address_of
from protocol.errors import Error, KafkaError
from protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntryResult,
    EntityData,
)
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    resolved: dict[str, str | None] = {}

    def is_host(host: str) -> bool:
        if host not in resolved:
            resolved[host] = address_of(host)
        return resolved[host] is not None

    try:
        decided, outcomes = altered(server.metadata.image, request.entries, is_host)
        failure = None if request.validate_only else _written(server, decided, resolved)
    except KafkaError as error:
        return AlterClientQuotasResponse(
            entries=[
                AlterEntryResult(
                    entity=[
                        EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                        for part in entry.entity
                    ],
                    error_code=error.error,
                    error_message=error.message or "The request can't be carried out.",
                )
                for entry in request.entries
            ]
        )
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


def _written(server: Server, decided: list[Message], resolved: dict[str, str | None]) -> KafkaError | None:
    """What the disk had against it. Raises as `try_append`."""
    with server.quotas.resolved(resolved):
        return server.metadata.try_append(decided)
