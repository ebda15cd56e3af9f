"""WriteTxnMarkers (27), versions 1 and 2: writes a transaction's markers into its partitions, for its coordinator.

v1: flexible; v2: the transaction version of each marker (KIP-1228). An administrator, too, may send it, to end a
hanging transaction (KIP-664). The coordinator of the transaction doesn't notice.

As in Kafka, the request fails at a marker without a producer id or epoch. The markers before it are written.

Conscious differences: there is an answer even if one marker names no partition while others do, or if one names a
partition twice. Kafka counts wrongly there and never answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.coordination.groups import OFFSETS_TOPIC
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from coordinator.ports import MarkerAnswers, TxnMarker
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.topic_partition import TopicPartition
from protocol.waiting import Later

if TYPE_CHECKING:
    from broker.handlers.node_ports import BrokerPorts
    from broker.network.context import RequestContext
    from broker.replicas.partitions import Partitions
    from coordinator.ports import Markers

Errors = dict[int, dict[TopicPartition, Error]]
"""Each partition's error by producer id. If a producer has several markers, the last one counts."""


@runs_to_its_end
async def handle(
    node: BrokerPorts,
    context: RequestContext,
    request: WriteTxnMarkersRequest,
) -> WriteTxnMarkersResponse:
    """All markers are on their way before this waits for the first answer."""
    cluster = (ResourceType.CLUSTER, CLUSTER_NAME)
    if not node.authorizer.allows(
        context, Operation.ALTER, *cluster, log_denied=False
    ) and not node.authorizer.allows(context, Operation.CLUSTER_ACTION, *cluster):
        return _failed(request, Error.CLUSTER_AUTHORIZATION_FAILED)
    errors: Errors = {}
    written: list[tuple[int, Later[MarkerAnswers]]] = []
    try:
        for marker in request.markers:
            hosted = _hosted(node.partitions, marker)
            if hosted:
                errors.setdefault(marker.producer_id, {})
            here = [partition for partition, is_here in hosted.items() if is_here]
            unknown = {
                each: Error.UNKNOWN_TOPIC_OR_PARTITION for each, is_here in hosted.items() if not is_here
            }
            _add(errors, marker.producer_id, unknown)
            if here and (marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_PRODUCER_EPOCH):
                if any(name != OFFSETS_TOPIC for name, _ in here):
                    raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
                _add(errors, marker.producer_id, dict.fromkeys(here, Error.UNKNOWN_SERVER_ERROR))
            elif here:
                written.append((marker.producer_id, _written(node.markers, marker, here)))
    except KafkaError as failure:
        return _failed(request, failure.error)
    for producer_id, answers in written:
        _add(errors, producer_id, await answers)
    return _response(errors)


def _written(
    markers: Markers, asked: WritableTxnMarker, partitions: Sequence[TopicPartition]
) -> Later[MarkerAnswers]:
    """Write a marker. Returns the answers of all these partitions; there has to be at least one."""
    found: dict[TopicPartition, Error | None] = {}
    later: Later[MarkerAnswers] = Later()

    def done(answers: MarkerAnswers) -> None:
        missing = len(partitions) - len(found)
        found.update(answers)
        if missing and len(found) == len(partitions):
            later.reply(found)

    marker = TxnMarker(
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        coordinator_epoch=asked.coordinator_epoch,
        commit=asked.transaction_result,
        transaction_version=asked.transaction_version,
    )
    markers.write(marker, partitions, done)
    return later


def _add(errors: Errors, producer_id: int, found: MarkerAnswers) -> None:
    if found:
        of_producer = errors.setdefault(producer_id, {})
        for partition, error in found.items():
            of_producer[partition] = Error.UNKNOWN_TOPIC_OR_PARTITION if error is None else error


def _hosted(partitions: Partitions, marker: WritableTxnMarker) -> dict[TopicPartition, bool]:
    """The partitions that a marker names, and whether each is here."""
    return {
        (topic.name, index): partitions.find(topic.name, index) is not None
        for topic in marker.topics
        for index in topic.partition_indexes
    }


def _failed(request: WriteTxnMarkersRequest, error: Error) -> WriteTxnMarkersResponse:
    """Kafka's answer if it fails on a request. Only the last marker of each producer is in it."""
    errors: Errors = {}
    for marker in request.markers:
        asked = [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
        errors[marker.producer_id] = dict.fromkeys(asked, error)
    return _response(errors)


def _response(errors: Errors) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id=producer_id, topics=_by_topic(of_producer))
            for producer_id, of_producer in errors.items()
        ]
    )


def _by_topic(errors: dict[TopicPartition, Error]) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for (name, index), error in errors.items():
        topic = topics.setdefault(name, WritableTxnMarkerTopicResult(name=name))
        topic.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=error))
    return [*topics.values()]
