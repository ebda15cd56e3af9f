"""WriteTxnMarkers, by which an administrator or another broker has markers written into partitions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.coordination.transactions import AT_ONCE_PER_TURN, MANY_MARKERS, MARKERS_PER_TURN
from broker.environment.scheduler import TURN_S
from broker.server import Server
from coordinator.ports import TxnMarker
from protocol.errors import Error
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.records.batch import TIMESTAMP_TYPE_BIT
from tests.node.transactional import (
    Producer,
    ask,
    committed,
    coordinating,
    markers,
    state,
)
from tests.support.answers import answered
from tests.support.topics import topics_of
from tests.support.whole_server import clock_of


def mark(
    node: Server,
    producer_id: int,
    epoch: int,
    *partitions: tuple[str, int],
    commit: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()
        ],
    )


def found_in(answer: Any) -> dict[int, dict[tuple[str, int], Error]]:
    return {
        marker.producer_id: {
            (topic.name, partition.partition_index): Error(partition.error_code)
            for topic in marker.topics
            for partition in topic.partitions
        }
        for marker in answer.markers
    }


def write(
    node: Server, *wanted: WritableTxnMarker, version: int = 2
) -> dict[int, dict[tuple[str, int], Error]]:
    return found_in(ask(node, WriteTxnMarkersRequest(markers=[*wanted]), version))


async def test_an_administrators_marker_ends_a_transaction_only_in_its_partition(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()

    answers = write(
        node, mark(node, producer.producer_id, producer.epoch, ("t", 0), ("nowhere", 0), ("t", 9))
    )

    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert answers == {
        producer.producer_id: {("t", 0): Error.NONE, ("nowhere", 0): unknown, ("t", 9): unknown}
    }
    log = node.partitions.get("t", 0).log
    assert log.last_stable_offset == log.log_end_offset == 2
    assert state(node) == "Ongoing"


async def test_markers_of_one_producer_share_an_answer(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)

    answers = write(node, mark(node, 5, 0, ("t", 0)), mark(node, 5, 0, ("t", 1)), mark(node, 6, 0, ("t", 0)))

    assert answers == {5: {("t", 0): Error.NONE, ("t", 1): Error.NONE}, 6: {("t", 0): Error.NONE}}


async def test_no_markers_and_markers_of_nothing_are_answered(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)

    assert write(node) == {}
    assert write(node, mark(node, 5, 0, ("t", 0)), mark(node, 6, 0)) == {5: {("t", 0): Error.NONE}}
    assert write(node, mark(node, 5, 0, ("t", 0), ("t", 0))) == {5: {("t", 0): Error.NONE}}
    assert len(markers(node)) == 2


async def test_a_marker_has_to_be_of_a_coordinator_and_an_epoch_that_are_not_over(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    name = ("t", 0)
    write(node, mark(node, 5, 3, name, coordinator_epoch=4))

    assert write(node, mark(node, 5, 3, name, coordinator_epoch=3)) == {
        5: {name: Error.TRANSACTION_COORDINATOR_FENCED}
    }
    assert write(node, mark(node, 5, 2, name, coordinator_epoch=4)) == {
        5: {name: Error.INVALID_PRODUCER_EPOCH}
    }


async def test_a_marker_of_version_2_has_to_be_of_the_next_epoch_while_one_is_open(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    name, owner = ("t", 0), (producer.producer_id, producer.epoch)

    strict = mark(node, *owner, name, transaction_version=2)
    assert write(node, strict) == {owner[0]: {name: Error.INVALID_PRODUCER_EPOCH}}
    following = mark(node, owner[0], owner[1] + 1, name, transaction_version=2)
    assert write(node, following) == {owner[0]: {name: Error.NONE}}
    assert write(node, following) == {owner[0]: {name: Error.NONE}}, "KAFKA-19999: a retry"


async def test_a_marker_lets_a_groups_offsets_count_before_it_is_answered(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.commit_offsets(7)

    marker = mark(node, producer.producer_id, producer.epoch, ("__consumer_offsets", 0), commit=True)
    assert write(node, marker) == {producer.producer_id: {("__consumer_offsets", 0): Error.NONE}}

    assert committed(node) == (7, Error.NONE)


async def test_a_group_coordinator_that_can_not_answer_is_asked_again(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    node.groups.hosted._hosted.clear()

    answers = write(node, mark(node, 5, 0, ("__consumer_offsets", 0)))

    assert answers == {5: {("__consumer_offsets", 0): Error.NOT_LEADER_OR_FOLLOWER}}
    assert markers(node, "__consumer_offsets") == []


async def test_markers_for_many_partitions_are_answered_when_all_are_written(tmp_path: Path) -> None:
    count = MARKERS_PER_TURN + 1
    node = await coordinating(tmp_path, partitions=count)

    waiting = ask(
        node, WriteTxnMarkersRequest(markers=[mark(node, 5, 0, *[("t", index) for index in range(count)])]), 2
    )
    assert markers(node, index=MARKERS_PER_TURN) == []
    answer = await answered(waiting)

    assert found_in(answer) == {5: {("t", index): Error.NONE for index in range(count)}}


async def test_a_marker_in_a_topic_of_append_times_has_one(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    topics_of(node).create(
        [
            CreatableTopic(
                name="times",
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="message.timestamp.type", value="LogAppendTime")],
            )
        ]
    )

    write(node, mark(node, 5, 0, ("times", 0)))

    [header] = markers(node, "times")
    assert header.attributes & TIMESTAMP_TYPE_BIT
    assert header.max_timestamp == node.clock.now_ms()


async def test_a_partition_that_is_known_and_not_led_gets_its_marker_before_the_commit_is_done(
    tmp_path: Path,
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    partition = node.partitions.by_name["t"].partitions.pop(0)

    answers: dict[tuple[str, int], Error | None] = {}
    node.markers.write(TxnMarker(5, 0, 0, True, 0), [("t", 0), ("nowhere", 0)], answers.update)
    assert answers == {("t", 0): Error.NOT_LEADER_OR_FOLLOWER, ("nowhere", 0): None}
    producer.end(commit=True)
    assert state(node) == "PrepareCommit"

    node.partitions.by_name["t"].partitions[0] = partition
    clock_of(node).advance_ms(1_000)
    node.timers.fire_due()
    assert state(node) == "CompleteCommit"
    assert len(markers(node)) == 1


@pytest.mark.limit("broker.coordination.transactions.AT_ONCE_PER_TURN")
async def test_many_transactions_that_end_together_let_others_be_served_in_between(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    ended: list[int] = []
    for producer_id in range(AT_ONCE_PER_TURN + 50):
        node.markers.write(
            TxnMarker(producer_id, 0, 0, True, 0),
            [("t", 0)],
            lambda _, which=producer_id: ended.append(which),
        )
    assert len(ended) == AT_ONCE_PER_TURN
    while len(ended) < AT_ONCE_PER_TURN + 50:
        await asyncio.sleep(0)
    assert ended == [*range(AT_ONCE_PER_TURN + 50)]


@pytest.mark.limit("broker.coordination.transactions.MANY_MARKERS")
async def test_a_turn_is_over_when_the_markers_of_it_have_taken_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path, partitions=8)
    append = node.markers._append

    def slow(*given: Any) -> None:
        clock_of(node).advance_ms(int(TURN_S * 1000) // 2)
        append(*given)

    monkeypatch.setattr(node.markers, "_append", slow)
    answered: list[int] = []
    written = []
    for producer_id, indexes in ((1, range(5)), (2, range(5, 5 + MANY_MARKERS)), (3, range(7, 8))):
        partitions = [("t", index) for index in indexes]
        node.markers.write(
            TxnMarker(producer_id, 0, 0, True, 0), partitions, lambda done: answered.append(len(done))
        )
    for _ in range(7):
        written.append(sum(len(markers(node, index=index)) for index in range(8)))
        await asyncio.sleep(0)
    assert written == [2, 4, 6, 7, 8, 8, 8]
    assert sum(answered) == 8


async def test_no_marker_is_written_once_the_node_stops(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    answers: list[Any] = []

    node.markers.stop()
    marker = TxnMarker(producer.producer_id, producer.epoch + 1, 0, True, 2)
    node.markers.write(marker, [("t", 0)], answers.append)

    assert (markers(node), answers) == ([], [])
