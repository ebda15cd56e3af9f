"""The group coordinators in a whole broker: how they come with their partitions, wait, and are loaded."""

from __future__ import annotations

import asyncio
import importlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.coordination.groups import OFFSETS_TOPIC
from broker.environment.scheduler import TURN_S, LoopScheduler, LoopTimers
from broker.handlers import HANDLERS
from broker.network.context import RequestContext
from broker.server import Server
from coordinator.group.offsets.commit import Committer, NewOffset, OffsetProducer
from protocol.errors import BrokenInvariantError, Error, KafkaError
from protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.topics import CreatableTopic, CreatePartitionsTopic
from protocol.records.batch import build_batch, build_end_txn_marker
from storage.log.log_state import AppendOrigin
from tests.support.answers import answered
from tests.support.manual_clock import ManualClock
from tests.support.staged_offsets import staged
from tests.support.topics import topics_of
from tests.support.whole_server import clock_of, handled, started

CLIENT = SimpleNamespace(listener=SimpleNamespace(name="PLAINTEXT"), peer_host="127.0.0.1")


def ask(node: Server, request: Any, version: int) -> Any:
    """Return the response, or a `Later` if it comes later."""
    api_key = type(request).API_KEY
    context = RequestContext(CLIENT, api_key, version, 1, "client")  # type: ignore[arg-type]
    handler = importlib.import_module(f"broker.handlers.{HANDLERS[api_key]}")
    return handled(node, handler, context, request)


def find(node: Server, group: str = "g") -> Any:
    return ask(node, FindCoordinatorRequest(key=group), 3)


def join(node: Server, member_id: str = "", version: int = 3) -> Any:
    request = JoinGroupRequest(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    return ask(node, request, version)


async def stable(node: Server) -> str:
    """Make a stable group of one member. Returns its member id."""
    joined = await answered(join(node))
    assert joined.error_code == Error.NONE
    member_id: str = joined.member_id
    assignments = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")]
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=assignments)
    assert ask(node, request, 3).assignment == b"all"
    return member_id


def heartbeat(node: Server, member_id: str) -> Error:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    return Error(ask(node, request, 3).error_code)


def commit(node: Server, offset: int, group: str = "g") -> None:
    new = NewOffset("t", bytes(16), 0, offset, -1, "")
    shard = node.groups.shard_of(group)
    shard.commit_offsets(Committer(group), staged(shard, group, [new]), api_version=9)


def committed(node: Server, group: str = "g") -> int:
    found = node.groups.shard_of(group).offsets.of_group(group).get("t", {}).get(0)
    return -1 if found is None else found.offset


async def test_the_first_question_for_a_coordinator_is_answered_at_once(tmp_path: Path) -> None:
    node = await started(tmp_path, "offsets.topic.num.partitions=3")

    answer = find(node)

    assert (answer.error_code, answer.node_id, answer.error_message) == (Error.NONE, node.node_id, "NONE")
    assert len(node.partitions.by_name[OFFSETS_TOPIC].partitions) == 3
    assert join(node, version=4).error_code == Error.MEMBER_ID_REQUIRED


async def test_without_its_topic_no_group_is_coordinated_here(node: Server) -> None:
    assert join(node).error_code == Error.NOT_COORDINATOR
    assert ask(node, ListGroupsRequest(), 4).groups == []


async def test_a_join_waits_for_its_rebalance_and_a_sync_for_the_leader(node: Server) -> None:
    find(node)
    first = await stable(node)

    second = asyncio.ensure_future(answered(join(node)))
    await asyncio.sleep(0)
    assert not second.done()
    assert heartbeat(node, first) is Error.REBALANCE_IN_PROGRESS
    assert join(node, first).error_code == Error.NONE
    joined = await second

    followers = SyncGroupRequest(group_id="g", generation_id=2, member_id=joined.member_id)
    waiting = asyncio.ensure_future(answered(ask(node, followers, 3)))
    await asyncio.sleep(0)
    assert not waiting.done()
    leaders = SyncGroupRequest(group_id="g", generation_id=2, member_id=first)
    assert ask(node, leaders, 3).error_code == Error.NONE
    assert (await waiting).error_code == Error.NONE


async def test_an_answer_to_a_client_that_hung_up_is_dropped(node: Server) -> None:
    find(node)
    first = await stable(node)
    second = join(node)
    second.abandon()

    assert join(node, first).error_code == Error.NONE
    assert len(node.groups.shard_of("g").groups.classic["g"].members) == 2


async def test_a_session_ends_by_the_servers_clock(node: Server) -> None:
    find(node)
    member_id = await stable(node)

    clock_of(node).advance_ms(9_999)
    node.timers.fire_due()
    assert heartbeat(node, member_id) is Error.NONE
    clock_of(node).advance_ms(10_000)
    node.timers.fire_due()
    assert heartbeat(node, member_id) is Error.UNKNOWN_MEMBER_ID


async def test_groups_survive_a_restart(tmp_path: Path) -> None:
    node = await started(tmp_path)
    find(node)
    member_id = await stable(node)
    commit(node, 7, "other")
    await node.stop()

    again = await started(tmp_path)

    assert heartbeat(again, member_id) is Error.NONE
    assert committed(again, "other") == 7


