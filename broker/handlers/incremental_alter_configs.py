"""IncrementalAlterConfigs (44), versions 0 to 1 (KIP-339): sets, deletes, appends and subtracts single settings.

Each resource is altered as a whole or not at all, independently of the others. A change takes effect before the answer.
The levels of loggers (KIP-412) belong to the process and aren't stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config import logger_levels
from broker.config.alterations import Alteration, AlterConfigOp, alter_broker, check_request
from broker.controller import config_decisions
from broker.controller.config_decisions import BROKER_LOGGER_RESOURCE, ConfigRequest, check_resource
from broker.controller.image import BROKER_RESOURCE
from broker.handlers.altered_resources import alter_remaining, check_files
from broker.security import authorizer as security
from broker.security.authorizer import ConfigRights
from protocol.errors import Error, KafkaError
from protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from protocol.wire.schema import Message

_OPERATIONS = frozenset(AlterConfigOp)


async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse:
    rights = ConfigRights(node.authorizer, context, security.Operation.ALTER_CONFIGS)

    def check(resource: IncrementalAlterConfigsResource) -> bool:
        kind, name = resource.resource_type, resource.resource_name
        alterations = _alterations(resource)
        check_request(alterations)
        if kind in (BROKER_LOGGER_RESOURCE, BROKER_RESOURCE):
            rights.require(kind, name)
        check_resource(node.node_id, kind, name, loggers=True)
        if kind == BROKER_LOGGER_RESOURCE:
            logger_levels.check_alterations(alterations)
            if not request.validate_only:
                logger_levels.alter(alterations)
                node.dispatcher.log_levels_altered()
            return False
        if kind == BROKER_RESOURCE:
            stored = node.metadata.image.configs.get((kind, name), {})
            changes = alter_broker(node.config, stored, alterations, per_broker=bool(name), elr_enabled=False)
            if name:
                check_files(node.key_stores, node.config, {**stored, **changes})
        return True

    asked = ConfigRequest(request.resources)

    await asked.preprocess(check)
    if asked.remaining and node.cluster.forwarding is not None:
        left = IncrementalAlterConfigsRequest(
            resources=[resource for resource, _ in asked.remaining], validate_only=request.validate_only
        )
        told = await node.cluster.forwarding.ask(context, left)
        assert isinstance(told, IncrementalAlterConfigsResponse)
        asked.answered(told.responses)
        return IncrementalAlterConfigsResponse(responses=asked.responses)
    return await altered_here(asked, node, rights, request)


async def altered_here(
    asked: ConfigRequest[IncrementalAlterConfigsResource],
    node: ControllerPorts,
    rights: ConfigRights,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse:
    """Have this node's controller decide on the resources that are left."""
    has_unknown_operation = any(
        each.config_operation not in _OPERATIONS
        for resource in request.resources
        for each in resource.configs
    )

    def decide(image: ClusterImage, resource: IncrementalAlterConfigsResource) -> list[Message]:
        if has_unknown_operation:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR)  # Kafka's controller fails on the request as a whole
        of = (resource.resource_type, resource.resource_name)
        return config_decisions.altered(image, node.config, of, _alterations(resource))

    await alter_remaining(asked, node, rights, decide, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=asked.responses)


def _alterations(resource: IncrementalAlterConfigsResource) -> list[Alteration]:
    return [Alteration(each.name, each.config_operation, each.value) for each in resource.configs]
