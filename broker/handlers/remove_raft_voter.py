"""RemoveRaftVoter (81), version 0 (KIP-853): removes a voter from the quorum. The only voter can't be removed, as
in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.quorum_requests import refusal_to_remove
from broker.security.authorizer import CLUSTER, Operation, allows_on_cluster, denied
from protocol.messages.raft import RemoveRaftVoterRequest, RemoveRaftVoterResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


def handle(
    node: NodePorts,
    context: RequestContext,
    request: RemoveRaftVoterRequest,
) -> RemoveRaftVoterResponse:
    if allows_on_cluster(node.authorizer, context, Operation.ALTER):
        refused = refusal_to_remove(node.metadata, node.cluster_id, request)
    else:
        refused = denied(CLUSTER)
    return RemoveRaftVoterResponse(error_code=refused.error, error_message=refused.message)
