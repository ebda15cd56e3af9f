"""Classic groups whose migration to the consumer protocol takes long to decide: others are served meanwhile."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from broker.server import Server
from coordinator.group.classic.group import ClassicGroup
from coordinator.group.consumer import heartbeats as long_heartbeat
from protocol.errors import Error
from protocol.messages.groups import (
    HeartbeatRequest,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.waiting import at_once
from tests.node.admin_requests import create
from tests.node.computing import Held
from tests.node.test_long_heartbeats import end_of_offsets, join, told
from tests.node.test_long_joins import classic
from tests.support.straight import Straight
from tests.support.wire import Client, Outcome


class Old(NamedTuple):
    """A stable classic group of one member, and that member's id. From then on every decision counts as a long one, and
    waits."""

    member: str
    held: Held


@pytest.fixture
async def old(node: Server, monkeypatch: pytest.MonkeyPatch) -> Old:
    create(node, ("t", 3))
    client = Client(Straight(node))
    await client.answer(FindCoordinatorRequest(key="g"), 3)
    member = (await client.answer(classic(), 3)).member_id
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member)
    assert (await client.answer(request, 3)).error_code == Error.NONE
    monkeypatch.setattr(long_heartbeat, "MOST_IN_PASSING", -1)
    held = Held()
    monkeypatch.setattr(node.turns, "_computing", held)
    return Old(member, held)


def group_of(node: Server) -> ClassicGroup:
    return node.groups.shard_of("g").groups.classic["g"]


async def lives(member: str, node: Server) -> Error:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    answer = await Client(Straight(node)).answer(request, 3)
    return Error(answer.error_code)


async def test_members_of_the_classic_group_are_served_meanwhile(node: Server, old: Old) -> None:
    client, waiting = Client(Straight(node)), Client(Straight(node))
    parked = waiting.send(classic(), 3)
    before = end_of_offsets(node)
    sent = client.send(join("new"), 1)
    assert await lives(old.member, node) is Error.REBALANCE_IN_PROGRESS  # the classic group's
    assert client.receive(sent, within_s=0) is Outcome.SILENCE
    assert waiting.receive(parked, within_s=0) is Outcome.SILENCE
    assert end_of_offsets(node) == before
    await old.held.let_go()
    assert told(client.receive(sent)) == (Error.NONE, 2)
    answer = waiting.receive(parked)
    assert not isinstance(answer, Outcome)
    assert answer.message.error_code == Error.REBALANCE_IN_PROGRESS
    group = node.groups.shard_of("g").groups.consumer["g"]
    assert {*group.members} == {old.member, answer.message.member_id, "new"}
    assert not node.groups.undecided


async def test_a_migration_is_decided_again_if_a_member_leaves_meanwhile(node: Server, old: Old) -> None:
    client, other = Client(Straight(node)), Client(Straight(node))
    sent = client.send(join("new"), 1)
    leaving = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=old.member)])
    await other.answer(leaving, 4)
    await old.held.let_go()
    assert client.receive(sent, within_s=0) is Outcome.SILENCE
    await old.held.let_go()
    assert told(client.receive(sent)) == (Error.NONE, 2)
    assert {*node.groups.shard_of("g").groups.consumer["g"].members} == {"new"}


async def test_the_second_of_two_migrations_joins_the_consumer_group(node: Server, old: Old) -> None:
    one, two = Client(Straight(node)), Client(Straight(node))
    first, second = one.send(join("one"), 1), two.send(join("two"), 1)
    assert len(old.held.waiting) == 1
    await old.held.let_go()
    assert told(one.receive(first)) == (Error.NONE, 2)
    await old.held.let_go()
    assert told(two.receive(second))[0] is Error.NONE
    assert {*node.groups.shard_of("g").groups.consumer["g"].members} == {old.member, "one", "two"}
    assert not node.groups.undecided


async def test_a_group_stays_a_classic_one_where_the_client_hangs_up(node: Server, old: Old) -> None:
    client = Client(Straight(node))
    before, timers = end_of_offsets(node), len(node.timers._queue)
    client.send(join("new"), 1)
    client.close()
    await asyncio.sleep(0)
    await old.held.let_go()
    assert (end_of_offsets(node), len(node.timers._queue)) == (before, timers)
    assert await lives(old.member, node) is Error.NONE
    assert [*group_of(node).members] == [old.member]
    assert not node.groups.undecided


@pytest.mark.parametrize("is_led_again", [False, True])
async def test_a_decision_has_no_effect_if_the_shard_is_given_up(
    node: Server, old: Old, is_led_again: bool
) -> None:
    client, waiting = Client(Straight(node)), Client(Straight(node))
    parked, sent = waiting.send(classic(), 3), client.send(join("new"), 1)
    before = end_of_offsets(node)
    if is_led_again:
        shards = node.groups.hosted
        shards._give_up(node.groups.partition_of("g"))
        at_once(shards.follow())
    else:
        node.groups.unload()
    await old.held.let_go()
    assert told(client.receive(sent))[0] is Error.NOT_COORDINATOR
    answer = waiting.receive(parked)
    assert not isinstance(answer, Outcome)
    assert answer.message.error_code == Error.NOT_COORDINATOR
    assert end_of_offsets(node) == before
    if is_led_again:
        assert [*group_of(node).members] == [old.member]
    assert not node.groups.undecided
