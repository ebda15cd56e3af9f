"""AlterPartitionReassignments (45), versions 0 to 1 (KIP-455).

v1: may refuse another number of replicas (KIP-860). Conscious gap: replicas on other brokers, of which there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.record_bounds import MAX_RECORDS_PER_REQUEST
from broker.controller.replica_decisions import reassigned
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    if not request.topics:
        return AlterPartitionReassignmentsResponse(error_message="")
    try:
        if request.timeout_ms <= 0:
            raise KafkaError(Error.REQUEST_TIMED_OUT)
        return _reassign(server, request)
    except KafkaError as refusal:
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


def _reassign(
    server: Server, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Raises KafkaError (UNKNOWN_SERVER_ERROR) where the records are too long. Of too many, Kafka's loop over the
    partitions catches what the bound throws: those past it are answered with UNKNOWN_SERVER_ERROR, the others are
    reassigned."""
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    decided: list[Message] = []
    for topic in request.topics:
        answer = ReassignableTopicResponse(name=topic.name)
        for wanted in topic.partitions:
            error: KafkaError | None = None
            try:
                new = reassigned(
                    server.metadata.image,
                    topic.name,
                    wanted.partition_index,
                    wanted.replicas,
                    node_id=server.node_id,
                    online=server.log_dirs.ids,
                    allow_factor_change=request.allow_replication_factor_change,
                )
                if len(decided) + len(new) > MAX_RECORDS_PER_REQUEST:
                    raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
                decided += new
            except KafkaError as refused:
                error = refused
            answer.partitions.append(_result(wanted.partition_index, error))
        response.responses.append(answer)
    failure = server.metadata.try_append(decided)
    if failure is not None:
        for answer in response.responses:
            for result in answer.partitions:
                result.error_code = result.error_code or failure.error
    return response


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index,
        error_code=Error.NONE if error is None else error.error,
        error_message=None if error is None else error.message,
    )
