"""AlterPartitionReassignments (45), versions 0 to 1 (KIP-455).

v1: may refuse another number of replicas (KIP-860). Conscious gap: replicas on other brokers, of which there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.replica_decisions import reassigned
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    if not request.topics:
        return AlterPartitionReassignmentsResponse(error_message="")
    late = request.timeout_ms <= 0
    response = AlterPartitionReassignmentsResponse(
        error_code=Error.REQUEST_TIMED_OUT if late else Error.NONE, error_message=None
    )
    if not late:
        response.allow_replication_factor_change = request.allow_replication_factor_change
    decided: list[Message] = []
    for topic in request.topics:
        answer = ReassignableTopicResponse(name=topic.name)
        for wanted in topic.partitions:
            result = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
            try:
                if late:
                    raise KafkaError(Error.REQUEST_TIMED_OUT)
                decided += reassigned(
                    server.metadata.image,
                    topic.name,
                    wanted.partition_index,
                    wanted.replicas,
                    node_id=server.node_id,
                    online=server.online_directories,
                    allow_factor_change=request.allow_replication_factor_change,
                )
            except KafkaError as error:
                result.error_code, result.error_message = error.error, error.message
            answer.partitions.append(result)
        response.responses.append(answer)
    failure = server.metadata.try_append(decided)
    if failure is not None:
        for answer in response.responses:
            for result in answer.partitions:
                result.error_code = result.error_code or failure.error
    return response
