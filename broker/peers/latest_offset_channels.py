"""What leaders on other nodes are asked for: where their partitions end. Source: `NetworkPartitionMetadataClient`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import Error, KafkaError, error_of, tell_each
from protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.topic_partition import indexes_by_topic

if TYPE_CHECKING:
    from broker.coordination.latest_offsets import Told
    from broker.peers.broker_channels import BrokerChannels
    from protocol.topic_partition import TopicPartition

log = logging.getLogger("barnabas.peers")

_CONSUMER = -1
_LATEST_TIMESTAMP = -1


class _AskedFor(NamedTuple):
    partition: TopicPartition
    then: Told


class LatestOffsetChannels:
    """To the leaders of partitions."""

    def __init__(self, channels: Callable[..., BrokerChannels[_AskedFor]]) -> None:
        self._channels = channels(request_of=_request_of, answered=_answered)

    def ask(self, node_id: int, partition: TopicPartition, then: Told) -> None:
        """See `AskLatestOffset`."""
        self._channels.say(node_id, _AskedFor(partition, then))

    def stop(self) -> None:
        """Nobody is told of anything any more."""
        self._channels.stop()


def _request_of(asked: Sequence[_AskedFor]) -> ListOffsetsRequest:
    wanted = dict.fromkeys(each.partition for each in asked)
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=_LATEST_TIMESTAMP)
                    for index in indexes
                ],
            )
            for name, indexes in indexes_by_topic(wanted).items()
        ],
    )


def _answered(asked: Sequence[_AskedFor], answer: Any) -> None:
    told: dict[TopicPartition, int | KafkaError] = {}
    otherwise = KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, "The leader doesn't know the partition.")
    if isinstance(answer, KafkaError):
        otherwise = answer
    else:
        for topic in answer.topics:
            for found in topic.partitions:
                said: int | KafkaError = found.offset
                if found.error_code:
                    said = KafkaError(error_of(found.error_code), "The leader can't tell.")
                told[topic.name, found.partition_index] = said
    tell_each(
        asked,
        lambda each: each.then(told.get(each.partition, otherwise)),
        log,
        "somebody can't be told where a partition ends",
    )
