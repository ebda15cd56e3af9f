"""AddPartitionsToTxn (24), versions 0 to 5.

v2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH (KIP-588); v3: flexible, and the last one of clients; v4: of
brokers, for several transactions at once, and possibly only to verify (KIP-890); v5: TRANSACTION_ABORTABLE.

Either all partitions of a transaction are added, or none. Clients can't add those of internal topics. A conscious
difference: a list of no transactions is answered with an empty one, where Kafka never answers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.controller.image import is_internal
from broker.coordination.transactions import as_known
from broker.network.later import Later
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
from protocol.waiting import Pause, at_once, turn

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.coordination.transactions import Transactions
    from broker.handlers.node_ports import TransactionPorts
    from broker.network.context import RequestContext

PRODUCER_FENCED_VERSION = 2
BATCH_VERSION = 4  # brokers', of transactions version 2

TopicResults = list[AddPartitionsToTxnTopicResult]
Refused = dict[TopicPartition, Error]

SHORT_LIST = 100
"""Of more topics or partitions others are served in between."""


class _Asked:
    """What one transaction is asked for."""

    __slots__ = ("answered", "partitions", "producer", "then", "verify_only", "version")

    def __init__(
        self,
        producer: TransactionalProducer,
        version: int,
        *,
        verify_only: bool,
        then: Callable[[TopicResults], None],
    ) -> None:
        """`then` is told what becomes of it."""
        self.producer = producer
        self.version = version
        self.verify_only = verify_only
        self.then = then
        self.partitions: dict[TopicPartition, None] = {}
        """Those that are added, each once."""
        self.answered: Sequence[AddPartitionsToTxnTopic] = ()
        """What is answered for. Of transactions with the same id Kafka adds the partitions of the last, and answers for
        those of the first."""

    def asks_for(self, topics: Sequence[AddPartitionsToTxnTopic]) -> None:
        """Take in the topics."""
        partitions = self.partitions
        for topic in topics:
            name = topic.name
            for index in topic.partitions:
                partitions[name, index] = None

    def failed(self, error: Error) -> None:
        """None of them is added, and this is why."""
        self.then(self._each(error))

    def added(self, failure: KafkaError | None) -> None:
        """The coordinator has added them, or says why not."""
        error = NO_ERROR
        if failure is not None:
            error = as_known(failure.error, self.version, PRODUCER_FENCED_VERSION)
        if self.verify_only:
            self.then(_by_topic(dict.fromkeys(self.partitions, error)))
        else:
            self.then(self._each(error))

    def _each(self, error: Error) -> TopicResults:
        """Everything that is answered for has this error, in the form of the request."""
        return [
            AddPartitionsToTxnTopicResult.of(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult.of(partition_index=index, partition_error_code=error)
                    for index in topic.partitions
                ],
            )
            for topic in self.answered
        ]


async def handle(
    node: TransactionPorts,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse:
    version = context.api_version
    if version >= BATCH_VERSION:
        if not node.authorizer.allows(context, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
            return AddPartitionsToTxnResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
        return await _add_all(node.transactions, node.metadata.image, request.transactions, version)
    later: Later[AddPartitionsToTxnResponse] = Later()
    asked = _asked_by_client(request, version, later)
    topics = asked.answered
    if not node.authorizer.allows(context, WRITE, TRANSACTIONAL_ID, asked.producer.transactional_id):
        asked.failed(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return await later
    denied = {
        topic.name
        for topic in topics
        if is_internal(topic.name) or not node.authorizer.allows(context, WRITE, TOPIC, topic.name)
    }
    if len(topics) > SHORT_LIST or sum([len(topic.partitions) for topic in topics]) > SHORT_LIST:
        return await _add_in_steps(node.transactions, node.metadata.image, asked, denied, later)
    asked.asks_for(topics)
    refused: Refused = {}
    _note_refused(refused, asked.partitions, node.metadata.image, denied)
    if refused:
        asked.then(_by_topic(_with_rest(refused, asked.partitions)))
    else:
        _add(node.transactions, asked)
    return await later


def _asked_by_client(
    request: AddPartitionsToTxnRequest, version: int, later: Later[AddPartitionsToTxnResponse]
) -> _Asked:
    transactional_id = request.v3_and_below_transactional_id

    def then(results: TopicResults) -> None:
        later.reply(AddPartitionsToTxnResponse.of(results_by_topic_v3_and_below=results))

    producer = TransactionalProducer(
        transactional_id, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    )
    asked = _Asked(producer, version, verify_only=False, then=then)
    asked.answered = request.v3_and_below_topics
    return asked


async def _add_in_steps(
    transactions: Transactions,
    image: ClusterImage,
    asked: _Asked,
    denied: Container[str],
    later: Later[AddPartitionsToTxnResponse],
) -> AddPartitionsToTxnResponse:
    """What is much."""
    await _ask(asked, asked.answered)
    await _add_or_refuse(transactions, image, asked, denied)
    return await later


async def _add_all(
    transactions: Transactions,
    image: ClusterImage,
    asked: Sequence[AddPartitionsToTxnTransaction],
    version: int,
) -> AddPartitionsToTxnResponse:
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
    pause = Pause()
    for transaction, result in zip(asked, response.results_by_transaction, strict=True):
        transactional_id = transaction.transactional_id
        one = _Asked(
            TransactionalProducer(transactional_id, transaction.producer_id, transaction.producer_epoch),
            version,
            verify_only=transaction.verify_only,
            then=partial(then, result),
        )
        if pause.is_due():
            await turn()
        one.answered = first[transactional_id]
        await _ask(one, last[transactional_id])
        await _add_or_refuse(transactions, image, one, ())
    return await later


async def _ask(asked: _Asked, topics: Sequence[AddPartitionsToTxnTopic]) -> None:
    pause = Pause(PER_TURN)
    for topic in topics:
        if pause.is_due():
            await turn()
        asked.asks_for((topic,))


async def _add_or_refuse(
    transactions: Transactions, image: ClusterImage, asked: _Asked, denied: Container[str]
) -> None:
    refused: Refused = {}
    await in_turns([*asked.partitions], lambda some: _note_refused(refused, some, image, denied))
    if refused:
        rest = _with_rest(refused, asked.partitions)
        asked.then(await _by_topic_in_steps(rest))
    else:
        _add(transactions, asked)


def _add(transactions: Transactions, asked: _Asked) -> None:
    """Add the partitions of one transaction, or verify that they are in it."""
    producer = asked.producer
    try:
        if not producer.transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        shard = transactions.shard_of(producer.transactional_id)
    except KafkaError as failure:
        asked.added(failure.as_value())
        return
    if asked.verify_only:
        shard.verify_when_certain(producer, asked.partitions, lambda errors: asked.then(_by_topic(errors)))
    else:
        version = 2 if asked.version >= BATCH_VERSION else 0
        shard.add_partitions(producer, asked.partitions, client_transaction_version=version, then=asked.added)


def _note_refused(
    refused: Refused, partitions: Iterable[TopicPartition], image: ClusterImage, denied: Container[str]
) -> None:
    """Which of these partitions can't be added, and why."""
    for partition in partitions:
        name, index = partition
        if name in denied:
            refused[partition] = Error.TOPIC_AUTHORIZATION_FAILED
            continue
        topic = image.topics.get(name)
        if topic is None or index not in topic.partitions:
            refused[partition] = Error.UNKNOWN_TOPIC_OR_PARTITION


def _with_rest(refused: Refused, partitions: Iterable[TopicPartition]) -> Refused:
    """Where one is refused none is added."""
    rest = [partition for partition in partitions if partition not in refused]
    return refused | dict.fromkeys(rest, Error.OPERATION_NOT_ATTEMPTED)


def _by_topic(errors: Mapping[TopicPartition, Error]) -> TopicResults:
    return at_once(_by_topic_in_steps(errors))


async def _by_topic_in_steps(errors: Mapping[TopicPartition, Error]) -> TopicResults:
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
