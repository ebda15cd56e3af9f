"""ListConfigResources (74), versions 0 to 1.

v0: subscriptions to client metrics (KIP-714, as ListClientMetricsResources); v1: all types (KIP-1142).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.config_decisions import BROKER_LOGGER_RESOURCE, RESOURCE_TYPES
from broker.controller.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ListenerView,
)
from broker.security.authorizer import Operation, allows_on_cluster
from protocol.errors import Error
from protocol.messages.configs import ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from collections.abc import Collection

    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


async def handle(
    node: NodePorts,
    context: RequestContext,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse:
    if not allows_on_cluster(node.authorizer, context, Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    supported = RESOURCE_TYPES if context.api_version >= 1 else (CLIENT_METRICS_RESOURCE,)
    wanted = request.resource_types or supported
    if any(resource_type not in supported for resource_type in wanted):
        return ListConfigResourcesResponse(error_code=Error.UNSUPPORTED_VERSION)
    return await _listed(node.metadata.image, context.listener_name, wanted)


async def _listed(
    image: ClusterImage, listener_name: str, wanted: Collection[int]
) -> ListConfigResourcesResponse:
    pause = Pause()
    brokers = [str(node_id) for node_id in ListenerView(image, listener_name).nodes]
    names: dict[int, list[str]] = {
        GROUP_RESOURCE: [],
        CLIENT_METRICS_RESOURCE: [],
        BROKER_LOGGER_RESOURCE: brokers,
        BROKER_RESOURCE: brokers,
        TOPIC_RESOURCE: [*image.topics],
    }
    kinds = {GROUP_RESOURCE, CLIENT_METRICS_RESOURCE}.intersection(wanted)
    if kinds:
        for kind, name in [*image.configs]:  # a copy: the image may change in between
            if pause.is_due():
                await turn()
            if kind in kinds:
                names[kind].append(name)
    response = ListConfigResourcesResponse()
    for resource_type, found in names.items():
        if resource_type not in wanted:
            continue
        for name in found:
            if pause.is_due():
                await turn()
            response.config_resources.append(ConfigResource(resource_name=name, resource_type=resource_type))
    return response
