"""ElectLeaders (43), versions 0 to 2: v0 elects preferred leaders (KIP-183), v1 unclean ones too (KIP-460)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.partition_requests import PREFERRED, elected_leaders, election_of_type
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, cluster_refusal
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionElectionResult,
    ReplicaElectionResult,
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
    request: ElectLeadersRequest,
) -> ElectLeadersResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.ALTER)
    if refusal is not None:
        return _refused(context, request, refusal)
    if context.api_version == 0:
        request.election_type = PREFERRED
    if request.topic_partitions == []:
        return ElectLeadersResponse()
    if request.timeout_ms <= 0:
        return _refused(context, request, KafkaError(Error.REQUEST_TIMED_OUT))
    try:
        election_of_type(request.election_type)
    except KafkaError as refused:
        return _refused(context, request, refused.as_value())

    def decide(image: ClusterImage) -> Waiting[ControllerResult[ElectLeadersResponse]]:
        return elected_leaders(image, request, node.own_settings)

    answer = await node.controller.submit(decide)
    return _refused(context, request, answer) if isinstance(answer, KafkaError) else answer


def _refused(
    context: RequestContext, request: ElectLeadersRequest, refusal: KafkaError
) -> ElectLeadersResponse:
    """The answer that refuses all partitions. v0 has no error for the whole request."""
    return ElectLeadersResponse(
        error_code=refusal.error if context.api_version >= 1 else Error.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[_result(index, refusal) for index in topic.partitions],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _result(index: int, error: KafkaError | None) -> PartitionElectionResult:
    return PartitionElectionResult(
        partition_id=index,
        error_code=Error.NONE if error is None else error.error,
        error_message=None if error is None else error.message,
    )
