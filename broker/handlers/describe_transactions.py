"""DescribeTransactions (65), version 0 (KIP-664). In a transaction that is being ended, the partitions are those that
still await their marker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.transaction.states import STATE_NAMES
from protocol.errors import Error, KafkaError
from protocol.messages.transactions_admin import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _described(server, transactional_id) for transactional_id in request.transactional_ids
        ]
    )


def _described(server: Server, transactional_id: str) -> DescribedTransaction:
    try:
        if not transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        metadata = server.transactions.shard_of(transactional_id).describe(transactional_id)
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
