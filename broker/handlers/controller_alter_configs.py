"""AlterConfigs (33) of a controller: requests that brokers forward, and requests that clients send to the controller.

A broker has checked what it forwards. The controller alters the settings of any broker (Kafka: `ControllerApis`,
`ControllerConfigurationValidator`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.config_decisions import ConfigRequest, check_controllers_resource
from broker.handlers.alter_configs import replaced_here
from broker.security.authorizer import ConfigRights, Operation
from protocol.messages.configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse:
    asked = ConfigRequest(request.resources)

    await asked.preprocess(check_controllers_resource)
    rights = ConfigRights(node.authorizer, context, Operation.ALTER_CONFIGS)
    return await replaced_here(asked, node, rights, request)
