"""AddPartitionsToTxn (24), versions 0 to 5.

v2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH (KIP-588); v3: flexible, and the last one of clients; v4: of
brokers, for several transactions at once, and possibly only to verify (KIP-890); v5: TRANSACTION_ABORTABLE.

Either all partitions of a transaction are added, or none. Clients can't add those of internal topics. A conscious
difference: a list of no transactions is answered with an empty one, where Kafka never answers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.topic_names import is_internal
from broker.coordination.fencing import as_known
from broker.network.later import Later
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from coordinator.ports import TopicPartition
from coordinator.transaction.transactional_producer import TransactionalProducer
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
    from broker.controller.image import ClusterImage
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.transactions import Transactions
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer

PRODUCER_FENCED_VERSION = 2
BATCH_VERSION = 4  # brokers', of transactions version 2

TopicResults = list[AddPartitionsToTxnTopicResult]


class _Asked(NamedTuple):
    """What one transaction is asked for."""

    transaction: AddPartitionsToTxnTransaction
    answered: Sequence[AddPartitionsToTxnTopic]
    """What is answered for. Of transactions with the same id Kafka adds the partitions of the last, and answers for
    those of the first."""
    partitions: dict[TopicPartition, None]
    """Those that are added, each once."""
    version: int


def _asked(
    transaction: AddPartitionsToTxnTransaction,
    added: Sequence[AddPartitionsToTxnTopic],
    answered: Sequence[AddPartitionsToTxnTopic],
    version: int,
) -> _Asked:
    partitions: dict[TopicPartition, None] = {
        (topic.name, index): None for topic in added for index in topic.partitions
    }
    return _Asked(transaction, answered, partitions, version)


def handle(
    metadata: MetadataLog,
    transactions: Transactions,
    authorizer: Authorizer,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse | Later[AddPartitionsToTxnResponse]:
    exists = partial(_exists, metadata.image)
    version = context.api_version
    if version >= BATCH_VERSION:
        if not authorizer.allows(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return AddPartitionsToTxnResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
        return _add_all(transactions, exists, request.transactions, version)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    asked = _asked(transaction, transaction.topics, transaction.topics, version)
    later: Later[AddPartitionsToTxnResponse] = Later()

    def then(results: TopicResults) -> None:
        later.reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))

    resource = (ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
    if not authorizer.allows(context, Operation.WRITE, *resource):
        then(_each(asked, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return later.answer()
    denied = {
        topic.name
        for topic in transaction.topics
        if is_internal(topic.name)
        or not authorizer.allows(context, Operation.WRITE, ResourceType.TOPIC, topic.name)
    }
    _add(transactions, asked, _refused(asked, denied, exists), then)
    return later.answer()


def _add_all(
    transactions: Transactions,
    exists: Callable[[TopicPartition], bool],
    asked: Sequence[AddPartitionsToTxnTransaction],
    version: int,
) -> AddPartitionsToTxnResponse | Later[AddPartitionsToTxnResponse]:
    """What brokers ask for: several transactions, and no topic is denied to them."""
    response = AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=each.transactional_id) for each in asked
        ]
    )
    if not asked:
        return response
    later: Later[AddPartitionsToTxnResponse] = Later()
    left = len(asked)

    def then(result: AddPartitionsToTxnResult, topic_results: TopicResults) -> None:
        nonlocal left
        result.topic_results = topic_results
        left -= 1
        if left == 0:
            later.reply(response)

    first: dict[str, list[AddPartitionsToTxnTopic]] = {}
    last: dict[str, list[AddPartitionsToTxnTopic]] = {}
    for transaction in asked:
        first.setdefault(transaction.transactional_id, transaction.topics)
        last[transaction.transactional_id] = transaction.topics
    for transaction, result in zip(asked, response.results_by_transaction, strict=True):
        transactional_id = transaction.transactional_id
        one = _asked(transaction, last[transactional_id], first[transactional_id], version)
        _add(transactions, one, _refused(one, (), exists), partial(then, result))
    return later.answer()


def _add(
    transactions: Transactions,
    asked: _Asked,
    refused: dict[TopicPartition, Error],
    then: Callable[[TopicResults], None],
) -> None:
    """Add the partitions of one transaction, or verify that they are in it; none of them where one is refused."""
    if refused:
        then(_by_topic(refused))
        return
    transaction = asked.transaction
    partitions = asked.partitions

    def added(failure: KafkaError | None) -> None:
        error = Error.NONE
        if failure is not None:
            error = as_known(failure.error, asked.version, PRODUCER_FENCED_VERSION)
        then(_by_topic(dict.fromkeys(partitions, error)) if transaction.verify_only else _each(asked, error))

    try:
        if not transaction.transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        shard = transactions.shard_of(transaction.transactional_id)
    except KafkaError as failure:
        added(failure)
        return
    producer = TransactionalProducer(
        transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    )
    if transaction.verify_only:
        then(_by_topic(shard.verify_partitions(producer, partitions)))
    else:
        version = 2 if asked.version >= BATCH_VERSION else 0
        shard.add_partitions(producer, partitions, client_transaction_version=version, then=added)


def _refused(
    asked: _Asked, denied: Container[str], exists: Callable[[TopicPartition], bool]
) -> dict[TopicPartition, Error]:
    """Each partition's error where one of them can't be added, else nothing."""
    partitions = asked.partitions
    errors: dict[TopicPartition, Error] = {}
    for partition in partitions:
        if partition[0] in denied:
            errors[partition] = Error.TOPIC_AUTHORIZATION_FAILED
        elif not exists(partition):
            errors[partition] = Error.UNKNOWN_TOPIC_OR_PARTITION
    if errors:
        rest = [partition for partition in partitions if partition not in errors]
        errors |= dict.fromkeys(rest, Error.OPERATION_NOT_ATTEMPTED)
    return errors


def _exists(image: ClusterImage, partition: TopicPartition) -> bool:
    topic = image.topics.get(partition[0])
    return topic is not None and partition[1] in topic.partitions


def _each(asked: _Asked, error: Error) -> TopicResults:
    """Everything that is answered for has this error, in the form of the request."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                for index in topic.partitions
            ],
        )
        for topic in asked.answered
    ]


def _by_topic(errors: Mapping[TopicPartition, Error]) -> TopicResults:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), error in errors.items():
        topic = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
        topic.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        )
    return [*topics.values()]
