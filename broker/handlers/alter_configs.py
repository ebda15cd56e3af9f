"""AlterConfigs (33), versions 0 to 2: replaces all settings of a resource; what isn't named goes.

Old clients' way, and why IncrementalAlterConfigs came (KIP-339). Loggers can't be altered so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.alterations import Alteration, Operation, check_request
from broker.config.resources import alter, check_resource
from broker.controller import config_decisions
from protocol.messages.configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResponse
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(server: Server, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    def check(resource: AlterConfigsResource) -> None:
        check_request([Alteration(config.name, Operation.SET, config.value) for config in resource.configs])
        check_resource(server, resource.resource_type, resource.resource_name, loggers=False)

    def decide(resource: AlterConfigsResource) -> list[Message]:
        return _decide(server, resource)

    return AlterConfigsResponse(
        responses=alter(server, request.resources, check, decide, validate_only=request.validate_only)
    )


def _decide(server: Server, resource: AlterConfigsResource) -> list[Message]:
    kind, name = resource.resource_type, resource.resource_name
    wanted = {config.name: config.value for config in resource.configs if config.value is not None}
    return config_decisions.replaced(server.metadata.image, server.config, kind, name, wanted)
