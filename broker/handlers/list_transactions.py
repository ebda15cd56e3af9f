"""ListTransactions (66), versions 0 to 2 (KIP-664).

v1: those that have been running for longer than a duration (KIP-994); v2: those whose id as a whole matches a regular
expression of RE2 (KIP-1152).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.security.authorizer import Operation, ResourceType
from coordinator.java.re2 import Pattern, PatternSyntaxError, compile_pattern
from coordinator.transaction.admin import TransactionFilter, states_named
from coordinator.transaction.states import STATE_NAMES
from protocol.errors import Error, KafkaError
from protocol.messages.transactions_admin import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

if TYPE_CHECKING:
    from broker.coordination.transactions import Transactions
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer
    from coordinator.transaction.shard import TransactionShard


def handle(
    transactions: Transactions,
    authorizer: Authorizer,
    context: RequestContext,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse:
    try:
        shards = transactions.all_shards()
        pattern = _pattern(request, shards)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.error)
    except PatternSyntaxError:
        return ListTransactionsResponse(error_code=Error.INVALID_REGULAR_EXPRESSION)
    states, unknown = states_named([*dict.fromkeys(request.state_filters)])
    wanted = TransactionFilter(frozenset(request.producer_id_filters), states, request.duration_filter)
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            ListedTransaction(
                transactional_id=metadata.transactional_id,
                producer_id=metadata.producer_id,
                transaction_state=STATE_NAMES[metadata.state],
            )
            for shard in shards
            for metadata in shard.list_transactions(wanted)
            if (pattern is None or pattern.matches(metadata.transactional_id))
            and authorizer.allows(
                context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, metadata.transactional_id
            )
        ],
    )


def _pattern(request: ListTransactionsRequest, shards: Sequence[TransactionShard]) -> Pattern | None:
    """None lets every id pass. Raises PatternSyntaxError."""
    if not request.transactional_id_pattern:
        return None
    chars = frozenset(char for shard in shards for each in shard.transactions for char in each)
    return compile_pattern(request.transactional_id_pattern, chars)
