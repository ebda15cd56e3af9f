"""The share coordinators in a whole broker: how they come with their partitions, what they are asked, how they load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.coordination.share_states import SHARE_STATE_TOPIC
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from broker.server import Server
from coordinator.share.share_partition_key import SharePartitionKey
from protocol.errors import Error
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.share_state import (
    DeletePartition,
    DeleteShareGroupStateRequest,
    DeleteStateData,
    InitializePartition,
    InitializeShareGroupStateRequest,
    InitializeStateData,
    ReadPartition,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ReadStateData,
    ReadStateSummaryData,
    StateBatch,
    SummaryPartition,
    WritePartition,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from tests.node.transactional import ask, create, delete
from tests.support.denying import DenyingAuthorizer
from tests.support.whole_server import clock_of, started


def topic_id_of(node: Server, name: str = "t") -> bytes:
    return node.metadata.image.topics[name].topic_id


def find(node: Server, key: str) -> Any:
    (found,) = ask(node, FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6).coordinators
    return found


async def coordinating(folder: Path, *settings: str) -> Server:
    """Start a broker that is already coordinator of share states, with a topic `t` of three partitions."""
    node = await started(folder, "share.coordinator.state.topic.num.partitions=3", *settings)
    if "t" not in node.metadata.image.topics:
        create(node, "t", 3)
        key = SharePartitionKey("g", topic_id_of(node), 0).text
        assert find(node, key).error_code == Error.NONE
    return node


def errors(response: Any) -> list[int]:
    return [part.error_code for topic in response.results for part in topic.partitions]


def initialize(
    node: Server, partitions: Sequence[int] = (0, 1, 2), topic: str = "t", state_epoch: int = 1
) -> Any:
    parts = [
        InitializePartition(partition=index, state_epoch=state_epoch, start_offset=-1) for index in partitions
    ]
    data = InitializeStateData(topic_id=topic_id_of(node, topic), partitions=parts)
    return ask(node, InitializeShareGroupStateRequest(group_id="g", topics=[data]), 0)


def write(
    node: Server, partitions: Sequence[int] = (0, 1, 2), first: int = 0, delivery_state: int = 2
) -> Any:
    batch = StateBatch(
        first_offset=first, last_offset=first + 9, delivery_state=delivery_state, delivery_count=1
    )
    parts = [
        WritePartition(
            partition=index,
            state_epoch=1,
            start_offset=first,
            delivery_complete_count=10,
            state_batches=[batch],
        )
        for index in partitions
    ]
    data = WriteStateData(topic_id=topic_id_of(node), partitions=parts)
    return ask(node, WriteShareGroupStateRequest(group_id="g", topics=[data]), 1)


def read(node: Server, partitions: Sequence[int] = (0, 1, 2), leader_epoch: int = 0) -> Any:
    parts = [ReadPartition(partition=index, leader_epoch=leader_epoch) for index in partitions]
    data = ReadStateData(topic_id=topic_id_of(node), partitions=parts)
    return ask(node, ReadShareGroupStateRequest(group_id="g", topics=[data]), 0)


def summaries(node: Server, topic_id: bytes, partitions: Sequence[int] = (0, 1, 2)) -> Any:
    parts = [SummaryPartition(partition=index) for index in partitions]
    data = ReadStateSummaryData(topic_id=topic_id, partitions=parts)
    return ask(node, ReadShareGroupStateSummaryRequest(group_id="g", topics=[data]), 1)


def forget(node: Server, partitions: Sequence[int]) -> Any:
    data = DeleteStateData(
        topic_id=topic_id_of(node), partitions=[DeletePartition(partition=index) for index in partitions]
    )
    return ask(node, DeleteShareGroupStateRequest(group_id="g", topics=[data]), 0)


def log_starts(node: Server) -> list[int]:
    topic = node.partitions.by_name[SHARE_STATE_TOPIC]
    return [topic.partitions[index].log.log_start_offset for index in sorted(topic.partitions)]


async def test_the_first_question_for_a_coordinator_makes_the_topic_of_states(tmp_path: Path) -> None:
    node = await started(tmp_path, "share.coordinator.state.topic.segment.bytes=5000000")
    found = find(node, SharePartitionKey("g", bytes(15) + b"\1", 0).text)

    assert (found.error_code, found.node_id) == (Error.NONE, node.node_id)
    assert len(node.partitions.by_name[SHARE_STATE_TOPIC].partitions) == 50
    assert dict(node.metadata.image.config_of_topic(SHARE_STATE_TOPIC)) == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "5000000",
    }


async def test_without_its_topic_no_state_is_coordinated_here(node: Server) -> None:
    create(node, "t", 3)
    assert errors(initialize(node)) == [Error.NOT_COORDINATOR] * 3
    assert errors(read(node)) == [Error.NOT_COORDINATOR] * 3


async def test_a_written_state_is_read_and_survives_a_restart(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    assert errors(initialize(node)) == [0, 0, 0]
    assert errors(write(node)) == [0, 0, 0]
    assert errors(forget(node, [1])) == [0]
    before = read(node)
    assert errors(before) == [0, Error.INVALID_REQUEST, 0]
    assert [batch.last_offset for batch in before.results[0].partitions[0].state_batches] == [9]
    await node.stop()

    node = await coordinating(tmp_path)
    assert read(node) == before
    assert errors(write(node, first=20)) == [0, Error.INVALID_REQUEST, 0]
    summary = summaries(node, topic_id_of(node)).results[0].partitions
    assert [part.start_offset for part in summary] == [20, -1, 20]
    assert [part.delivery_complete_count for part in summary] == [10, -1, 10]


async def test_a_deleted_topic_takes_its_states_along(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    create(node, "u", 3)
    initialize(node)
    initialize(node, topic="u")
    topic_id = topic_id_of(node)
    shards = [node.share_states.shard_of(SharePartitionKey("g", topic_id, index)) for index in range(3)]
    delete(node, "t")
    assert errors(summaries(node, topic_id)) == [Error.UNKNOWN_TOPIC_OR_PARTITION] * 3
    assert all(
        SharePartitionKey("g", topic_id, index) not in shard.known for index, shard in enumerate(shards)
    )
    assert errors(summaries(node, topic_id_of(node, "u"))) == [0, 0, 0]
    await node.stop()

    node = await coordinating(tmp_path)
    shards = [node.share_states.shard_of(SharePartitionKey("g", topic_id, index)) for index in range(3)]
    assert all(
        SharePartitionKey("g", topic_id, index) not in shard.known for index, shard in enumerate(shards)
    )


async def test_without_its_topic_a_coordinator_refuses_everybody(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    initialize(node)
    delete(node, SHARE_STATE_TOPIC)
    assert errors(write(node)) == [Error.NOT_COORDINATOR] * 3


async def test_only_a_broker_may_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await coordinating(tmp_path)
    authorizer = DenyingAuthorizer().deny(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    monkeypatch.setattr(node, "authorizer", authorizer)
    for answer in (
        initialize(node),
        write(node),
        read(node),
        forget(node, (0, 1, 2)),
        summaries(node, bytes(16)),
    ):
        assert errors(answer) == [Error.CLUSTER_AUTHORIZATION_FAILED] * 3


async def test_the_log_doesnt_grow_for_ever(tmp_path: Path) -> None:
    node = await coordinating(
        tmp_path,
        "share.coordinator.state.topic.prune.interval.ms=1000",
        "share.coordinator.cold.partition.snapshot.interval.ms=600",
    )
    initialize(node)
    for first in range(10):
        write(node, first=first)
    clock = clock_of(node)
    for _ in range(4):
        clock.advance_ms(700)
        node.timers.fire_due()
    before = read(node)
    topic = node.partitions.by_name[SHARE_STATE_TOPIC]
    assert sum(log_starts(node)) > 0
    for partition in topic.partitions.values():
        assert partition.log.log_end_offset - partition.log.log_start_offset <= 3
    await node.stop()

    node = await coordinating(tmp_path)
    assert read(node) == before
    assert errors(before) == [0, 0, 0]


async def test_any_delivery_state_is_accepted_as_by_kafka(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    initialize(node)
    assert errors(write(node, [0], delivery_state=77)) == [0]
    ((found,),) = [topic.partitions for topic in read(node, [0]).results]
    assert [batch.delivery_state for batch in found.state_batches] == [77]
