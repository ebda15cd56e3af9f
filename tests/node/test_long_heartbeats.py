"""Heartbeats of consumer and share groups that take long to decide: others are served meanwhile, and each has its
turn."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from broker.coordination.groups import OFFSETS_TOPIC
from broker.environment.threads import ComputingThreads
from broker.replicas.replica import Follower
from broker.server import Server
from coordinator.group.consumer import heartbeats as long_heartbeat
from coordinator.group.ports import MOST_TRIES
from coordinator.group.share import heartbeats as share_long_heartbeat
from protocol.errors import Error, KafkaError
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.messages.groups_share import ShareGroupHeartbeatRequest
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.waiting import at_once
from tests.node.admin_requests import create
from tests.node.computing import Held
from tests.node.replicated import without_a_controller
from tests.support.straight import Straight
from tests.support.whole_server import clock_of
from tests.support.wire import Client, Outcome

OTHER = 2


@pytest.fixture
async def held(node: Server, monkeypatch: pytest.MonkeyPatch) -> Held:
    """Have every decision count as a long one, and wait."""
    create(node, ("t", 3))
    await Client(Straight(node)).answer(FindCoordinatorRequest(key="g"), 3)
    monkeypatch.setattr(long_heartbeat, "MOST_IN_PASSING", -1)
    computing = Held()
    monkeypatch.setattr(node.turns, "_computing", computing)
    return computing


def join(member: str, group: str = "g", topic: str = "t") -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )


def beat(member: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=None,
        topic_partitions=None,
    )


def leave(member: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=-1)


def told(answer: Any) -> tuple[Error, int]:
    assert not isinstance(answer, Outcome)
    return Error(answer.message.error_code), answer.message.member_epoch


def end_of_offsets(node: Server) -> int:
    return sum(each.log.log_end_offset for each in node.partitions.by_name[OFFSETS_TOPIC].partitions.values())


async def test_heartbeats_of_one_group_take_turns_and_another_group_waits_for_none(
    node: Server, held: Held
) -> None:
    one, two, other = (Client(Straight(node)) for _ in range(3))
    first, second = one.send(join("one"), 1), two.send(join("two"), 1)
    assert len(held.waiting) == 1
    third = other.send(join("three", "another"), 1)
    assert len(held.waiting) == 2
    await held.let_go()
    assert told(one.receive(first)) == (Error.NONE, 2)
    assert two.receive(second, within_s=0) is Outcome.SILENCE
    await held.let_go()
    assert told(other.receive(third)) == (Error.NONE, 2)
    await held.let_go()
    assert told(two.receive(second)) == (Error.NONE, 2)  # the next assignment is due in a second
    assert node.groups.shard_of("g").groups.consumer["g"].epoch == 3
    assert not node.groups.undecided


async def test_heartbeats_of_a_share_group_take_turns_as_well(
    node: Server, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_long_heartbeat, "MOST_OF_SHARES_IN_PASSING", -1)
    one, two = Client(Straight(node)), Client(Straight(node))
    asked = [
        ShareGroupHeartbeatRequest(group_id="g", member_id=member, subscribed_topic_names=["t"])
        for member in ("one", "two")
    ]
    first, second = one.send(asked[0], 1), two.send(asked[1], 1)
    assert len(held.waiting) == 1
    before = end_of_offsets(node)
    held.compute()
    assert end_of_offsets(node) == before
    await held.let_go()
    assert told(one.receive(first)) == (Error.NONE, 2)
    assert two.receive(second, within_s=0) is Outcome.SILENCE
    while held.waiting:
        await held.let_go()  # anew, where states were initialized meanwhile
    assert told(two.receive(second))[0] is Error.NONE
    assert not node.groups.undecided
    assert {*node.groups.shard_of("g").groups.share["g"].members} == {"one", "two"}


async def test_a_client_that_hangs_up_is_skipped_and_nothing_is_written_for_it(
    node: Server, held: Held
) -> None:
    clients = [Client(Straight(node)) for _ in range(4)]
    sent = [client.send(join(f"m{number}"), 1) for number, client in enumerate(clients)]
    for gone in (0, 2):
        clients[gone].close()
    await asyncio.sleep(0)
    before = end_of_offsets(node)
    await held.let_go()  # the result for the first one is no longer of use
    assert end_of_offsets(node) == before
    await held.let_go()
    assert told(clients[1].receive(sent[1])) == (Error.NONE, 2)
    await held.let_go()
    assert told(clients[3].receive(sent[3])) == (Error.NONE, 2)
    assert not held.waiting
    assert not node.groups.undecided
    assert {*node.groups.shard_of("g").groups.consumer["g"].members} == {"m1", "m3"}


@pytest.mark.limit("coordinator.group.ports.MOST_TRIES")
async def test_a_decision_is_repeated_if_the_group_changes_meanwhile_but_not_forever(
    node: Server, held: Held
) -> None:
    one, two, coming = Client(Straight(node)), Client(Straight(node)), Client(Straight(node))
    sent = one.send(join("one"), 1)
    await held.let_go()
    one.receive(sent)
    sent = coming.send(join("coming"), 1)
    for _ in range(MOST_TRIES):
        assert coming.receive(sent, within_s=0) is Outcome.SILENCE
        node.groups.shard_of("g").topics_changed({"t"}, created=False)
        await held.let_go()
    assert told(coming.receive(sent))[0] is Error.COORDINATOR_LOAD_IN_PROGRESS
    sent = coming.send(join("coming"), 1)
    two.ask(leave("one"), 1)
    await held.let_go()
    await held.let_go()
    assert told(coming.receive(sent)) == (Error.NONE, 4), "the last leave was a target of its own"
    assert not node.groups.undecided


async def test_heartbeats_under_way_when_leadership_is_lost_are_sent_elsewhere(
    node: Server, held: Held
) -> None:
    one, two = Client(Straight(node)), Client(Straight(node))
    first, second = one.send(join("one"), 1), two.send(join("two"), 1)
    node.groups.unload()
    await held.let_go()
    assert told(one.receive(first))[0] is Error.NOT_COORDINATOR
    assert told(two.receive(second))[0] is Error.NOT_COORDINATOR
    assert not node.groups.undecided


async def test_a_topic_that_comes_while_its_subscriber_s_heartbeat_is_decided_is_assigned(
    node: Server, held: Held
) -> None:
    one = Client(Straight(node))
    sent = one.send(join("one", topic="u"), 1)
    await held.let_go()
    one.receive(sent)
    sent = one.send(beat("one", 2), 1)  # the first one of a new group looks at the topics once more
    await held.let_go()
    one.receive(sent)
    two = Client(Straight(node))
    clock_of(node).advance_ms(3000)  # an assignment is due, and another one after it
    sent = two.send(join("two", topic="v"), 1)
    held.compute()
    create(node, ("v", 3))
    await held.let_go()
    error, epoch = told(two.receive(sent))
    assert error is Error.NONE
    clock_of(node).advance_ms(3000)
    sent = two.send(beat("two", epoch), 1)
    if held.waiting:
        await held.let_go()
    two.receive(sent)
    member = node.groups.shard_of("g").groups.consumer["g"].members["two"]
    assert [sorted(partitions) for partitions in member.assigned.values()] == [[0, 1, 2]]


async def test_a_member_waiting_for_its_turn_is_not_fenced(node: Server, held: Held) -> None:
    one, two = Client(Straight(node)), Client(Straight(node))
    sent = one.send(join("one"), 1)
    await held.let_go()
    one.receive(sent)
    joining = two.send(join("two"), 1)
    waiting = one.send(beat("one", 2), 1)
    clock_of(node).advance_ms(100_000)  # two sessions
    node.timers.fire_due()
    await held.let_go()
    assert told(two.receive(joining))[0] is Error.NONE  # it was decided only once
    await held.let_go()
    assert told(one.receive(waiting))[0] is Error.NONE
    clock_of(node).advance_ms(1_000)
    node.timers.fire_due()
    assert {*node.groups.shard_of("g").groups.consumer["g"].members} == {"one", "two"}


async def test_a_member_that_hangs_up_while_it_waits_is_late_like_any_other(node: Server, held: Held) -> None:
    one, two = Client(Straight(node)), Client(Straight(node))
    sent = one.send(join("one"), 1)
    await held.let_go()
    one.receive(sent)
    two.send(join("two"), 1)
    one.send(beat("one", 2), 1)
    one.close()
    await asyncio.sleep(0)
    clock_of(node).advance_ms(100_000)
    node.timers.fire_due()
    assert not node.groups.shard_of("g").groups.consumer["g"].members


@pytest.mark.parametrize("waits", [False, True])
async def test_a_heartbeat_under_way_while_its_shard_is_reloaded_looks_for_it_again(
    node: Server, held: Held, waits: bool
) -> None:
    one, two = Client(Straight(node)), Client(Straight(node))
    sent = one.send(join("one"), 1)
    await held.let_go()
    one.receive(sent)
    if waits:
        two.send(join("two"), 1)
    sent = one.send(beat("one", 2), 1)
    shards = node.groups.hosted
    shards._give_up(node.groups.partition_of("g"))
    at_once(shards.follow())  # it is led here again at once
    while held.waiting:
        await held.let_go()
    assert told(one.receive(sent))[0] is Error.NOT_COORDINATOR
    sent = one.send(beat("one", 2), 1)
    await held.let_go()
    assert told(one.receive(sent)) == (Error.NONE, 2)
    assert not node.groups.undecided


async def test_only_awaited_decisions_wait_to_be_computed(
    node: Server, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    computing = ComputingThreads()
    monkeypatch.setattr(node.turns, "_computing", computing)
    begun, go_on = threading.Event(), threading.Event()
    computing(lambda: begun.set() or go_on.wait(), lambda value, error: None)
    await asyncio.to_thread(begun.wait)
    for number in range(100):
        client = Client(Straight(node))
        client.send(join(f"m{number}", group=f"g{number % 3}"), 1)
        assert sum(map(len, computing._long._waiting.values())) == 1
        client.close()
        await asyncio.sleep(0)
        assert not computing._long._waiting
    go_on.set()
    answer = await Client(Straight(node)).answer(join("one"), 1)
    assert answer.error_code == Error.NONE
    computing.stop()


async def test_a_change_lost_before_it_is_committed_is_not_answered_as_done(node: Server, held: Held) -> None:
    partition = node.partitions.get(OFFSETS_TOPIC, node.groups.partition_of("g"))
    leader = partition.leader()
    leader.begin_replication((bytes(16), 0), without_a_controller())
    leader.lead(leader.leader_epoch, 1, [node.node_id, OTHER], [node.node_id, OTHER])
    one = Client(Straight(node))
    sent = one.send(join("one"), 1)
    before = end_of_offsets(node)
    await held.let_go()
    assert end_of_offsets(node) > before
    assert one.receive(sent, within_s=0) is Outcome.SILENCE
    partition.role = Follower(partition.log, partition.waiting)
    leader.resign(KafkaError(Error.NOT_LEADER_OR_FOLLOWER))
    for _ in range(3):
        await asyncio.sleep(0)
    assert told(one.receive(sent))[0] is Error.NOT_COORDINATOR


async def test_a_decision_for_a_shard_that_is_given_up_has_no_effect(node: Server, held: Held) -> None:
    one = Client(Straight(node))
    sent = one.send(join("one", "new"), 1)
    node.groups.unload()
    timers = len(node.timers._queue)
    await held.let_go()
    assert told(one.receive(sent))[0] is Error.NOT_COORDINATOR
    assert len(node.timers._queue) == timers  # no session of a member that isn't there
