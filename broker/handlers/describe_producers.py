"""DescribeProducers (61), version 0 (KIP-664): the producers that a partition knows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.controller.image import invalid_name_reason
from broker.network.pieces import Repeats
from broker.network.turns import in_turns
from broker.security.authorizer import AUTHORIZATION_FAILED, Operation, ResourceType
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import (
    DescribedProducer,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
)
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.handlers.node_ports import ReplicaPorts
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer
    from storage.producer_state import Producer


async def handle(
    node: ReplicaPorts,
    context: RequestContext,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse:
    """Followers answer too, since they know the producers."""
    return await _described(node.partitions, node.metadata, node.authorizer, node.turns, context, request)


async def _described(
    partitions: Partitions,
    metadata: MetadataLog,
    authorizer: Authorizer,
    turns: Turns,
    context: RequestContext,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    repeats = Repeats()
    for topic in request.topics:
        answer = DescribeProducersTopicResponse(name=topic.name)
        refusal = _refusal(metadata, authorizer, context, topic.name)
        for index in topic.partition_indexes:
            if not repeats.admits((topic.name, index)):
                continue
            partition = DescribeProducersPartitionResponse(partition_index=index)
            if refusal is not None:
                partition.error_code, partition.error_message = refusal.error, refusal.message
            else:
                try:
                    states = partitions.get(topic.name, index).log.producers.producers
                except KafkaError as error:
                    partition.error_code, partition.error_message = error.error, error.message
                else:
                    found = partition.active_producers = []
                    await in_turns([*states.values()], partial(_describe, found))
            answer.partitions.append(partition)
            if turns.is_over:
                await turn()
        if answer.partitions or not topic.partition_indexes:
            response.topics.append(answer)
    return response


def _refusal(
    metadata: MetadataLog, authorizer: Authorizer, context: RequestContext, topic: str
) -> KafkaError | None:
    """The error that refuses a topic, or None."""
    reason = invalid_name_reason(topic)
    if reason is not None:
        return KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    if not authorizer.allows(context, Operation.READ, ResourceType.TOPIC, topic):
        denied = Error.TOPIC_AUTHORIZATION_FAILED
        return KafkaError(denied, AUTHORIZATION_FAILED[denied])
    if topic not in metadata.image.topics:
        return KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic}.")
    return None


def _describe(found: list[DescribedProducer], producers: Sequence[Producer]) -> None:
    for producer in producers:
        found.append(
            DescribedProducer(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_first_offset,
            )
        )
