"""WriteTxnMarkers (27), versions 1 and 2: what a transaction's coordinator has written into the partitions of it.

v1: flexible; v2: the transaction version of each marker (KIP-1228). Served to everybody: an administrator ends a
hanging transaction with it (KIP-664). The coordinator of the transaction doesn't notice.

A marker of no producer, or of no epoch, fails the request behind the markers that come before it: Kafka fails on it.

Conscious differences: a marker that names no partition beside others that do, and one that names a partition twice,
are answered; Kafka counts wrongly there and never answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from broker.coordination.groups import OFFSETS_TOPIC
from coordinator.ports import MarkerAnswers, TopicPartition, TxnMarker
from protocol.errors import Error, KafkaError
from protocol.messages.transactions_admin import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]:
    answers = _Answers(len(request.markers))
    try:
        for marker in request.markers:
            _write(server, marker, answers)
    except KafkaError as failure:
        return _failed(request, failure.error)
    return answers.response() if answers.waiting == 0 else answers.later()


class _Answers:
    """Each partition's answer by producer id, the last where several markers are of one producer."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self._errors: dict[int, dict[TopicPartition, Error]] = {}
        self._all_there: asyncio.Future[None] | None = None

    def add(self, producer_id: int, answers: MarkerAnswers) -> None:
        if answers:
            found = self._errors.setdefault(producer_id, {})
            found.update(
                (name, Error.UNKNOWN_TOPIC_OR_PARTITION if error is None else error)
                for name, error in answers.items()
            )

    def marker_is_done(self) -> None:
        self.waiting -= 1
        if self.waiting == 0 and self._all_there is not None and not self._all_there.done():
            self._all_there.set_result(None)

    async def later(self) -> WriteTxnMarkersResponse:
        self._all_there = asyncio.get_running_loop().create_future()
        await self._all_there
        return self.response()

    def response(self) -> WriteTxnMarkersResponse:
        return _response(self._errors)


def _write(server: Server, asked: WritableTxnMarker, answers: _Answers) -> None:
    marker = TxnMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        asked.transaction_version,
    )
    here: dict[TopicPartition, None] = {}
    elsewhere: dict[TopicPartition, Error | None] = {}
    for topic in asked.topics:
        for index in topic.partition_indexes:
            if server.partitions.find(topic.name, index) is None:
                elsewhere[topic.name, index] = Error.UNKNOWN_TOPIC_OR_PARTITION
            else:
                here[topic.name, index] = None
    answers.add(asked.producer_id, elsewhere)
    if here and (asked.producer_id == NO_PRODUCER_ID or asked.producer_epoch == NO_PRODUCER_EPOCH):
        if any(name != OFFSETS_TOPIC for name, _ in here):
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
        answers.add(asked.producer_id, dict.fromkeys(here, Error.UNKNOWN_SERVER_ERROR))
        here = {}
    left = len(here)
    if left == 0:
        answers.marker_is_done()
        return

    def done(found: MarkerAnswers) -> None:
        nonlocal left
        answers.add(asked.producer_id, found)
        left -= len(found)
        if left == 0:
            answers.marker_is_done()

    server.markers.write(marker, [*here], done)


def _failed(request: WriteTxnMarkersRequest, error: Error) -> WriteTxnMarkersResponse:
    """Kafka's answer where it fails on a request: of the markers of one producer it tells the last."""
    errors: dict[int, dict[TopicPartition, Error]] = {}
    for marker in request.markers:
        asked = [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
        errors[marker.producer_id] = dict.fromkeys(asked, error)
    return _response(errors)


def _response(errors: dict[int, dict[TopicPartition, Error]]) -> WriteTxnMarkersResponse:
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
