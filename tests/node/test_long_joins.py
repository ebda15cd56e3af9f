"""If a member of the classic protocol joins a consumer group and that takes long to decide, it is decided beside the
loop."""

from __future__ import annotations

from typing import Any

import pytest

from broker.server import Server
from coordinator.group.consumer import heartbeats as long_heartbeat
from protocol.errors import Error
from protocol.messages.groups import (
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
)
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.wire.codec import encode
from tests.node.admin_requests import create
from tests.node.computing import Held
from tests.node.test_long_heartbeats import end_of_offsets, join, leave, told
from tests.support.straight import Straight
from tests.support.whole_server import clock_of
from tests.support.wire import Client, Outcome

SUBSCRIPTION = b"\0\1" + encode(ConsumerProtocolSubscription(topics=["t"]), 1)


@pytest.fixture
async def held(node: Server, monkeypatch: pytest.MonkeyPatch) -> Held:
    """Make a consumer group of one member. From then on every decision counts as a long one, and waits."""
    create(node, ("t", 3))
    client = Client(Straight(node))
    await client.answer(FindCoordinatorRequest(key="g"), 3)
    assert (await client.answer(join("one"), 1)).error_code == Error.NONE
    monkeypatch.setattr(long_heartbeat, "MOST_IN_PASSING", -1)
    computing = Held()
    monkeypatch.setattr(node.turns, "_computing", computing)
    return computing


def classic() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )


def joined(answer: Any) -> tuple[str, int]:
    """Return the member id and the generation."""
    assert not isinstance(answer, Outcome)
    assert answer.message.error_code == Error.NONE
    return answer.message.member_id, answer.message.generation_id


async def test_others_are_served_while_a_join_is_decided(node: Server, held: Held) -> None:
    client, other = Client(Straight(node)), Client(Straight(node))
    before = end_of_offsets(node)
    sent = client.send(classic(), 3)
    assert len(held.waiting) == 1
    assert await other.answer(FindCoordinatorRequest(key="g"), 3)
    assert end_of_offsets(node) == before
    assert {*node.groups.shard_of("g").groups.consumer["g"].members} == {"one"}
    await held.let_go()
    member, generation = joined(client.receive(sent))
    group = node.groups.shard_of("g").groups.consumer["g"]
    assert {*group.members} == {"one", member}
    assert group.members[member].epoch == generation
    synced = await client.answer(
        SyncGroupRequest(group_id="g", generation_id=generation, member_id=member), 3
    )
    assert synced.error_code == Error.NONE
    heartbeat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
    assert (await client.answer(heartbeat, 3)).error_code == Error.NONE
    assert not node.groups.undecided


async def test_joins_and_heartbeats_of_a_group_take_turns(node: Server, held: Held) -> None:
    one, two = Client(Straight(node)), Client(Straight(node))
    first, second = one.send(classic(), 3), two.send(join("two"), 1)
    assert len(held.waiting) == 1
    await held.let_go()
    member, _ = joined(one.receive(first))
    await held.let_go()
    assert told(two.receive(second))[0] is Error.NONE
    assert {*node.groups.shard_of("g").groups.consumer["g"].members} == {"one", member, "two"}
    assert not node.groups.undecided


async def test_a_member_that_hangs_up_before_the_decision_has_not_joined(node: Server, held: Held) -> None:
    client = Client(Straight(node))
    before = end_of_offsets(node)
    client.send(classic(), 3)
    client.close()
    await held.let_go()
    assert end_of_offsets(node) == before
    assert {*node.groups.shard_of("g").groups.consumer["g"].members} == {"one"}
    assert not node.groups.undecided


async def test_a_group_that_is_empty_by_then_is_joined_as_a_classic_one(node: Server, held: Held) -> None:
    client, other = Client(Straight(node)), Client(Straight(node))
    sent = client.send(classic(), 3)
    assert (await other.answer(leave("one"), 1)).error_code == Error.NONE
    await held.let_go()
    member, generation = joined(client.receive(sent))
    assert generation == 1
    assert [*node.groups.shard_of("g").groups.classic["g"].members] == [member]
    assert not node.groups.undecided


async def test_a_static_member_is_not_late_while_its_own_return_is_decided(node: Server, held: Held) -> None:
    client, again = Client(Straight(node)), Client(Straight(node))
    request = classic()
    request.group_instance_id = "instance"
    sent = client.send(request, 5)
    await held.let_go()
    owner, _ = joined(client.receive(sent))
    sent = again.send(request, 5)
    clock_of(node).advance_ms(30_000)
    node.timers.fire_due()
    assert owner in node.groups.shard_of("g").groups.consumer["g"].members
    await held.let_go()
    member, _ = joined(again.receive(sent))
    group = node.groups.shard_of("g").groups.consumer["g"]
    assert group.static_members["instance"] == member
    assert owner not in group.members
    assert not node.groups.undecided


async def test_a_refused_member_waits_for_nobody(node: Server, held: Held) -> None:
    request = classic()
    request.protocol_type = "connect"
    answer = await Client(Straight(node)).answer(request, 3)
    assert answer.error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert not held.waiting
