"""WriteTxnMarkers (27), versions 1 and 2: what a transaction's coordinator has written into the partitions of it.

v1: flexible; v2: the transaction version of each marker (KIP-1228). Served to everybody: an administrator ends a
hanging transaction with it (KIP-664). The coordinator of the transaction doesn't notice.

A marker of no producer, or of no epoch, fails the request behind the markers that come before it: Kafka fails on it.

Conscious differences: a marker that names no partition beside others that do, and one that names a partition twice,
are answered; Kafka counts wrongly there and never answers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.coordination.groups import OFFSETS_TOPIC
from broker.network.later import Later
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

if TYPE_CHECKING:
    from broker.handlers.node_ports import BrokerPorts
    from broker.network.context import RequestContext
    from broker.replicas.partitions import Partitions
    from coordinator.ports import Markers

Errors = dict[int, dict[TopicPartition, Error]]
"""Each partition's error by producer id, the last where several markers are of one producer."""


def handle(
    node: BrokerPorts,
    context: RequestContext,
    request: WriteTxnMarkersRequest,
) -> WriteTxnMarkersResponse | Later[WriteTxnMarkersResponse]:
    cluster = (ResourceType.CLUSTER, CLUSTER_NAME)
    if not node.authorizer.allows(context, Operation.ALTER, *cluster) and not node.authorizer.allows(
        context, Operation.CLUSTER_ACTION, *cluster
    ):
        return _failed(request, Error.CLUSTER_AUTHORIZATION_FAILED)
    answers = _Answers(node.markers)
    try:
        for marker in request.markers:
            answers.write(marker, _hosted(node.partitions, marker))
    except KafkaError as failure:
        answers.drop()
        return _failed(request, failure.error)
    return answers.asked_for_all()


class _Answers:
    """What becomes of each partition; the response once all are known."""

    def __init__(self, markers: Markers) -> None:
        self._markers = markers
        self._errors: Errors = {}
        self._left = 1  # one more than the partitions that are to be answered, until all have been asked for
        self._later: Later[WriteTxnMarkersResponse] = Later()

    def write(self, asked: WritableTxnMarker, hosted: dict[TopicPartition, bool]) -> None:
        """Write a marker to the partitions that are hosted here. Raises KafkaError where Kafka fails on it."""
        producer_id = asked.producer_id
        here = [partition for partition, is_here in hosted.items() if is_here]
        self._add(
            producer_id,
            {each: Error.UNKNOWN_TOPIC_OR_PARTITION for each, is_here in hosted.items() if not is_here},
        )
        if here and (producer_id == NO_PRODUCER_ID or asked.producer_epoch == NO_PRODUCER_EPOCH):
            if any(name != OFFSETS_TOPIC for name, _ in here):
                raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
            self._add(producer_id, dict.fromkeys(here, Error.UNKNOWN_SERVER_ERROR))
            return
        marker = TxnMarker(
            producer_id=producer_id,
            producer_epoch=asked.producer_epoch,
            coordinator_epoch=asked.coordinator_epoch,
            commit=asked.transaction_result,
            transaction_version=asked.transaction_version,
        )
        self._left += len(here)
        self._markers.write(marker, here, partial(self._answered, producer_id))

    def asked_for_all(self) -> WriteTxnMarkersResponse | Later[WriteTxnMarkersResponse]:
        self._answer(1)
        return self._later.answer()

    def drop(self) -> None:
        """The request has failed: nobody waits for what comes."""
        self._later.abandon()

    def _answered(self, producer_id: int, found: MarkerAnswers) -> None:
        self._add(producer_id, found)
        self._answer(len(found))

    def _add(self, producer_id: int, found: MarkerAnswers) -> None:
        if found:
            errors = self._errors.setdefault(producer_id, {})
            for partition, error in found.items():
                errors[partition] = Error.UNKNOWN_TOPIC_OR_PARTITION if error is None else error

    def _answer(self, count: int) -> None:
        self._left -= count
        if self._left == 0:
            self._later.reply(_response(self._errors))


def _hosted(partitions: Partitions, marker: WritableTxnMarker) -> dict[TopicPartition, bool]:
    """The partitions that a marker names, and whether each is here."""
    return {
        (topic.name, index): partitions.find(topic.name, index) is not None
        for topic in marker.topics
        for index in topic.partition_indexes
    }


def _failed(request: WriteTxnMarkersRequest, error: Error) -> WriteTxnMarkersResponse:
    """Kafka's answer where it fails on a request: of the markers of one producer it tells the last."""
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
