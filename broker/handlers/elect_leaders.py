"""ElectLeaders (43), versions 0 to 2: v0 elects preferred leaders (KIP-183), v1 unclean ones too (KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.controller.record_bounds import check_records
from broker.controller.replica_decisions import PREFERRED, UNCLEAN, elected
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionElectionResult,
    ReplicaElectionResult,
)
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(server: Server, context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    election_type = request.election_type if context.api_version >= 1 else PREFERRED
    topics = request.topic_partitions
    if topics == []:
        return ElectLeadersResponse()
    try:
        if request.timeout_ms <= 0:
            raise KafkaError(Error.REQUEST_TIMED_OUT)
        if election_type not in (PREFERRED, UNCLEAN):
            raise KafkaError(Error.INVALID_REQUEST, f"Unknown election type {election_type}")
        if topics is None:
            every = [(name, [*topic.partitions]) for name, topic in server.metadata.image.topics.items()]
            return _elect(server, every, election_type, all_of_them=True)
        asked = [(topic.topic, topic.partitions) for topic in topics]
        return _elect(server, asked, election_type, all_of_them=False)
    except KafkaError as refusal:
        return ElectLeadersResponse(
            error_code=refusal.error,
            replica_election_results=[
                ReplicaElectionResult(
                    topic=topic.topic,
                    partition_result=[_result(index, refusal) for index in topic.partitions],
                )
                for topic in topics or ()
            ],
        )


def _elect(
    server: Server, asked: Iterable[tuple[str, list[int]]], election_type: int, *, all_of_them: bool
) -> ElectLeadersResponse:
    """Partitions that need no election are left out where `all_of_them` are asked for.

    Raises KafkaError where the request as a whole is too large.
    """
    image = server.metadata.image
    decided: list[Message] = []
    response = ElectLeadersResponse()
    for name, indexes in asked:
        result = ReplicaElectionResult(topic=name)
        for index in indexes:
            error: KafkaError | None = None
            try:
                decided += elected(image, name, index, election_type, server.node_id, server.log_dirs.ids)
            except KafkaError as refused:
                error = refused
            check_records(decided)
            if error is not None and error.error is Error.ELECTION_NOT_NEEDED and all_of_them:
                continue
            result.partition_result.append(_result(index, error))
        response.replica_election_results.append(result)
    failure = server.metadata.try_append(decided)
    if failure is not None:
        for election in response.replica_election_results:
            for partition in election.partition_result:
                partition.error_code = partition.error_code or failure.error
    return response


def _result(index: int, error: KafkaError | None) -> PartitionElectionResult:
    return PartitionElectionResult(
        partition_id=index,
        error_code=Error.NONE if error is None else error.error,
        error_message=None if error is None else error.message,
    )
