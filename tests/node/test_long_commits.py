"""A commit of many offsets is one batch, as in Kafka. It is made ready in several turns of the loop, and written and
applied in one."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.handlers import HANDLERS
from broker.network import turns
from broker.network.context import RequestContext
from broker.network.dispatch import with_ports
from broker.server import Server
from coordinator.group.offsets.commit import STAGED_PER_TURN, Tombstones
from coordinator.group.records import CommittedOffset, OffsetKey, OffsetRecord
from protocol.errors import Error
from protocol.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records.batch import RecordsOfOneTime
from protocol.waiting import Later
from tests.node.transactional import CLIENT, Producer, ask, batches, coordinating
from tests.support.whole_server import take_turns

MANY = 5 * STAGED_PER_TURN
OFFSETS = "__consumer_offsets"


def offset_commit(partitions: Iterable[int] = range(MANY)) -> OffsetCommitRequest:
    wanted = [OffsetCommitRequestPartition(partition_index=index, committed_offset=7) for index in partitions]
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=wanted)])


def txn_offset_commit(producer: Producer) -> TxnOffsetCommitRequest:
    wanted = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="")
        for index in range(MANY)
    ]
    return TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        member_id="",
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=wanted)],
    )


def begun(node: Server, request: Any, version: int) -> Later[Any]:
    """Begin the request, and return its answer, which waits for turns."""
    api_key = type(request).API_KEY
    handler = importlib.import_module(f"broker.handlers.{HANDLERS[api_key]}")
    context = RequestContext(CLIENT, api_key, version, 1, "client")  # type: ignore[arg-type]
    later = with_ports(handler.handle, node)(context, request)
    assert isinstance(later, Later)
    return later


def turn_by_turn(node: Server, later: Later[Any]) -> Iterator[None]:
    while later.answer() is later:
        node.turns._take_turn()
        yield


def held(node: Server) -> int:
    return node.groups.shard_of("g").offsets.held("g")


def pending(node: Server) -> int:
    return len(node.groups.shard_of("g").offsets.unstable_partitions("g"))


def errors_of(answer: Any) -> list[Error]:
    return [Error(partition.error_code) for topic in answer.topics for partition in topic.partitions]


@pytest.mark.limit("coordinator.group.offsets.commit.STAGED_PER_TURN")
async def test_nobody_sees_half_of_an_offset_commit_of_many_partitions(
    tmp_path: Path,
) -> None:
    node = await coordinating(tmp_path, partitions=MANY)
    later = begun(node, offset_commit(), 9)
    seen = [held(node) for _ in turn_by_turn(node, later)]
    assert {*seen} == {0, MANY}
    assert len(seen) >= 2 * MANY // STAGED_PER_TURN - 1, "to be made ready, and to be answered"
    assert errors_of(later.result()) == [Error.NONE] * MANY
    assert [batch.records_count for batch in batches(node, OFFSETS)] == [MANY]


async def test_nobody_sees_half_of_a_txn_offset_commit_of_many_partitions(
    tmp_path: Path,
) -> None:
    node = await coordinating(tmp_path, partitions=MANY)
    producer = Producer(node).begin()
    later = begun(node, txn_offset_commit(producer), 5)
    assert {pending(node) for _ in turn_by_turn(node, later)} == {0, MANY}
    assert errors_of(later.result()) == [Error.NONE] * MANY
    [written] = batches(node, OFFSETS)
    assert (written.records_count, written.is_transactional) == (MANY, True)
    assert producer.end() is Error.NONE
    assert (held(node), pending(node)) == (MANY, 0)


async def test_the_group_is_looked_at_when_the_offsets_are_written(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, partitions=MANY)
    later = begun(node, offset_commit(), 9)
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    ask(node, join, 3)  # somebody who isn't a member may not commit any more
    take_turns(node)
    assert {*errors_of(later.result())} == {Error.UNKNOWN_MEMBER_ID}
    assert held(node) == 0


async def test_a_commit_that_is_begun_is_written_though_its_client_has_hung_up(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, partitions=MANY)
    begun(node, offset_commit(), 9).abandon()
    take_turns(node)
    assert held(node) == MANY


async def test_partitions_that_are_not_there_are_answered_with_the_rest_of_a_long_commit(
    tmp_path: Path,
) -> None:
    node = await coordinating(tmp_path, partitions=MANY)
    later = begun(node, offset_commit(range(2 * MANY)), 9)
    take_turns(node)
    [topic] = later.result().topics
    answered = {partition.partition_index: partition.error_code for partition in topic.partitions}
    missing = dict.fromkeys(range(MANY, 2 * MANY), Error.UNKNOWN_TOPIC_OR_PARTITION)
    assert answered == dict.fromkeys(range(MANY), Error.NONE) | missing
    assert held(node) == MANY


def offset_delete(partitions: Iterable[int]) -> OffsetDeleteRequest:
    wanted = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    return OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=wanted)])


async def with_offsets(tmp_path: Path, count: int, committed: Iterable[int]) -> Server:
    """Start a node that has committed offsets of a topic with this many partitions."""
    node = await coordinating(tmp_path, partitions=count)
    begun(node, offset_commit(committed), 9)
    take_turns(node)
    return node


async def test_an_offset_delete_of_many_partitions_is_one_batch_that_is_made_ready_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * turns.PER_TURN
    node = await with_offsets(tmp_path, count, range(count))
    before = len(batches(node, OFFSETS))
    encoded = [0]
    add = RecordsOfOneTime.add

    def counted(self: RecordsOfOneTime, key: bytes, value: bytes | None) -> None:
        encoded[-1] += 1
        add(self, key, value)

    monkeypatch.setattr(RecordsOfOneTime, "add", counted)
    later = begun(node, offset_delete(range(count)), 0)
    seen = []
    for _ in turn_by_turn(node, later):
        encoded.append(0)
        seen.append(held(node))
    assert {*seen} == {count, 0}
    assert (sum(encoded), max(encoded)) == (count, turns.PER_TURN)
    assert errors_of(later.result()) == [Error.NONE] * count
    assert [batch.records_count for batch in batches(node, OFFSETS)[before:]] == [count]


async def test_an_offset_delete_removes_the_offsets_there_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It doesn't matter what offsets there were when the deletion was made ready."""
    count = 2 * turns.PER_TURN
    node = await with_offsets(tmp_path, count, range(10, count))
    before = len(batches(node, OFFSETS))
    staged = []
    shard = node.groups.shard_of("g")
    stage = shard.stage_deletion

    def noted(tombstones: Tombstones, *which: Any) -> None:
        stage(tombstones, *which)
        staged.append(len(tombstones.encoded))

    monkeypatch.setattr(shard, "stage_deletion", noted)
    later = begun(node, offset_delete(range(count)), 0)
    while len(staged) < 2:
        node.turns._take_turn()
    commit = CommittedOffset(7, -1, "", 0)
    shard.journal.write(
        [OffsetRecord(OffsetKey("g", "t", 0), commit), OffsetRecord(OffsetKey("g", "t", 10), None)]
    )
    take_turns(node)
    assert staged == [turns.PER_TURN - 10, count - 10]
    assert errors_of(later.result()) == [Error.NONE] * count
    assert held(node) == 0
    assert [batch.records_count for batch in batches(node, OFFSETS)[before:]] == [2, count - 10]
