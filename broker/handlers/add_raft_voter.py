"""AddRaftVoter (80), versions 0 to 1 (KIP-853): a voter asks to join the quorum. v1: the client says whether the answer
waits for the commit.

Conscious gap: a quorum has one voter here, and can't get another: `controller.quorum_requests`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.quorum_requests import refusal_to_add
from broker.security.authorizer import CLUSTER, Operation, allows_on_cluster, denied
from protocol.messages.raft import AddRaftVoterRequest, AddRaftVoterResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


def handle(
    node: NodePorts,
    context: RequestContext,
    request: AddRaftVoterRequest,
) -> AddRaftVoterResponse:
    listener_name = node.config.get_list("controller.listener.names")[0]
    if allows_on_cluster(node.authorizer, context, Operation.ALTER):
        refused = refusal_to_add(node.metadata, node.cluster_id, listener_name, request)
    else:
        refused = denied(CLUSTER)
    return AddRaftVoterResponse(error_code=refused.error, error_message=refused.message)
