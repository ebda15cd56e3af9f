"""IncrementalAlterConfigs (44) of a controller: requests that brokers forward, and those that clients send to it.

A broker has checked what it forwards. The controller alters the settings of any broker (Kafka: `ControllerApis`,
`ControllerConfigurationValidator`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.config_decisions import ConfigRequest, check_controllers_resource
from broker.handlers.incremental_alter_configs import altered_here
from broker.security.authorizer import ConfigRights, Operation
from protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse:
    asked = ConfigRequest(request.resources)

    await asked.preprocess(check_controllers_resource)
    rights = ConfigRights(node.authorizer, context, Operation.ALTER_CONFIGS)
    return await altered_here(asked, node, rights, request)
