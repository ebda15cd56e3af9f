"""Heartbeats and joins of groups that the server assigns, where they are much to decide: beside the loop, one of a
group at a time.

Others of the group that are much to decide wait, as all do at the queue of Kafka's partition; who has nothing to be
decided, who commits and who only looks doesn't.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from broker.network.later import Later
from broker.network.turns import Lines, in_line
from coordinator.group.deferred import MOST_TRIES, Deferred
from coordinator.group.ports import Client
from protocol.errors import Error, KafkaError, stops_the_broker
from protocol.messages.groups import JoinGroupRequest, JoinGroupResponse
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from protocol.messages.groups_share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from protocol.messages.groups_streams import StreamsGroupHeartbeatRequest
from protocol.waiting import Waiting, compute

if TYPE_CHECKING:
    from broker.coordination.groups import Groups
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from coordinator.group.shard import GroupShard
    from coordinator.group.streams.heartbeats import StreamsAnswer


# --------------------------------------------------------------------------------------------------------------
# What is much to decide of a group: one at a time, as it came, which is how Kafka's partition goes about
# it.
#
# Requests stand in that line, and what a coordinator decides by itself.

log = logging.getLogger("barnabas.coordination")

Deciding = Lines[str]
"""By group; a group that nothing long is being decided of isn't in it."""


def carry_out(
    groups: Groups,
    turns: Turns,
    group_id: str,
    steps: Waiting[None],
    failed: Callable[[BaseException], None],
) -> None:
    """See `coordinator.ports.Runtime.carry_out`. `failed` learns of broken invariants."""

    async def unasked() -> None:
        try:
            await in_line(groups.deciding, group_id, steps)
        finally:
            groups.unasked.pop(under_way, None)

    def tell(error: BaseException) -> None:
        log.error("what was to be decided of group %s is lost", group_id, exc_info=error)
        if stops_the_broker(error):
            failed(error)

    under_way = unasked()
    groups.unasked[under_way] = None
    turns.carry_out(under_way, tell)


# --------------------------------------------------------------------------------------------------------------

A = TypeVar("A")
R = TypeVar("R")

HeartbeatRequest = ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest | StreamsGroupHeartbeatRequest

Begin = Callable[["GroupShard"], A | Deferred[A] | Later[A]]
"""What the shard makes of the request: the answer, one that waits to be decided, or one that comes later. Raises
KafkaError."""


class _MuchToDecideError(Exception):
    pass


def heartbeat(
    groups: Groups,
    turns: Turns,
    context: RequestContext,
    client: Client,
    request: ConsumerGroupHeartbeatRequest,
    respond: Callable[[ConsumerGroupHeartbeatResponse | KafkaError], R],
) -> R | Later[R]:
    """The handler's answer, which is what `respond` makes of the shard's. Nothing has happened where the client hangs
    up before a long one is decided."""

    def begin(shard: GroupShard) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
        return shard.consumer_heartbeat(client, request)

    return _answered(groups, turns, context, request, begin, respond)


def share_heartbeat(
    groups: Groups,
    turns: Turns,
    context: RequestContext,
    client: Client,
    request: ShareGroupHeartbeatRequest,
    respond: Callable[[ShareGroupHeartbeatResponse | KafkaError], R],
) -> R | Later[R]:
    """As `heartbeat`, of a member of a share group."""

    def begin(shard: GroupShard) -> ShareGroupHeartbeatResponse | Deferred[ShareGroupHeartbeatResponse]:
        return shard.share_groups.heartbeat(client, request)

    return _answered(groups, turns, context, request, begin, respond)


def streams_heartbeat(
    groups: Groups,
    turns: Turns,
    context: RequestContext,
    client: Client,
    request: StreamsGroupHeartbeatRequest,
    respond: Callable[[StreamsAnswer | KafkaError], R],
) -> R | Later[R]:
    """As `heartbeat`, of a member of a streams group."""

    def begin(shard: GroupShard) -> StreamsAnswer | Deferred[StreamsAnswer]:
        return shard.streams_heartbeat(client, request)

    return _answered(groups, turns, context, request, begin, respond)


def _answered(
    groups: Groups,
    turns: Turns,
    context: RequestContext,
    request: HeartbeatRequest,
    begin: Callable[[GroupShard], A | Deferred[A]],
    respond: Callable[[A | KafkaError], R],
) -> R | Later[R]:
    def in_passing(shard: GroupShard) -> A:
        answer = begin(shard)
        if isinstance(answer, Deferred):
            raise _MuchToDecideError
        return answer

    try:
        return groups.answer(request.group_id, in_passing, respond)
    except _MuchToDecideError:
        return turns.answer(_in_turn(groups, request, begin, respond), context)


def join(
    groups: Groups,
    turns: Turns,
    context: RequestContext,
    client: Client,
    request: JoinGroupRequest,
    respond: Callable[[JoinGroupResponse | KafkaError], R],
) -> R | Later[R]:
    """As `heartbeat`, of who joins any group by the classic protocol."""
    later: Later[R] = Later()

    def in_passing(shard: GroupShard, answered: Callable[[JoinGroupResponse], None]) -> None:
        if shard.join(client, request, answered) is not None:
            raise _MuchToDecideError

    def begin(
        shard: GroupShard,
    ) -> JoinGroupResponse | Deferred[JoinGroupResponse] | Later[JoinGroupResponse]:
        joined: Later[JoinGroupResponse] = Later()
        deferred = shard.join(client, request, joined.reply)
        return joined if deferred is None else deferred

    try:
        groups.ask_for_later(request.group_id, in_passing, lambda found: later.reply(respond(found)))
    except _MuchToDecideError:
        return turns.answer(_in_turn(groups, request, begin, respond), context)
    return later.answer()


async def _in_turn(
    groups: Groups,
    request: HeartbeatRequest | JoinGroupRequest,
    begin: Begin[A],
    respond: Callable[[A | KafkaError], R],
) -> R:
    """Once it is its turn in the group. All of it is of the shard that is there as it begins: where the partition is
    given up meanwhile the answer is NOT_COORDINATOR, though it may be led here again by then."""
    group_id = request.group_id
    shard = groups.shard_of(group_id)  # which the same call has found before
    found: A | Later[A] | KafkaError
    try:
        with shard.deciding(request):
            found = await in_line(groups.deciding, group_id, _decided(groups, shard, group_id, begin))
    except KafkaError as error:
        found = error.as_value()
    answer: A | KafkaError = await found if isinstance(found, Later) else found
    if not shard.gate.is_open:
        committed: Later[KafkaError | None] = Later()
        shard.when_committed(committed.reply)
        lost = await committed
        answer = answer if lost is None else lost
    return respond(answer)


async def _decided(groups: Groups, shard: GroupShard, group_id: str, begin: Begin[A]) -> A | Later[A]:
    """Raises KafkaError. COORDINATOR_LOAD_IN_PROGRESS, on which clients ask again: the group doesn't keep still."""
    for _ in range(MOST_TRIES):
        _check_leads(groups, shard, group_id)
        begun = begin(shard)
        if not isinstance(begun, Deferred):
            return begun
        await compute(begun.decide)
        _check_leads(groups, shard, group_id)
        answer: A | None = begun.settle()
        if answer is not None:
            return answer
    raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)


def _check_leads(groups: Groups, shard: GroupShard, group_id: str) -> None:
    """Raises KafkaError where the shard is of no use any more: what it knew is forgotten."""
    if groups.shard_of(group_id) is not shard:
        raise KafkaError(Error.NOT_COORDINATOR)
