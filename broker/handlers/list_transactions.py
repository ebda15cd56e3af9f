"""ListTransactions (66), versions 0 to 2 (KIP-664).

v1: those that have been running for longer than a duration (KIP-994); v2: those whose id as a whole matches a regular
expression of RE2 (KIP-1152).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.network.turns import in_turns
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
    from broker.network.later import Later
    from broker.network.turns import RequestSteps, Turns
    from broker.security.authorizer import Authorizer
    from coordinator.transaction.shard import TransactionShard
    from coordinator.transaction.transaction_metadata import TransactionMetadata


def handle(
    transactions: Transactions,
    authorizer: Authorizer,
    turns: Turns,
    context: RequestContext,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse | Later[ListTransactionsResponse]:
    try:
        shards = transactions.all_shards()
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.error)

    def may_see(transactional_id: str) -> bool:
        return authorizer.allows(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)

    return turns.answer(_listed(shards, request, may_see))


def _listed(
    shards: Sequence[TransactionShard], request: ListTransactionsRequest, may_see: Callable[[str], bool]
) -> RequestSteps[ListTransactionsResponse]:
    try:
        pattern = yield from _pattern(request, shards)
    except PatternSyntaxError:
        return ListTransactionsResponse(error_code=Error.INVALID_REGULAR_EXPRESSION)
    states, unknown = states_named([*dict.fromkeys(request.state_filters)])
    wanted = TransactionFilter(frozenset(request.producer_id_filters), states, request.duration_filter)
    response = ListTransactionsResponse(unknown_state_filters=unknown)

    def take(shard: TransactionShard, some: Sequence[TransactionMetadata]) -> None:
        response.transaction_states += [
            ListedTransaction(
                transactional_id=metadata.transactional_id,
                producer_id=metadata.producer_id,
                transaction_state=STATE_NAMES[metadata.state],
            )
            for metadata in shard.list_transactions(wanted, some)
            if (pattern is None or pattern.matches(metadata.transactional_id))
            and may_see(metadata.transactional_id)
        ]

    for shard in shards:
        yield from in_turns([*shard.transactions.values()], partial(take, shard))
    return response


def _pattern(
    request: ListTransactionsRequest, shards: Sequence[TransactionShard]
) -> RequestSteps[Pattern | None]:
    """None lets every id pass. Raises PatternSyntaxError."""
    if not request.transactional_id_pattern:
        return None
    chars: set[str] = set()
    for shard in shards:
        yield from in_turns([*shard.transactions], lambda some: chars.update(*some))
    return compile_pattern(request.transactional_id_pattern, frozenset(chars))
