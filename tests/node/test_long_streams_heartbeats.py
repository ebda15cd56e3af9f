"""Heartbeats of streams groups that take long to decide: others are served meanwhile, and each has its turn."""

from __future__ import annotations

from typing import Any

import pytest

from broker.server import Server
from coordinator.group.streams import heartbeats as long_heartbeat
from protocol.errors import Error
from protocol.messages.groups_streams import StreamsGroupHeartbeatRequest, Subtopology, Topology
from protocol.messages.metadata import FindCoordinatorRequest
from tests.node.admin_requests import create
from tests.node.computing import Held
from tests.support.straight import Straight
from tests.support.whole_server import clock_of
from tests.support.wire import Client, Outcome


@pytest.fixture
async def held(node: Server, monkeypatch: pytest.MonkeyPatch) -> Held:
    """Have every decision count as a long one, and wait."""
    create(node, ("t", 3))
    await Client(Straight(node)).answer(FindCoordinatorRequest(key="g"), 3)
    monkeypatch.setattr(long_heartbeat, "MOST_DECIDED_IN_PASSING", -1)
    computing = Held()
    monkeypatch.setattr(node.turns, "_computing", computing)
    return computing


def join(member: str, group: str = "g") -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        rebalance_timeout_ms=60_000,
        topology=Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=["t"])]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=member,
    )


def told(answer: Any) -> tuple[Error, int]:
    assert not isinstance(answer, Outcome)
    return Error(answer.message.error_code), answer.message.member_epoch


async def test_heartbeats_of_one_streams_group_take_turns_and_another_group_waits_for_none(
    node: Server, held: Held
) -> None:
    one, two, other = (Client(Straight(node)) for _ in range(3))
    first, second = one.send(join("one"), 0), two.send(join("two"), 0)
    assert len(held.waiting) == 1
    third = other.send(join("three", "another"), 0)
    assert len(held.waiting) == 2
    await held.let_go()
    assert told(one.receive(first)) == (Error.NONE, 2)
    assert two.receive(second, within_s=0) is Outcome.SILENCE
    await held.let_go()
    assert told(other.receive(third)) == (Error.NONE, 2)
    clock_of(node).advance_ms(1_000)
    await held.let_go()
    assert told(two.receive(second)) == (Error.NONE, 3)
    assert node.groups.shard_of("g").groups.streams["g"].epoch == 3
    assert not node.groups.undecided


async def test_a_client_that_hangs_up_meanwhile_has_not_joined(node: Server, held: Held) -> None:
    client = Client(Straight(node))
    client.send(join("one"), 0)
    client.close()
    await held.let_go()
    assert node.groups.shard_of("g").groups.streams == {}
    assert not node.groups.undecided
