"""RemoveRaftVoter (81), version 0 (KIP-853): a voter is to leave the quorum. The only one can't, in Kafka either."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.quorum_voters import refusal_to_remove
from broker.security.authorizer import Operation
from broker.security.denials import cluster_refusal
from protocol.messages.raft import RemoveRaftVoterRequest, RemoveRaftVoterResponse

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer


def handle(
    cluster_id: str,
    metadata: MetadataLog,
    authorizer: Authorizer,
    context: RequestContext,
    request: RemoveRaftVoterRequest,
) -> RemoveRaftVoterResponse:
    refused = cluster_refusal(authorizer, context, Operation.ALTER) or refusal_to_remove(
        metadata, cluster_id, request
    )
    return RemoveRaftVoterResponse(error_code=refused.error, error_message=refused.message)
