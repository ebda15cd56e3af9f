"""DescribeClientQuotas (48), versions 0 and 1 (KIP-546): the quotas of entities that match a filter. v1: flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.quota_decisions import matching
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import Error, KafkaError
from protocol.messages.configs import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


async def handle(
    node: NodePorts,
    context: RequestContext,
    request: DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse:
    if not node.authorizer.allows(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeClientQuotasResponse(
            error_code=Error.CLUSTER_AUTHORIZATION_FAILED, error_message=None, entries=None
        )
    return await _described(node.metadata.image, request)


async def _described(
    image: ClusterImage, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        found = await matching(image, request.components, strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.error, error_message=error.message, entries=None)
    entries = []
    pause = Pause()
    for entity, values in found.items():
        if pause.is_due():
            await turn()
        entries.append(
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in sorted(entity)],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
        )
    return DescribeClientQuotasResponse(entries=entries)
