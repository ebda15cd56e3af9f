"""AlterPartitionReassignments (45), versions 0 to 1 (KIP-455).

v1: may refuse another number of replicas (KIP-860). Conscious gap: replicas on other brokers, of which there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.controller_result import ControllerResult
from broker.controller.pause import Pause
from broker.controller.record_bounds import MAX_RECORDS_PER_REQUEST
from broker.controller.replica_decisions import Electorate, reassigned
from broker.network.later import Later
from broker.security.authorizer import Operation
from broker.security.denials import cluster_refusal
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.controller.controller import Controller
    from broker.controller.image import ClusterImage
    from broker.disks.log_dirs import LogDirs
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer
    from protocol.steps import Steps


def handle(
    controller: Controller,
    authorizer: Authorizer,
    node_id: int,
    log_dirs: LogDirs,
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse | Later[AlterPartitionReassignmentsResponse]:
    refusal = cluster_refusal(authorizer, context, Operation.ALTER)
    if refusal is not None:
        return _refused(request, refusal)
    if not request.topics:
        return AlterPartitionReassignmentsResponse(error_message="")
    if request.timeout_ms <= 0:
        return _refused(request, KafkaError(Error.REQUEST_TIMED_OUT))
    electorate = Electorate(node_id, log_dirs.ids)
    later: Later[AlterPartitionReassignmentsResponse] = Later()

    def decide(image: ClusterImage) -> Steps[ControllerResult[AlterPartitionReassignmentsResponse]]:
        return _reassign(image, request, electorate)

    def reply(answer: AlterPartitionReassignmentsResponse | KafkaError) -> None:
        later.reply(_refused(request, answer) if isinstance(answer, KafkaError) else answer)

    later.waits_for(controller.submit(decide, later.guarded(reply), later.fail))
    return later.answer()


def _reassign(
    image: ClusterImage, request: AlterPartitionReassignmentsRequest, electorate: Electorate
) -> Steps[ControllerResult[AlterPartitionReassignmentsResponse]]:
    """Of too many records, Kafka's loop over the partitions catches what the bound throws: those past it are answered
    with UNKNOWN_SERVER_ERROR, the others are reassigned."""
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    decided: list[Message] = []
    pause = Pause()
    for topic in request.topics:
        if pause.is_due():
            yield
        answers = ReassignableTopicResponse(name=topic.name)
        for wanted in topic.partitions:
            if pause.is_due():
                yield
            error: KafkaError | None = None
            try:
                new = reassigned(
                    image,
                    topic.name,
                    wanted.partition_index,
                    wanted.replicas,
                    electorate=electorate,
                    allow_factor_change=request.allow_replication_factor_change,
                )
                if len(decided) + len(new) > MAX_RECORDS_PER_REQUEST:
                    raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
                decided += new
            except KafkaError as refused:
                error = refused.as_value()
            answers.partitions.append(_result(wanted.partition_index, error))
        response.responses.append(answers)

    def answer(failure: KafkaError | None) -> AlterPartitionReassignmentsResponse:
        if failure is not None:
            for of_topic in response.responses:
                for result in of_topic.partitions:
                    result.error_code = result.error_code or failure.error
        return response

    return ControllerResult(decided, answer)


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
