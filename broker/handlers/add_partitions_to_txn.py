"""AddPartitionsToTxn (24), versions 0 to 5.

v2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH (KIP-588); v3: flexible, and the last one of clients; v4: of
brokers, for several transactions at once, and possibly only to verify (KIP-890); v5: TRANSACTION_ABORTABLE.

Either all partitions of a transaction are added, or none. Clients can't add those of internal topics. A conscious
difference: a list of no transactions is answered with an empty one, where Kafka never answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from broker.controller.topic_names import is_internal
from broker.coordination.fencing import as_known
from coordinator.ports import TopicPartition
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server

PRODUCER_FENCED_VERSION = 2
BATCH_VERSION = 4  # brokers', of transactions version 2


def handle(
    server: Server, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    version = context.api_version
    if version < BATCH_VERSION:
        asked = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_answer(server, version, asked, asked.topics, asked.topics)
        )
    # Of transactions with the same id Kafka takes the partitions of the last, and answers for those of the first.
    first: dict[str, list[AddPartitionsToTxnTopic]] = {}
    last: dict[str, list[AddPartitionsToTxnTopic]] = {}
    for asked in request.transactions:
        first.setdefault(asked.transactional_id, asked.topics)
        last[asked.transactional_id] = asked.topics
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id,
                topic_results=_answer(
                    server, version, asked, last[asked.transactional_id], first[asked.transactional_id]
                ),
            )
            for asked in request.transactions
        ]
    )


def _answer(
    server: Server,
    version: int,
    asked: AddPartitionsToTxnTransaction,
    topics: Sequence[AddPartitionsToTxnTopic],
    answered: Sequence[AddPartitionsToTxnTopic],
) -> list[AddPartitionsToTxnTopicResult]:
    partitions = {(topic.name, index): None for topic in topics for index in topic.partitions}
    errors: dict[TopicPartition, Error] = {}
    for name, index in partitions:
        if version < BATCH_VERSION and is_internal(name):
            errors[name, index] = Error.TOPIC_AUTHORIZATION_FAILED
        elif not _exists(server, name, index):
            errors[name, index] = Error.UNKNOWN_TOPIC_OR_PARTITION
    if errors:
        return _by_topic(
            errors | {name: Error.OPERATION_NOT_ATTEMPTED for name in partitions if name not in errors}
        )
    error = Error.NONE
    try:
        if not asked.transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        shard = server.transactions.shard_of(asked.transactional_id)
        producer = (asked.transactional_id, asked.producer_id, asked.producer_epoch)
        if asked.verify_only:
            return _by_topic(shard.verify_partitions(*producer, partitions))
        shard.add_partitions(
            *producer, partitions, client_transaction_version=2 if version >= BATCH_VERSION else 0
        )
    except KafkaError as failure:
        error = as_known(failure.error, version, PRODUCER_FENCED_VERSION)
    if asked.verify_only:
        return _by_topic(dict.fromkeys(partitions, error))
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                for index in topic.partitions
            ],
        )
        for topic in answered
    ]


def _exists(server: Server, topic: str, index: int) -> bool:
    image = server.metadata.image.topics.get(topic)
    return image is not None and index in image.partitions


def _by_topic(errors: Mapping[TopicPartition, Error]) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), error in errors.items():
        topic = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
        topic.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        )
    return [*topics.values()]
