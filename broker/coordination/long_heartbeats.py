"""Heartbeats of consumer groups that are much to decide: beside the loop, one of a group at a time.

Others of the group that are much to decide wait, as all do at the queue of Kafka's partition; who has nothing to be
decided, who commits and who only looks doesn't.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from broker.network.later import Later
from coordinator.group.client import Client
from coordinator.group.consumer.long_heartbeat import DeferredHeartbeat
from protocol.errors import Error, KafkaError
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from broker.coordination.groups import Groups
    from broker.network.context import RequestContext
    from broker.network.turns import RequestSteps, Turns
    from coordinator.group.shard import GroupShard

R = TypeVar("R")

Respond = Callable[[ConsumerGroupHeartbeatResponse | KafkaError], R]

MOST_TRIES = 10
"""So often a decision is made anew since the group has changed meanwhile: members that left or were late, topics."""


class _MuchToDecideError(Exception):
    pass


def answer(
    groups: Groups,
    turns: Turns,
    context: RequestContext,
    client: Client,
    request: ConsumerGroupHeartbeatRequest,
    respond: Respond[R],
) -> R | Later[R]:
    """The handler's answer, which is what `respond` makes of the shard's. Nothing has happened where the client hangs
    up before a long one is decided."""

    def question(shard: GroupShard) -> ConsumerGroupHeartbeatResponse:
        answer = shard.consumer_heartbeat(client, request)
        if isinstance(answer, DeferredHeartbeat):
            raise _MuchToDecideError
        return answer

    try:
        return groups.answer(request.group_id, question, respond)
    except _MuchToDecideError:
        return turns.answer(_in_turn(groups, client, request, respond), context)


def _in_turn(
    groups: Groups, client: Client, request: ConsumerGroupHeartbeatRequest, respond: Respond[R]
) -> RequestSteps[R]:
    """Once it is its turn in the group. All of it is of the shard that is there as it begins: where the partition is
    given up meanwhile the answer is NOT_COORDINATOR, though it may be led here again by then."""
    group_id = request.group_id
    shard = groups.shard_of(group_id)  # which the same call has found before
    found: ConsumerGroupHeartbeatResponse | KafkaError
    place: Later[None] = Later()
    waiting = groups.deciding.get(group_id)
    is_first = waiting is None
    if waiting is None:
        waiting = groups.deciding[group_id] = deque()
    else:
        waiting.append(place)
    try:
        with shard.deciding(request):
            if not is_first:
                yield place
            found = yield from _decided(groups, shard, client, request)
    except KafkaError as error:
        found = error
    finally:
        if place in waiting:  # it has hung up before its turn came
            waiting.remove(place)
        elif waiting:
            waiting.popleft().reply(None)
        else:
            del groups.deciding[group_id]
    if not shard.gate.is_open:
        committed: Later[KafkaError | None] = Later()
        shard.gate.when_committed(committed.reply)
        lost = yield committed
        found = found if lost is None else lost
    return respond(found)


def _decided(
    groups: Groups, shard: GroupShard, client: Client, request: ConsumerGroupHeartbeatRequest
) -> RequestSteps[ConsumerGroupHeartbeatResponse]:
    """Raises KafkaError. COORDINATOR_LOAD_IN_PROGRESS, on which clients ask again: the group doesn't keep still."""
    for _ in range(MOST_TRIES):
        _check_leads(groups, shard, request.group_id)
        heartbeat = shard.consumer_heartbeat(client, request)
        if not isinstance(heartbeat, DeferredHeartbeat):
            return heartbeat
        yield heartbeat.decide
        _check_leads(groups, shard, request.group_id)
        answer = heartbeat.settle()
        if answer is not None:
            return answer
    raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)


def _check_leads(groups: Groups, shard: GroupShard, group_id: str) -> None:
    """Raises KafkaError where the shard is of no use any more: what it knew is forgotten."""
    if groups.shard_of(group_id) is not shard:
        raise KafkaError(Error.NOT_COORDINATOR)
