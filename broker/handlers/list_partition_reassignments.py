"""ListPartitionReassignments (46), version 0 (KIP-455): those under way. A single node has none, but for a folder
that a cluster of several nodes left in the middle of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.repeats import Repeats
from broker.security.authorizer import Operation
from broker.security.denials import cluster_refusal
from protocol.messages.cluster_admin import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer


def handle(
    metadata: MetadataLog,
    authorizer: Authorizer,
    context: RequestContext,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse:
    refusal = cluster_refusal(authorizer, context, Operation.DESCRIBE)
    if refusal is not None:
        return ListPartitionReassignmentsResponse(error_code=refusal.error, error_message=refusal.message)
    image = metadata.image
    if request.topics is None:
        asked = [(name, [*topic.partitions]) for name, topic in image.topics.items()]
    else:
        asked = [(topic.name, topic.partition_indexes) for topic in request.topics]
    response = ListPartitionReassignmentsResponse(error_message=None)
    repeats = Repeats()
    for name, indexes in asked:
        partitions = image.topics[name].partitions if name in image.topics else {}
        ongoing = [
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=found.replicas,
                adding_replicas=found.adding_replicas,
                removing_replicas=found.removing_replicas,
            )
            for index, found in ((index, partitions[index]) for index in indexes if index in partitions)
            if (found.adding_replicas or found.removing_replicas) and repeats.admits((name, index))
        ]
        if ongoing:
            response.topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return response
