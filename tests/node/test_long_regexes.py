"""Regular expressions of consumer groups that have matched many topics: the consequences are decided beside the
loop."""

from __future__ import annotations

import logging

import pytest

from broker.environment.threads import ComputingThreads
from broker.server import Server
from coordinator.group.consumer import heartbeats as long_heartbeat
from coordinator.group.consumer import regexes as regex_results
from coordinator.group.consumer.group import ConsumerGroup
from protocol.errors import BrokenInvariantError, Error
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.waiting import at_once
from tests.node.admin_requests import create
from tests.node.compacted import until
from tests.node.computing import Held
from tests.node.test_long_heartbeats import end_of_offsets, told
from tests.support.straight import Straight
from tests.support.whole_server import clock_of
from tests.support.wire import Client, Outcome


@pytest.fixture
async def held(node: Server, monkeypatch: pytest.MonkeyPatch) -> Held:
    """Have every match of an expression count as a large one, and wait to be decided."""
    create(node, ("t1", 3))
    create(node, ("t2", 3))
    await Client(Straight(node)).answer(FindCoordinatorRequest(key="g"), 3)
    monkeypatch.setattr(regex_results, "MOST_RECORDED_IN_PASSING", -1)
    computing = Held()
    monkeypatch.setattr(node.turns, "_computing", computing)
    return computing


def join(member: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[],
        subscribed_topic_regex="t.",
        topic_partitions=[],
    )


async def matched(node: Server) -> None:
    """Have a member join, and wait until the matches of its expression are known."""
    assert (await Client(Straight(node)).answer(join("one"), 1)).error_code == Error.NONE
    for _ in range(3):
        clock_of(node).advance_ms(1)
        node.timers.fire_due()


def group_of(node: Server) -> ConsumerGroup:
    return node.groups.shard_of("g").groups.consumer["g"]


def recorded(node: Server) -> dict[str, list[str]]:
    return {regex: sorted(resolved.topics) for regex, resolved in group_of(node).resolved.items()}


async def test_others_are_served_while_it_is_decided(node: Server, held: Held) -> None:
    await matched(node)
    assert len(held.waiting) == 1
    before = end_of_offsets(node)
    assert (await Client(Straight(node)).answer(FindCoordinatorRequest(key="g"), 3)).error_code == Error.NONE
    assert (end_of_offsets(node), recorded(node)) == (before, {})
    await held.let_go()
    assert recorded(node) == {"t.": ["t1", "t2"]}
    assert end_of_offsets(node) == before + 2  # the expression, and the group's next epoch
    assert not node.groups.undecided
    assert not node.groups.unasked


async def test_heartbeats_that_are_long_wait_for_it_and_it_for_them(
    node: Server, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_heartbeat, "MOST_IN_PASSING", -1)
    one, two, three = (Client(Straight(node)) for _ in range(3))
    first, second = one.send(join("one"), 1), two.send(join("two"), 1)
    await held.let_go()
    assert told(one.receive(first))[0] is Error.NONE
    for _ in range(3):  # the expression is matched while the second one is decided
        clock_of(node).advance_ms(1)
        node.timers.fire_due()
    third = three.send(join("three"), 1)
    assert len(held.waiting) == 1
    await held.let_go()
    assert told(two.receive(second))[0] is Error.NONE
    assert recorded(node) == {}
    assert len(held.waiting) == 1
    await held.let_go()
    assert recorded(node) == {"t.": ["t1", "t2"]}
    assert three.receive(third, within_s=0) is Outcome.SILENCE
    await held.let_go()
    assert told(three.receive(third))[0] is Error.NONE
    assert not held.waiting
    assert not node.groups.undecided


async def test_an_expression_is_decided_again_if_the_group_changes_meanwhile(
    node: Server, held: Held
) -> None:
    await matched(node)
    held.compute()
    assert (await Client(Straight(node)).answer(join("two"), 1)).error_code == Error.NONE
    await held.let_go()
    assert recorded(node) == {}
    await held.let_go()
    assert recorded(node) == {"t.": ["t1", "t2"]}
    assert {*group_of(node).members} == {"one", "two"}


@pytest.mark.parametrize("comes_back", [False, True])
async def test_an_expression_has_no_effect_if_its_shard_is_given_up_meanwhile(
    node: Server, held: Held, comes_back: bool
) -> None:
    await matched(node)
    before = end_of_offsets(node)
    shards = node.groups.hosted
    shards._give_up(node.groups.partition_of("g"))
    if comes_back:
        at_once(shards.follow())
    await held.let_go()
    assert end_of_offsets(node) == before
    assert not held.waiting
    assert not node.groups.undecided
    if comes_back:
        assert recorded(node) == {}
        clock_of(node).advance_ms(1)
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="one", member_epoch=1, subscribed_topic_names=None, topic_partitions=None
        )
        assert (await Client(Straight(node)).answer(request, 1)).error_code == Error.NONE
        for _ in range(3):
            clock_of(node).advance_ms(1)
            node.timers.fire_due()
        await held.let_go()
        assert recorded(node) == {"t.": ["t1", "t2"]}


async def test_a_stop_waits_for_none_of_it(node: Server, held: Held) -> None:
    await matched(node)
    waiting = [*held.waiting]
    await node.stop()
    assert not node.groups.undecided
    assert not node.groups.unasked
    (compute, then), *_ = waiting
    then(compute(), None)  # too late


async def test_an_unforeseen_error_is_logged_and_a_broken_invariant_stops_the_node(
    node: Server, held: Held, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopped: list[BaseException] = []
    monkeypatch.setattr(node.faults, "stop_on_failure", stopped.append)
    error = BrokenInvariantError("it can't be")

    def fail(*_: object) -> None:
        raise error

    await matched(node)
    with monkeypatch.context() as broken:
        broken.setattr(regex_results, "regex_record", fail)
        await held.let_go()
    assert stopped == [error]
    assert [record.levelno for record in caplog.records if "is lost" in record.getMessage()] == [
        logging.ERROR
    ]
    assert not node.groups.undecided
    assert not node.groups.shard_of("g").regexes.resolving


async def test_threads_decide_it(node: Server, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    computing = ComputingThreads()
    monkeypatch.setattr(node.turns, "_computing", computing)
    await matched(node)
    await until(lambda: not node.groups.undecided)
    assert recorded(node) == {"t.": ["t1", "t2"]}
    computing.stop()
