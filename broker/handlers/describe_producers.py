"""DescribeProducers (61), version 0 (KIP-664): what a partition knows of those who write to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.topic_names import invalid_name_reason
from protocol.errors import Error, KafkaError
from protocol.messages.transactions_admin import (
    DescribedProducer,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
)

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    for topic in request.topics:
        answer = DescribeProducersTopicResponse(name=topic.name)
        reason = invalid_name_reason(topic.name)
        for index in topic.partition_indexes:
            partition = DescribeProducersPartitionResponse(partition_index=index)
            try:
                if reason is not None:
                    raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
                if topic.name not in server.metadata.image.topics:
                    raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic.name}.")
                partition.active_producers = _producers(server, topic.name, index)
            except KafkaError as error:
                partition.error_code, partition.error_message = error.error, error.message
            answer.partitions.append(partition)
        response.topics.append(answer)
    return response


def _producers(server: Server, name: str, index: int) -> list[DescribedProducer]:
    states = server.partitions.get(name, index).log.producers.producers
    return [
        DescribedProducer(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp_ms,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.txn_first_offset,
        )
        for producer in states.values()
    ]