async def test_offsets_of_transactions_are_replayed_with_their_markers(tmp_path: Path) -> None:
    node = await started(tmp_path, "offsets.topic.num.partitions=1")
    find(node)
    new = [NewOffset("t", bytes(16), 0, 8, -1, "")]
    partition = node.partitions.get(OFFSETS_TOPIC, 0)
    for producer_id in (1, 2, 3):
        guard = partition.log.start_verification(producer_id, -1, 0, False, 1)
        shard = node.groups.shard_of("g")
        group_id = f"g{producer_id}"
        shard.commit_offsets_in_transaction(
            Committer(group_id),
            staged(shard, group_id, new),
            OffsetProducer(producer_id, 0, guard),
            api_version=5,
        )
    for producer_id, control_type in ((1, 1), (2, 0)):
        marker = build_end_txn_marker(
            control_type, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=1
        )
        partition.log.append(
            marker, leader_epoch=partition.leader_epoch, now_ms=1, origin=AppendOrigin.COORDINATOR
        )
    await node.stop()

    again = await started(tmp_path)

    assert [committed(again, f"g{producer_id}") for producer_id in (1, 2, 3)] == [8, -1, -1]
    store = again.groups.shard_of("g").offsets
    assert [store.has_open_transaction(f"g{producer_id}") for producer_id in (1, 2, 3)] == [
        False,
        False,
        True,
    ]


async def test_a_topic_that_is_deleted_takes_its_offsets_along(node: Server) -> None:
    find(node)
    topics_of(node).create([CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    commit(node, 7)

    topics_of(node).delete([node.metadata.image.topics["t"]])

    assert committed(node) == -1


async def test_without_its_topic_a_coordinator_refuses_everybody(node: Server) -> None:
    find(node)
    await stable(node)
    parked = join(node)

    topics_of(node).delete([node.metadata.image.topics[OFFSETS_TOPIC]])

    assert (await answered(parked)).error_code == Error.NOT_COORDINATOR
    assert join(node).error_code == Error.NOT_COORDINATOR
    assert find(node).error_code == Error.NONE
    assert ask(node, ListGroupsRequest(), 4).groups == [], "a new topic, without the old groups"


async def test_partitions_that_are_added_do_not_move_any_group(tmp_path: Path) -> None:
    node = await started(tmp_path, "offsets.topic.num.partitions=2")
    find(node)
    names = [f"g{number}" for number in range(20)]
    for name in names:
        commit(node, 7, name)

    topics_of(node).add_partitions([CreatePartitionsTopic(name=OFFSETS_TOPIC, count=7, assignments=None)])

    assert [committed(node, name) for name in names] == [7] * 20


async def test_a_partition_that_can_not_be_read_has_no_coordinator(tmp_path: Path) -> None:
    node = await started(tmp_path, "offsets.topic.num.partitions=1")
    find(node)
    partition = node.partitions.get(OFFSETS_TOPIC, 0)
    unknown_version = build_batch([(1, b"\0\2\0\1g", b"\0\x63", ())])
    partition.log.append(
        unknown_version, leader_epoch=partition.leader_epoch, now_ms=1, origin=AppendOrigin.COORDINATOR
    )
    await node.stop()

    again = await started(tmp_path)

    assert join(again).error_code == Error.NOT_COORDINATOR
    assert heartbeat(again, "me") is Error.NOT_COORDINATOR
    listed = ask(again, ListGroupsRequest(), 4)
    assert (listed.error_code, listed.groups) == (Error.NONE, []), "as in Kafka"


async def test_a_commit_larger_than_a_batch_may_be_is_refused_as_a_whole(tmp_path: Path) -> None:
    node = await started(tmp_path, "offset.metadata.max.bytes=4096")
    find(node)
    offsets = [NewOffset("t", bytes(16), index, 1, -1, "m" * 4000) for index in range(300)]

    shard = node.groups.shard_of("g")
    too_many = staged(shard, "g", offsets)
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
        shard.commit_offsets(Committer("g"), too_many, api_version=9)

    assert committed(node) == -1
    assert node.groups.shard_of("g").groups.classic == {}


# --- timers -------------------------------------------------------------------------------------------------


async def test_timers_fire_on_the_loop_when_they_are_due() -> None:
    clock = ManualClock()
    timers = LoopTimers(clock, LoopScheduler(), lambda error: None)
    fired = asyncio.Event()

    timers.schedule("a", 0, fired.set)
    await asyncio.wait_for(fired.wait(), 10)
    timers.stop()


async def test_a_timer_that_fails_stops_no_other() -> None:
    clock = ManualClock()
    failures: list[BaseException] = []
    timers = LoopTimers(clock, LoopScheduler(), failures.append)
    fired: list[str] = []

    def fail() -> None:
        raise ValueError("no")

    timers.schedule("a", 10, fail)
    timers.schedule("b", 20, lambda: fired.append("b"))
    clock.advance_ms(30)
    timers.fire_due()

    assert (fired, failures) == (["b"], [])
    timers.stop()


async def test_timers_that_are_due_together_and_take_long_let_others_in_between() -> None:
    clock = ManualClock()
    timers = LoopTimers(clock, LoopScheduler(), lambda error: None)
    heard: list[str] = []

    def slow(name: str) -> None:
        heard.append(name)
        clock.advance_ms(int(TURN_S * 1000) + 1)
        asyncio.get_running_loop().call_soon(heard.append, "another")

    for name in ("a", "b", "c"):
        timers.schedule(name, 10, partial(slow, name))
    clock.advance_ms(10)
    timers.fire_due()
    while heard.count("another") < 3:
        await asyncio.sleep(0)
    assert heard == ["a", "another", "b", "another", "c", "another"]
    timers.stop()


@pytest.mark.parametrize("error", [AssertionError("broken"), BrokenInvariantError("broken")])
async def test_a_broken_invariant_in_a_timer_is_reported(error: Exception) -> None:
    clock = ManualClock()
    failures: list[BaseException] = []
    timers = LoopTimers(clock, LoopScheduler(), failures.append)

    def fail() -> None:
        raise error

    timers.schedule("a", 10, fail)
    clock.advance_ms(10)
    timers.fire_due()

    assert failures == [error]
    timers.stop()
