"""AlterConfigs (33), versions 0 to 2: replaces all settings of a resource. A setting that isn't named is removed.

Only old clients use it; IncrementalAlterConfigs replaced it for that reason (KIP-339). It can't alter loggers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.alterations import Alteration, AlterConfigOp, check_request, replace_broker
from broker.controller import config_decisions
from broker.controller.config_decisions import ConfigRequest, check_resource
from broker.controller.image import BROKER_RESOURCE
from broker.handlers.altered_resources import alter_remaining, check_files
from broker.security import authorizer as security
from broker.security.authorizer import ConfigRights
from protocol.messages.configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResponse

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from protocol.wire.schema import Message


async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse:
    rights = ConfigRights(node.authorizer, context, security.Operation.ALTER_CONFIGS)

    def check(resource: AlterConfigsResource) -> bool:
        kind, name = resource.resource_type, resource.resource_name
        check_request([Alteration(each.name, AlterConfigOp.SET, each.value) for each in resource.configs])
        if kind == BROKER_RESOURCE:
            rights.require(kind, name)
        check_resource(node.node_id, kind, name, loggers=False)
        if kind == BROKER_RESOURCE:
            stored = node.metadata.image.configs.get((kind, name), {})
            wanted = _wanted(resource)
            replace_broker(node.config, stored, wanted, per_broker=bool(name), elr_enabled=False)
            if name:
                check_files(node.key_stores, node.config, wanted)
        return True

    asked = ConfigRequest(request.resources)

    await asked.preprocess(check)
    if asked.remaining and node.cluster.forwarding is not None:
        left = AlterConfigsRequest(
            resources=[resource for resource, _ in asked.remaining], validate_only=request.validate_only
        )
        told = await node.cluster.forwarding.ask(context, left)
        assert isinstance(told, AlterConfigsResponse)
        asked.answered(told.responses)
        return AlterConfigsResponse(responses=asked.responses)
    return await replaced_here(asked, node, rights, request)


async def replaced_here(
    asked: ConfigRequest[AlterConfigsResource],
    node: ControllerPorts,
    rights: ConfigRights,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse:
    """Have this node's controller decide on the resources that are left."""

    def decide(image: ClusterImage, resource: AlterConfigsResource) -> list[Message]:
        of = (resource.resource_type, resource.resource_name)
        return config_decisions.replaced(image, node.config, of, _wanted(resource))

    await alter_remaining(asked, node, rights, decide, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=asked.responses)


def _wanted(resource: AlterConfigsResource) -> dict[str, str]:
    return {each.name: each.value for each in resource.configs if each.value is not None}
