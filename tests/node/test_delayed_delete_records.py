"""DeleteRecords of a partition with other replicas: when it is answered, and with which low watermark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.server import Server
from protocol.errors import Error
from protocol.messages.metadata_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.waiting import Later
from tests.node.replicated import LONG_MS, NOT_LEADER, OTHER, change, leader_of, produce, replicated
from tests.node.transactional import ask
from tests.support.answers import answered
from tests.support.partition_logs import append, batch
from tests.support.submitting import ask_controller
from tests.support.whole_server import crash, take_turns

EPOCH = 7


async def followed(folder: Path) -> Server:
    """Start a node that leads a partition of three records, all of which the other replica has."""
    node = await replicated(folder)
    node.metadata.append([RegisterBrokerRecord(broker_id=OTHER, broker_epoch=EPOCH, fenced=False)])
    for _ in range(3):
        produce(node, acks=1)
    follow(node, 0)
    return node


def follow(node: Server, log_start_offset: int) -> None:
    leader_of(node).follower_fetched(OTHER, 3, log_start_offset, EPOCH)


def delete(node: Server, offset: int, timeout_ms: int = LONG_MS) -> Any:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
    return ask(node, DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), 2)


def result(response: Any) -> tuple[Error, int]:
    [topic] = response.topics
    [partition] = topic.partitions
    return Error(partition.error_code), partition.low_watermark


async def test_a_request_waits_until_the_other_replicas_begin_there(tmp_path: Path) -> None:
    node = await followed(tmp_path)
    deleted = delete(node, 2)
    assert leader_of(node).log.log_start_offset == 2
    follow(node, 1)
    assert isinstance(deleted.answer(), Later)
    follow(node, 2)
    take_turns(node)
    assert result(deleted.answer()) == (Error.NONE, 2)
    crash(node)


@pytest.mark.parametrize("offset", [0, 2])
async def test_records_that_are_gone_everywhere_are_not_waited_for(tmp_path: Path, offset: int) -> None:
    node = await followed(tmp_path)
    leader_of(node).log.delete_records_before(2)
    follow(node, 2)
    assert result(delete(node, offset)) == (Error.NONE, 2)
    crash(node)


async def test_a_broker_that_is_fenced_does_not_count(tmp_path: Path) -> None:
    node = await followed(tmp_path)
    fenced = BrokerRegistrationChangeRecord(broker_id=OTHER, broker_epoch=EPOCH, fenced=1)
    node.metadata.append([fenced])
    assert result(delete(node, 2)) == (Error.NONE, 2)
    crash(node)


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_a_timeout_of_zero_is_answered_with_the_old_low_watermark(
    tmp_path: Path, timeout_ms: int
) -> None:
    node = await followed(tmp_path)
    assert result(await answered(delete(node, 2, timeout_ms))) == (Error.REQUEST_TIMED_OUT, 0)
    follow(node, 2)
    assert result(delete(node, 2)) == (Error.NONE, 2)
    crash(node)


async def test_a_loss_of_leadership_answers_the_request(tmp_path: Path) -> None:
    node = await followed(tmp_path)
    deleted = delete(node, 2)
    change(node, leader=OTHER)
    take_turns(node)
    assert result(deleted.answer()) == (NOT_LEADER, -1)
    crash(node)


async def test_a_client_that_hangs_up_leaves_nothing_behind(tmp_path: Path) -> None:
    node = await followed(tmp_path)
    deleted = delete(node, 2)
    deleted.abandon()
    follow(node, 2)
    assert result(delete(node, 2)) == (Error.NONE, 2)
    crash(node)


async def test_partitions_of_one_request_are_waited_for_together(tmp_path: Path) -> None:
    """That holds for any number of partitions. No partition keeps its records because another one's replica has fallen
    silent."""
    node = await followed(tmp_path)
    names = [f"t{number}" for number in range(300)]
    await with_topics(node, names)
    topics = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
        for name in ("t", *names)
    ]
    deleted = ask(node, DeleteRecordsRequest(topics=topics, timeout_ms=LONG_MS), 2)
    take_turns(node)
    assert isinstance(deleted.answer(), Later)
    for name in names:
        assert node.partitions.get(name, 0).log.log_start_offset == 1
    follow(node, 1)
    take_turns(node)
    assert {each.partitions[0].error_code for each in deleted.answer().topics} == {0}
    crash(node)


async def with_topics(node: Server, names: list[str]) -> None:
    """Create topics with one record each, and no other replicas."""
    here = [CreatableReplicaAssignment(partition_index=0, broker_ids=[node.config.node_id])]
    wanted = [
        CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=here)
        for name in names
    ]
    told: list[Any] = []
    ask_controller(node.controller, node.topics.create(wanted), told.append)
    take_turns(node)
    assert told
    for name in names:
        leader = node.partitions.get(name, 0).leader()
        append(leader.log, batch())
        leader.log.update_high_watermark(1)
