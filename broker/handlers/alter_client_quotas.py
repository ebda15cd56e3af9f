"""AlterClientQuotas (49), versions 0 and 1 (KIP-546): sets, changes and removes quotas. v1: flexible.

A quota applies from the next request on (`broker.quotas`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.controller import ControllerResult
from broker.controller.quota_decisions import IP, Outcomes, altered
from broker.network.turns import PER_TURN, runs_to_its_end
from broker.security.authorizer import (
    AUTHORIZATION_FAILED,
    CLUSTER_NAME,
    Operation,
    ResourceType,
)
from protocol.errors import Error, KafkaError
from protocol.messages.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntryResult,
    EntityData,
)
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


MOST_HOST_NAMES = 1_000
"""Host names that one request may have looked up: a name service may take seconds for each."""

MOST_PARTS = 1_000
"""Parts that the entity of one entry may have. There are three types of parts, and each counts once."""


@runs_to_its_end
async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: AlterClientQuotasRequest,
) -> AlterClientQuotasResponse:
    if not node.authorizer.allows(context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = Error.CLUSTER_AUTHORIZATION_FAILED
        return await _refused(request, KafkaError(denied, AUTHORIZATION_FAILED[denied]))
    if any(len(entry.entity) > MOST_PARTS for entry in request.entries):
        too_long = KafkaError(Error.INVALID_REQUEST, f"An entity may have {MOST_PARTS} parts.")
        return await _refused(request, too_long)
    addresses = await node.host_names.look_up(_hosts(request), context, MOST_HOST_NAMES)

    def is_host(host: str) -> bool:
        if host not in addresses:
            raise KafkaError(
                Error.INVALID_REQUEST,
                f"{host} is not looked up: a request may have {MOST_HOST_NAMES} names of hosts.",
            )
        return addresses[host] is not None

    async def decide(image: ClusterImage) -> ControllerResult[Outcomes]:
        decided, outcomes = await altered(image, request.entries, is_host)
        return ControllerResult(
            [] if request.validate_only else decided,
            lambda failure: {entity: refusal or failure for entity, refusal in outcomes.items()},
        )

    forget = node.quotas.expect(addresses)
    try:
        outcomes = await node.controller.submit(decide)
    finally:
        forget()
    return await (_refused(request, outcomes) if isinstance(outcomes, KafkaError) else _response(outcomes))


def _hosts(request: AlterClientQuotasRequest) -> list[str]:
    """The hosts that the entries name. Kafka looks them up while it decides, and all other requests wait for it."""
    return [
        part.entity_name
        for entry in request.entries
        for part in entry.entity
        if part.entity_type == IP and part.entity_name
    ]


async def _response(outcomes: Outcomes) -> AlterClientQuotasResponse:
    response = AlterClientQuotasResponse()
    pause = Pause(PER_TURN)
    for entity, refusal in outcomes.items():
        parts = []
        for kind, name in sorted(entity):
            if pause.is_due():
                await turn()
            parts.append(EntityData(entity_type=kind, entity_name=name))
        response.entries.append(
            AlterEntryResult(
                entity=parts,
                error_code=Error.NONE if refusal is None else refusal.error,
                error_message=None if refusal is None else refusal.message,
            )
        )
    return response


async def _refused(request: AlterClientQuotasRequest, refusal: KafkaError) -> AlterClientQuotasResponse:
    """The answer that refuses the whole request."""
    response = AlterClientQuotasResponse()
    pause = Pause(PER_TURN)
    for entry in request.entries:
        if pause.is_due():
            await turn()
        parts = []
        for part in entry.entity:
            if pause.is_due():
                await turn()
            parts.append(EntityData(entity_type=part.entity_type, entity_name=part.entity_name))
        response.entries.append(
            AlterEntryResult(
                entity=parts,
                error_code=refusal.error,
                error_message=refusal.message or "The request can't be carried out.",
            )
        )
    return response
