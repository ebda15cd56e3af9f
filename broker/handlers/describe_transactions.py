"""DescribeTransactions (65), version 0 (KIP-664). In a transaction that is being ended, the partitions are those that
still await their marker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.repeats import answered
from broker.security.authorizer import Operation, ResourceType
from coordinator.transaction.states import STATE_NAMES
from protocol.errors import Error, KafkaError
from protocol.messages.transactions_admin import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

if TYPE_CHECKING:
    from broker.coordination.transactions import Transactions
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer


def handle(
    transactions: Transactions,
    authorizer: Authorizer,
    context: RequestContext,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse:
    described = []
    for transactional_id in answered(request.transactional_ids, str):
        resource = (ResourceType.TRANSACTIONAL_ID, transactional_id)
        if not authorizer.allows(context, Operation.DESCRIBE, *resource):
            denied = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            described.append(DescribedTransaction(error_code=denied, transactional_id=transactional_id))
            continue
        found = _described(transactions, transactional_id)
        found.topics = [
            topic
            for topic in found.topics
            if authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        ]
        described.append(found)
    return DescribeTransactionsResponse(transaction_states=described)


def _described(transactions: Transactions, transactional_id: str) -> DescribedTransaction:
    try:
        if not transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        metadata = transactions.shard_of(transactional_id).describe(transactional_id)
    except KafkaError as error:
        return DescribedTransaction(error_code=error.error, transactional_id=transactional_id)
    topics: dict[str, DescribedTransactionTopic] = {}
    for name, index in metadata.partitions:
        topics.setdefault(name, DescribedTransactionTopic(topic=name)).partitions.append(index)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[metadata.state],
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_timestamp_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[*topics.values()],
    )
