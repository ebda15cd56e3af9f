"""DescribeQuorum (55), versions 0 to 2 (KIP-595): who leads and who votes over the cluster's metadata. There is one
voter: we. See `controller.quorum_description`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.controller.quorum_description import QuorumOfOne, describe_quorum
from broker.security.authorizer import AUTHORIZATION_FAILED, CLUSTER_NAME, Operation, ResourceType
from protocol.errors import Error
from protocol.messages.cluster_admin import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
)

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.quorum_requests import ReplicaProgress
    from broker.environment.clock import Clock
    from broker.network.context import RequestContext
    from broker.network.endpoints import Endpoints
    from broker.network.later import Later
    from broker.network.turns import Turns
    from broker.security.authorizer import Authorizer


def handle(
    node_id: int,
    config: BrokerConfig,
    metadata: MetadataLog,
    metadata_replicas: Mapping[tuple[int, bytes], ReplicaProgress],
    endpoints: Endpoints,
    clock: Clock,
    authorizer: Authorizer,
    turns: Turns,
    context: RequestContext,
    request: DescribeQuorumRequest,
) -> DescribeQuorumResponse | Later[DescribeQuorumResponse]:
    if not authorizer.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = Error.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=denied, error_message=AUTHORIZATION_FAILED[denied])
    listener = _controller_listener(node_id, config, endpoints)
    quorum = QuorumOfOne(node_id, metadata, metadata_replicas, [listener])
    return turns.answer(describe_quorum(quorum, request, context.api_version, clock.now_ms()), context)


def _controller_listener(node_id: int, config: BrokerConfig, endpoints: Endpoints) -> QuorumListener:
    """Where the configuration says that controllers are. Of a node without a controller's listener that is where
    clients are served: nobody else asks."""
    name = config.get_list("controller.listener.names")[0]
    for voter in config.get_list("controller.quorum.voters"):
        voter_id, _, address = voter.partition("@")
        host, _, port = address.rpartition(":")
        if voter_id == str(node_id) and port.isdecimal():
            return QuorumListener(name=name, host=host.strip("[]"), port=int(port))
    host, port_number = endpoints.first_advertised
    return QuorumListener(name=name, host=host, port=port_number)
