"""ListTransactions (66), versions 0 to 2 (KIP-664).

v1: a filter for transactions that have been running for longer than a duration (KIP-994); v2: a filter for ids that
match, as a whole, a regular expression of RE2 (KIP-1152).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.network.turns import PER_TURN
from broker.security.authorizer import Operation, ResourceType
from coordinator.java.re2 import Pattern, PatternSyntaxError, compile_pattern
from coordinator.transaction.state_manager import TransactionFilter, states_named
from coordinator.transaction.states import STATE_NAMES
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from protocol.waiting import Pause, compute, turn

if TYPE_CHECKING:
    from broker.handlers.node_ports import TransactionPorts
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from coordinator.transaction.shard import TransactionShard

WORK_PER_ENTRY = 100
"""Units of `Pattern.work` that count as much as one entry of the list."""
MOST_COMPILED_IN_PASSING = 500
"""Most characters of an expression, and most different ones in all ids, that the loop compiles itself, at some 10 µs
each. More is compiled beside the loop."""


async def handle(
    node: TransactionPorts,
    context: RequestContext,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse:
    try:
        shards = node.transactions.all_shards()
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.error)

    def may_see(transactional_id: str) -> bool:
        return node.authorizer.allows(
            context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id
        )

    return await _listed(shards, node.turns, request, may_see)


async def _listed(
    shards: Sequence[TransactionShard],
    turns: Turns,
    request: ListTransactionsRequest,
    may_see: Callable[[str], bool],
) -> ListTransactionsResponse:
    pause = _Pause(turns)
    try:
        pattern = await _pattern(request, shards, pause)
    except PatternSyntaxError:
        return ListTransactionsResponse(error_code=Error.INVALID_REGULAR_EXPRESSION)
    states, unknown = states_named([*dict.fromkeys(request.state_filters)])
    wanted = TransactionFilter(frozenset(request.producer_id_filters), states, request.duration_filter)
    response = ListTransactionsResponse(unknown_state_filters=unknown)
    for shard in shards:
        for metadata in [*shard.transactions.values()]:
            if pause.is_due():
                await turn()
            if not shard.is_listed(metadata, wanted):
                continue
            transactional_id = metadata.transactional_id
            if pattern is not None and not await _matches(pattern, transactional_id, pause):
                continue
            if may_see(transactional_id):
                response.transaction_states.append(
                    ListedTransaction(
                        transactional_id=transactional_id,
                        producer_id=metadata.producer_id,
                        transaction_state=STATE_NAMES[metadata.state],
                    )
                )
    return response


class _Pause:
    """Says when a turn has to end, over all shards: by the number of ids, by the work of matching, or by the time."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._by_entries = Pause(PER_TURN)

    def is_due(self, work: int = 0) -> bool:
        """`work` is in units of `Pattern.work`. An id takes some 10 µs."""
        return self._by_entries.is_due(1 + work // WORK_PER_ENTRY) or self._turns.is_over


async def _matches(pattern: Pattern, transactional_id: str, pause: _Pause) -> bool:
    before = pattern.work
    found = await pattern.matching(transactional_id)
    if pause.is_due(pattern.work - before):
        await turn()
    return found


async def _pattern(
    request: ListTransactionsRequest, shards: Sequence[TransactionShard], pause: _Pause
) -> Pattern | None:
    """The compiled expression; None lets every id pass. Raises PatternSyntaxError."""
    text = request.transactional_id_pattern
    if not text:
        return None
    chars: set[str] = set()
    for shard in shards:
        for transactional_id in [*shard.transactions]:
            chars.update(transactional_id)
            if pause.is_due(len(transactional_id)):
                await turn()
    compile_it = partial(compile_pattern, text, frozenset(chars))
    if len(text) <= MOST_COMPILED_IN_PASSING and len(chars) <= MOST_COMPILED_IN_PASSING:
        return compile_it()
    return await compute(compile_it)
