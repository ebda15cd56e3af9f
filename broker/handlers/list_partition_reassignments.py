"""ListPartitionReassignments (46), version 0 (KIP-455): the reassignments under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.partition_requests import ongoing_reassignments
from broker.network.pieces import Repeats
from broker.security.authorizer import Operation, cluster_refusal
from protocol.messages.cluster_admin import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


async def handle(
    node: NodePorts,
    context: RequestContext,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.DESCRIBE)
    if refusal is not None:
        return ListPartitionReassignmentsResponse(
            error_code=refusal.error, error_message=refusal.message, topics=_named(request)
        )
    return await _listed(node.metadata, request)


def _named(request: ListPartitionReassignmentsRequest) -> list[OngoingTopicReassignment]:
    """The requested partitions without any replicas. Kafka's answer with an error has them, too."""
    return [
        OngoingTopicReassignment(
            name=topic.name,
            partitions=[
                OngoingPartitionReassignment(
                    partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[]
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]


async def _listed(
    metadata: MetadataLog, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    ongoing = await ongoing_reassignments(metadata.image, request.topics, Repeats().admits)
    return ListPartitionReassignmentsResponse(error_message=None, topics=ongoing)
