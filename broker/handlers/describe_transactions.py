"""DescribeTransactions (65), version 0 (KIP-664). While a transaction is being ended, its partitions are those that
still await their marker."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.network.pieces import answered
from broker.network.turns import in_turns
from broker.security.authorizer import Operation, ResourceType
from coordinator.transaction.states import STATE_NAMES
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.coordination.transactions import Transactions
    from broker.handlers.node_ports import TransactionPorts
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from broker.security.authorizer import Authorizer


async def handle(
    node: TransactionPorts,
    context: RequestContext,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse:
    return await _all(node.transactions, node.authorizer, node.turns, context, request)


async def _all(
    transactions: Transactions,
    authorizer: Authorizer,
    turns: Turns,
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
        found = await _described(transactions, transactional_id)
        topics, found.topics = found.topics, []
        await in_turns(topics, partial(_show, authorizer, context, found.topics))
        described.append(found)
        if turns.is_over:
            await turn()
    return DescribeTransactionsResponse(transaction_states=described)


def _show(
    authorizer: Authorizer,
    context: RequestContext,
    shown: list[DescribedTransactionTopic],
    topics: Sequence[DescribedTransactionTopic],
) -> None:
    """Collect the topics that the client may describe."""
    for topic in topics:
        if authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic):
            shown.append(topic)


async def _described(transactions: Transactions, transactional_id: str) -> DescribedTransaction:
    try:
        if not transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        metadata = transactions.shard_of(transactional_id).describe(transactional_id)
    except KafkaError as error:
        return DescribedTransaction(error_code=error.error, transactional_id=transactional_id)
    found = DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[metadata.state],
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_timestamp_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
    )
    topics: dict[str, DescribedTransactionTopic] = {}

    def take(partitions: Sequence[tuple[str, int]]) -> None:
        for name, index in partitions:
            topics.setdefault(name, DescribedTransactionTopic(topic=name)).partitions.append(index)

    await in_turns([*metadata.partitions], take)
    found.topics = [*topics.values()]
    return found
