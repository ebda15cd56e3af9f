"""DescribeQuorum (55), versions 0 to 2 (KIP-595): the leader and the voters of the cluster's metadata. This node is the
only voter. See `controller.quorum_requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.quorum_requests import QuorumOfOne, describe_quorum
from broker.security.authorizer import AUTHORIZATION_FAILED, CLUSTER_NAME, Operation, ResourceType
from protocol.errors import Error
from protocol.messages.cluster_admin import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
)

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from broker.network.endpoints import Endpoints


async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: DescribeQuorumRequest,
) -> DescribeQuorumResponse:
    if not node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = Error.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=denied, error_message=AUTHORIZATION_FAILED[denied])
    listener = _controller_listener(node.node_id, node.config, node.endpoints)
    quorum = QuorumOfOne(node.node_id, node.metadata, node.metadata_replicas, [listener])
    return await describe_quorum(quorum, request, context.api_version, node.clock.now_ms())


def _controller_listener(node_id: int, config: BrokerConfig, endpoints: Endpoints) -> QuorumListener:
    """The controller's address in `controller.quorum.voters`. If the node has no controller's listener, this is the
    address that clients use, since only they ask."""
    name = config.get_list("controller.listener.names")[0]
    for voter in config.get_list("controller.quorum.voters"):
        voter_id, _, address = voter.partition("@")
        host, _, port = address.rpartition(":")
        if voter_id == str(node_id) and port.isdecimal():
            return QuorumListener(name=name, host=host.strip("[]"), port=int(port))
    host, port_number = endpoints.first_advertised
    return QuorumListener(name=name, host=host, port=port_number)
