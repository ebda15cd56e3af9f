"""Markers for partitions that other brokers lead.

Source: `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.image import NO_LEADER
from protocol.errors import Error, KafkaError, error_of, tell_each
from protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.topic_partition import indexes_by_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.controller.image import ClusterImage
    from broker.peers.broker_channels import BrokerChannels
    from coordinator.ports import MarkerAnswers, Markers, TxnMarker
    from protocol.topic_partition import TopicPartition
    from protocol.wire.schema import Message


log = logging.getLogger("barnabas.peers")


class _Sent(NamedTuple):
    marker: TxnMarker
    partitions: Sequence[TopicPartition]
    done: Callable[[MarkerAnswers], None]


class MarkerChannels:
    """The port `coordinator.ports.Markers` of a node among others: each marker goes to whoever leads the partition."""

    def __init__(
        self,
        node_id: int,
        image: ClusterImage,
        own: Markers,
        channels: Callable[..., BrokerChannels[_Sent]],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._own = own
        self._channels = channels(request_of=_request_of, answered=_answered)

    def write(
        self,
        marker: TxnMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[MarkerAnswers], None],
    ) -> None:
        """See the port."""
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for name in partitions:
            by_leader[self._leader_of(name)].append(name)
        without = by_leader.pop(NO_LEADER, ())
        own = by_leader.pop(self._node_id, ())
        for leader_id, some in by_leader.items():
            self._channels.say(leader_id, _Sent(marker, some, done))
        try:
            if without:
                done(dict.fromkeys(without, Error.NOT_LEADER_OR_FOLLOWER))
        finally:
            if own:
                self._own.write(marker, own, done)

    def stop(self) -> None:
        """Nothing is sent any more."""
        self._channels.stop()

    def _leader_of(self, name: TopicPartition) -> int:
        topic, index = name
        image = self._image.topics.get(topic)
        partition = None if image is None else image.partitions.get(index)
        return self._node_id if partition is None else partition.leader  # what is gone is told here


def _request_of(sent: Sequence[_Sent]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=each.marker.producer_id,
                producer_epoch=each.marker.producer_epoch,
                transaction_result=each.marker.commit,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in indexes_by_topic(each.partitions).items()
                ],
                coordinator_epoch=each.marker.coordinator_epoch,
                transaction_version=each.marker.transaction_version,
            )
            for each in sent
        ]
    )


def _answered(sent: Sequence[_Sent], answer: Message | KafkaError) -> None:
    """What has no answer is asked again after a while (`marker_reactions`)."""
    told: dict[tuple[int, str, int], Error] = {}
    if isinstance(answer, WriteTxnMarkersResponse):
        for marker in answer.markers:
            for topic in marker.topics:
                for partition in topic.partitions:
                    key = marker.producer_id, topic.name, partition.partition_index
                    told[key] = error_of(partition.error_code)

    def tell(each: _Sent) -> None:
        of = each.marker.producer_id
        each.done({name: told.get((of, *name), Error.REQUEST_TIMED_OUT) for name in each.partitions})

    tell_each(sent, tell, log, "a transaction can't be told what became of its markers")
