"""AlterPartitionReassignments (45), versions 0 to 1 (KIP-455).

v1: the client may forbid a change of the number of replicas (KIP-860).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.partition_requests import reassigned_partitions
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, cluster_refusal
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from broker.controller.controller import ControllerResult
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from protocol.waiting import Waiting


@runs_to_its_end
async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.ALTER)
    if refusal is not None:
        return _refused(request, refusal)
    if not request.topics:
        return AlterPartitionReassignmentsResponse(error_message="")
    if request.timeout_ms <= 0:
        return _refused(request, KafkaError(Error.REQUEST_TIMED_OUT))

    def decide(image: ClusterImage) -> Waiting[ControllerResult[AlterPartitionReassignmentsResponse]]:
        return reassigned_partitions(image, request, node.own_settings, node.topics.has_room)

    answer = await node.controller.submit(decide)
    return _refused(request, answer) if isinstance(answer, KafkaError) else answer


def _refused(
    request: AlterPartitionReassignmentsRequest, refusal: KafkaError
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=refusal.error,
        error_message=refusal.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_result(wanted.partition_index, refusal) for wanted in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index,
        error_code=Error.NONE if error is None else error.error,
        error_message=None if error is None else error.message,
    )
