"""IncrementalAlterConfigs (44), versions 0 to 1 (KIP-339): set, delete, append and subtract single settings.

All or nothing for each resource; resources don't depend on each other. What is set takes effect before the answer.
The levels of loggers (KIP-412) are the process's and aren't stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config import logger_levels
from broker.config.alterations import Alteration, Operation, check_request
from broker.config.resources import alter, check_resource
from broker.controller import config_decisions
from broker.controller.config_decisions import BROKER_LOGGER_RESOURCE
from broker.controller.image import BROKER_RESOURCE
from protocol.errors import Error, KafkaError
from protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    unheard_of = any(_has_unknown_operation(resource) for resource in request.resources)

    def check(resource: IncrementalAlterConfigsResource) -> None:
        check_request(_alterations(resource))
        check_resource(server, resource.resource_type, resource.resource_name, loggers=True)

    def decide(resource: IncrementalAlterConfigsResource) -> list[Message]:
        return _decide(server, resource, request.validate_only, unheard_of=unheard_of)

    return IncrementalAlterConfigsResponse(
        responses=alter(server, request.resources, check, decide, validate_only=request.validate_only)
    )


def _alterations(resource: IncrementalAlterConfigsResource) -> list[Alteration]:
    return [Alteration(config.name, config.config_operation, config.value) for config in resource.configs]


def _decide(
    server: Server, resource: IncrementalAlterConfigsResource, validate_only: bool, *, unheard_of: bool
) -> list[Message]:
    kind, name = resource.resource_type, resource.resource_name
    alterations = _alterations(resource)
    if kind == BROKER_LOGGER_RESOURCE:
        logger_levels.check_alterations(alterations)
        if not validate_only:
            logger_levels.alter(alterations)
        return []
    if unheard_of and not (kind == BROKER_RESOURCE and _has_unknown_operation(resource)):
        # Kafka's controller fails on the request as a whole.
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
    return config_decisions.altered(server.metadata.image, server.config, kind, name, alterations)


def _has_unknown_operation(resource: IncrementalAlterConfigsResource) -> bool:
    return any(config.config_operation not in tuple(Operation) for config in resource.configs)
