"""ElectLeaders (43), versions 0 to 2: v0 elects preferred leaders (KIP-183), v1 unclean ones too (KIP-460)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.replica_decisions import PREFERRED, UNCLEAN, elected
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionElectionResult,
    ReplicaElectionResult,
)
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.context import RequestContext
    from broker.server import Server


def handle(server: Server, context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    election_type = request.election_type if context.api_version >= 1 else PREFERRED
    topics = request.topic_partitions
    refusal: KafkaError | None = None
    if topics == []:
        return ElectLeadersResponse()
    if request.timeout_ms <= 0:
        refusal = KafkaError(Error.REQUEST_TIMED_OUT)
    elif election_type not in (PREFERRED, UNCLEAN):
        refusal = KafkaError(Error.INVALID_REQUEST, f"Unknown election type {election_type}")
    image = server.metadata.image
    if topics is None:
        asked = (
            []
            if refusal is not None
            else [(name, [*topic.partitions]) for name, topic in image.topics.items()]
        )
    else:
        asked = [(topic.topic, topic.partitions) for topic in topics]
    decided: list[Message] = []
    response = ElectLeadersResponse(error_code=Error.NONE if refusal is None else refusal.error)
    for name, indexes in asked:
        result = ReplicaElectionResult(topic=name)
        for index in indexes:
            error = refusal
            if error is None:
                try:
                    decided += elected(
                        image, name, index, election_type, server.node_id, server.online_directories
                    )
                except KafkaError as failed:
                    error = failed
            if error is not None and error.error is Error.ELECTION_NOT_NEEDED and topics is None:
                continue
            result.partition_result.append(
                PartitionElectionResult(
                    partition_id=index,
                    error_code=Error.NONE if error is None else error.error,
                    error_message=None if error is None else error.message,
                )
            )
        response.replica_election_results.append(result)
    failure = server.metadata.try_append(decided)
    if failure is not None:
        for election in response.replica_election_results:
            for partition in election.partition_result:
                partition.error_code = partition.error_code or failure.error
    return response
