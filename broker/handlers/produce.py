"""Produce (0), versions 3 to 13; 0 to 2 are advertised and refused, since old librdkafka asks for them (KAFKA-18659).

v7: zstd (KIP-110); v8: errors by record (KIP-467); v10: the current leader in answers (KIP-951); v11: as v10, for
clients that know TRANSACTION_ABORTABLE (KIP-890); v12: partitions are added to a transaction implicitly (KIP-890);
v13: topic ids (KIP-516).

A batch is appended by the leader of its partition. acks=all waits until it is committed: with one replica that is in
the same call, and nothing waits but where `flush.messages` is reached. A transactional batch is appended once the
transaction's coordinator lets it pass.

A conscious difference: null records, which Kafka never answers, are answered with INVALID_RECORD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.produce_verification import Verifying, transactional_producer
from broker.handlers.produce_answers import ProduceAnswer, fail_all, response_of
from broker.handlers.producing import (
    ADMIN_CLIENT_ID,
    ID_REFUSED,
    NO_GUARDS,
    Producing,
    SortedRequest,
    check_shapes,
    may_use_id,
    refuse,
)
from broker.network.later import Later
from broker.network.pieces import produced
from broker.network.turns import PER_TURN
from broker.replicas.append_records import MANY_BATCHES, NOTHING, Appends
from protocol.messages.produce import ProduceRequest
from protocol.records.checks import RequestFailedError

if TYPE_CHECKING:
    from broker.handlers.ports import ReplicaPorts
    from broker.network.context import RequestContext


def handle(
    node: ReplicaPorts,
    context: RequestContext,
    request: ProduceRequest,
) -> ProduceAnswer | Later[ProduceAnswer]:
    found = SortedRequest(node.partitions, node.authorizer, context)
    topics = request.topic_data
    has_one = len(topics) == 1 and len(topics[0].partition_data) == 1  # as most have
    if not has_one and (entries := produced(request)) > PER_TURN:
        context.connection.hold_produced(entries)
        producing = Producing(context, request, node.current_leaders, node.clock, node.scheduler, node.turns)
        return producing.in_turns(found, node.produce_verification, node.authorizer)
    try:
        sizes, transactional = check_shapes(topics, context.api_version)
    except RequestFailedError as failure:
        return fail_all(request, failure, context)
    if transactional and not may_use_id(request, node.authorizer, context):
        return fail_all(request, ID_REFUSED, context)
    found.take(topics, iter(sizes))
    batches, refusals = found.batches, found.refusals
    guards = NO_GUARDS
    if transactional:
        assert request.transactional_id is not None
        try:
            sender = transactional_producer(request.transactional_id, batches.values())
        except RequestFailedError as failure:
            return fail_all(request, failure, context)
        if sender is not None:
            verified = node.produce_verification.verify(*sender, context.api_version)
            if isinstance(verified, Verifying):
                producing = Producing(
                    context, request, node.current_leaders, node.clock, node.scheduler, node.turns
                )
                return producing.append_once_verified(verified, found)
            if verified.errors:
                refuse([*batches], batches, verified, refusals, context.api_version)
            guards = verified.guards
    appends = Appends(request.acks, context.client_id == ADMIN_CLIENT_ID)
    rest = NOTHING
    if len(batches) > MANY_BATCHES:
        rest = appends.append_for_a_turn(batches, node.clock, guards)
    else:
        appends.append(batches, node.clock.now_ms(), guards)
    if appends.are_done and not refusals and not rest:
        return response_of(request.acks, appends.answers)
    later: Later[ProduceAnswer] = Later()
    producing = Producing(context, request, node.current_leaders, node.clock, node.scheduler, node.turns)
    if rest or appends.left:
        producing.append_rest(appends, rest, refusals, guards, later)
    else:
        producing.reply(appends, refusals, later)
    return later.answer()
