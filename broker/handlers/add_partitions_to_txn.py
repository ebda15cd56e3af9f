"""AddPartitionsToTxn (24), versions 0 to 5.

v2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH (KIP-588); v3: flexible, the last version of clients; v4: of
brokers, for several transactions at once, possibly only to verify them (KIP-890); v5: TRANSACTION_ABORTABLE.

Either all partitions of a transaction are added, or none. Clients can't add partitions of internal topics. A conscious
difference: the answer to an empty list of transactions is an empty list. Kafka never answers it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.controller.image import is_internal
from broker.coordination.transactions import as_known
from broker.network.turns import PER_TURN, in_turns
from broker.security.authorizer import CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, TOPIC, TRANSACTIONAL_ID, WRITE
from coordinator.transaction.producer_ids import TransactionalProducer
from protocol.errors import NO_ERROR, Error, KafkaError
from protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from protocol.topic_partition import TopicPartition
from protocol.waiting import Later, Pause, begun, turn

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.coordination.transactions import Transactions
    from broker.handlers.node_ports import TransactionPorts
    from broker.network.context import RequestContext

PRODUCER_FENCED_VERSION = 2
BATCH_VERSION = 4  # brokers', of transactions version 2

TopicResults = list[AddPartitionsToTxnTopicResult]
Partitions = dict[TopicPartition, None]
"""Partitions to add, each once."""
Errors = Mapping[TopicPartition, Error]


async def handle(
    node: TransactionPorts,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse:
    version = context.api_version
    image = node.metadata.image
    if version >= BATCH_VERSION:
        if not node.authorizer.allows(context, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
            return AddPartitionsToTxnResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
        added = await _added_for_brokers(node.transactions, image, request.transactions, version)
        return AddPartitionsToTxnResponse(results_by_transaction=added)
    topics = request.v3_and_below_topics
    producer = TransactionalProducer(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )
    if node.authorizer.allows(context, WRITE, TRANSACTIONAL_ID, producer.transactional_id):
        denied = {
            topic.name
            for topic in topics
            if is_internal(topic.name) or not node.authorizer.allows(context, WRITE, TOPIC, topic.name)
        }
        partitions = await _partitions_of(topics)
        refused = await _refused(partitions, image, denied)
        if refused:
            results = await _by_topic(refused)
        else:
            failure = await _added(node.transactions, producer, partitions, version)
            results = _each(topics, _told(failure, version))
    else:
        results = _each(topics, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return AddPartitionsToTxnResponse.of(results_by_topic_v3_and_below=results)


async def _added_for_brokers(
    transactions: Transactions,
    image: ClusterImage,
    asked: Sequence[AddPartitionsToTxnTransaction],
    version: int,
) -> list[AddPartitionsToTxnResult]:
    """Add partitions to several transactions. No topic is denied to brokers. All transactions are begun before the
    first result is awaited.

    If transactions have the same id, Kafka adds the partitions of the last one and answers for those of the first.
    """
    first: dict[str, list[AddPartitionsToTxnTopic]] = {}
    last: dict[str, list[AddPartitionsToTxnTopic]] = {}
    for transaction in asked:
        first.setdefault(transaction.transactional_id, transaction.topics)
        last[transaction.transactional_id] = transaction.topics
    pause = Pause()
    under_way: list[tuple[Partitions, Errors | Later[Errors | KafkaError | None]]] = []
    for transaction in asked:
        if pause.is_due():
            await turn()
        producer = TransactionalProducer(
            transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
        )
        partitions = await _partitions_of(last[transaction.transactional_id])
        refused = await _refused(partitions, image, ())
        if refused:
            under_way.append((partitions, refused))
        else:
            added = _added(transactions, producer, partitions, version, verify_only=transaction.verify_only)
            under_way.append((partitions, begun(added)))
    results = []
    for transaction, (partitions, later) in zip(asked, under_way, strict=True):
        found = await later if isinstance(later, Later) else later
        if transaction.verify_only and (found is None or isinstance(found, KafkaError)):
            found = dict.fromkeys(partitions, _told(found, version))
        if found is None or isinstance(found, KafkaError):
            topics = _each(first[transaction.transactional_id], _told(found, version))
        else:
            topics = await _by_topic(found)
        results.append(
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topics)
        )
    return results


async def _partitions_of(topics: Sequence[AddPartitionsToTxnTopic]) -> Partitions:
    partitions: Partitions = {}
    pause = Pause(PER_TURN)
    for topic in topics:
        if pause.is_due(len(topic.partitions)):
            await turn()
        name = topic.name
        for index in topic.partitions:
            partitions[name, index] = None
    return partitions


async def _refused(partitions: Partitions, image: ClusterImage, denied: Container[str]) -> Errors:
    """The error of each partition; empty if all can be added. If one is refused, none is added."""
    refused: dict[TopicPartition, Error] = {}

    def look(some: Sequence[TopicPartition]) -> None:
        for partition in some:
            name, index = partition
            if name in denied:
                refused[partition] = Error.TOPIC_AUTHORIZATION_FAILED
                continue
            topic = image.topics.get(name)
            if topic is None or index not in topic.partitions:
                refused[partition] = Error.UNKNOWN_TOPIC_OR_PARTITION

    await in_turns([*partitions], look)
    if not refused:
        return refused
    rest = [partition for partition in partitions if partition not in refused]
    return refused | dict.fromkeys(rest, Error.OPERATION_NOT_ATTEMPTED)


async def _added(
    transactions: Transactions,
    producer: TransactionalProducer,
    partitions: Partitions,
    version: int,
    *,
    verify_only: bool = False,
) -> Errors | KafkaError | None:
    """Add the partitions to the transaction, or verify that they are in it.

    Returns None if they were added, a KafkaError if none was, or, with `verify_only`, the error of each."""
    try:
        if not producer.transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        shard = transactions.shard_of(producer.transactional_id)
    except KafkaError as failure:
        return failure.as_value()
    if verify_only:
        return await shard.verify_when_certain(producer, partitions)
    client_version = 2 if version >= BATCH_VERSION else 0
    added = shard.add_partitions(producer, partitions, client_transaction_version=client_version)
    return await added if isinstance(added, Later) else added


def _told(failure: Errors | KafkaError | None, version: int) -> Error:
    if isinstance(failure, KafkaError):
        return as_known(failure.error, version, PRODUCER_FENCED_VERSION)
    return NO_ERROR


def _each(topics: Sequence[AddPartitionsToTxnTopic], error: Error) -> TopicResults:
    """Results in the order of the request, all with this error."""
    return [
        AddPartitionsToTxnTopicResult.of(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult.of(partition_index=index, partition_error_code=error)
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


async def _by_topic(errors: Errors) -> TopicResults:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    pause = Pause(PER_TURN)
    for (name, index), error in errors.items():
        if pause.is_due():
            await turn()
        topic = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
        topic.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        )
    return [*topics.values()]
