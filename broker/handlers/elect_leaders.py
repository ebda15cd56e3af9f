"""ElectLeaders (43), versions 0 to 2: v0 elects preferred leaders (KIP-183), v1 unclean ones too (KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.controller.controller_result import ControllerResult
from broker.controller.pause import Pause
from broker.controller.record_bounds import check_records
from broker.controller.replica_decisions import PREFERRED, UNCLEAN, Electorate, elected
from broker.network.later import Later
from broker.security.authorizer import Operation
from broker.security.denials import cluster_refusal
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionElectionResult,
    ReplicaElectionResult,
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
    request: ElectLeadersRequest,
) -> ElectLeadersResponse | Later[ElectLeadersResponse]:
    refusal = cluster_refusal(authorizer, context, Operation.ALTER)
    if refusal is not None:
        return _refused(context, request, refusal)
    election_type = request.election_type if context.api_version >= 1 else PREFERRED
    if request.topic_partitions == []:
        return ElectLeadersResponse()
    if request.timeout_ms <= 0:
        return _refused(context, request, KafkaError(Error.REQUEST_TIMED_OUT))
    if election_type not in (PREFERRED, UNCLEAN):
        return _refused(
            context, request, KafkaError(Error.INVALID_REQUEST, f"Unknown election type {election_type}")
        )
    electorate = Electorate(node_id, log_dirs.ids)
    later: Later[ElectLeadersResponse] = Later()

    def decide(image: ClusterImage) -> Steps[ControllerResult[ElectLeadersResponse]]:
        return _elect(image, request, election_type, electorate)

    def reply(answer: ElectLeadersResponse | KafkaError) -> None:
        later.reply(_refused(context, request, answer) if isinstance(answer, KafkaError) else answer)

    later.waits_for(controller.submit(decide, later.guarded(reply), later.fail))
    return later.answer()


def _elect(
    image: ClusterImage, request: ElectLeadersRequest, election_type: int, electorate: Electorate
) -> Steps[ControllerResult[ElectLeadersResponse]]:
    """Partitions that need no election are left out where all of them are asked for.

    Raises KafkaError where the request as a whole is too large.
    """
    topics = request.topic_partitions
    asked: Iterable[tuple[str, list[int]]]
    if topics is None:
        asked = [(name, [*topic.partitions]) for name, topic in image.topics.items()]
    else:
        asked = [(topic.topic, topic.partitions) for topic in topics]
    decided: list[Message] = []
    response = ElectLeadersResponse()
    pause = Pause()
    for name, indexes in asked:
        if pause.is_due():
            yield
        result = ReplicaElectionResult(topic=name)
        for index in indexes:
            if pause.is_due():
                yield
            error: KafkaError | None = None
            try:
                decided += elected(image, name, index, election_type, electorate)
            except KafkaError as refused:
                error = refused.as_value()
            check_records(decided)
            if error is not None and error.error is Error.ELECTION_NOT_NEEDED and topics is None:
                continue
            result.partition_result.append(_result(index, error))
        response.replica_election_results.append(result)

    def answer(failure: KafkaError | None) -> ElectLeadersResponse:
        if failure is not None:
            for election in response.replica_election_results:
                for partition in election.partition_result:
                    partition.error_code = partition.error_code or failure.error
        return response

    return ControllerResult(decided, answer)


def _refused(
    context: RequestContext, request: ElectLeadersRequest, refusal: KafkaError
) -> ElectLeadersResponse:
    """With every partition's error; v0 has none for the whole."""
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
