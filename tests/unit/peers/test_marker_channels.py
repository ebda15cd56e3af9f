"""Markers of transactions: each goes to the leader of its partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker.controller.image import NO_LEADER
from broker.peers.other_brokers import MarkerChannels
from coordinator.ports import MarkerAnswers, TxnMarker
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from protocol.topic_partition import TopicPartition
from tests.unit.peers.several_brokers import OWN, SECOND, THIRD, Channels, cluster

MARKER = TxnMarker(producer_id=9, producer_epoch=2, coordinator_epoch=5, commit=True, transaction_version=2)


class OwnMarkers:
    def __init__(self) -> None:
        self.written: list[TopicPartition] = []

    def write(
        self, marker: TxnMarker, partitions: Sequence[TopicPartition], done: Callable[[MarkerAnswers], None]
    ) -> None:
        self.written += partitions
        done(dict.fromkeys(partitions, Error.NONE))


class Markers:
    def __init__(self, *leaders: int) -> None:
        self.own, self.channels = OwnMarkers(), Channels()
        self.markers = MarkerChannels(OWN, cluster("t", leaders), self.own, self.channels)
        self.answers: dict[TopicPartition, Error | None] = {}

    def write(self, *partitions: TopicPartition, marker: TxnMarker = MARKER) -> None:
        self.markers.write(marker, partitions, self.answers.update)


def told(*results: tuple[int, str, int, int]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error_code)
                        ],
                    )
                ],
            )
            for producer_id, name, index, error_code in results
        ]
    )


def test_each_marker_goes_to_the_partitions_leader() -> None:
    node = Markers(OWN, SECOND, THIRD, SECOND, NO_LEADER)
    node.write(*(("t", index) for index in range(5)), ("gone", 0), ("t", 7))
    assert node.own.written == [
        ("t", 0),
        ("gone", 0),
        ("t", 7),
    ]  # partitions that don't exist go to this node too, which reports them when it writes markers
    assert [[*each.partitions] for each in node.channels.items(SECOND)] == [[("t", 1), ("t", 3)]]
    assert [[*each.partitions] for each in node.channels.items(THIRD)] == [[("t", 2)]]
    assert node.answers.pop(("t", 4)) is Error.NOT_LEADER_OR_FOLLOWER
    assert node.answers == dict.fromkeys(node.own.written, Error.NONE)
    node.markers.stop()
    assert node.channels.is_stopped


def test_markers_of_several_transactions_are_in_one_request() -> None:
    node = Markers(SECOND, SECOND)
    node.write(("t", 0), ("t", 1))
    node.write(("t", 0), marker=MARKER._replace(producer_id=10, commit=False))
    request: Any = node.channels.request_of(node.channels.items(SECOND))
    assert [
        (
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.transaction_result,
            each.transaction_version,
            [(topic.name, topic.partition_indexes) for topic in each.topics],
        )
        for each in request.markers
    ] == [(9, 2, 5, True, 2, [("t", [0, 1])]), (10, 2, 5, False, 2, [("t", [0])])]


@pytest.mark.parametrize(
    ("answer", "first", "second"),
    [
        (told((9, "t", 0, 0), (9, "t", 1, 6)), Error.NONE, Error.NOT_LEADER_OR_FOLLOWER),
        (told((9, "t", 0, 9_999), (9, "t", 1, 0)), Error.UNKNOWN_SERVER_ERROR, Error.NONE),
        (told((10, "t", 0, 0)), Error.REQUEST_TIMED_OUT, Error.REQUEST_TIMED_OUT),
        (KafkaError(Error.NETWORK_EXCEPTION), Error.REQUEST_TIMED_OUT, Error.REQUEST_TIMED_OUT),
        (KafkaError(Error.UNSUPPORTED_VERSION), Error.REQUEST_TIMED_OUT, Error.REQUEST_TIMED_OUT),
    ],
)
def test_a_marker_without_an_answer_has_to_be_sent_again(answer: Any, first: Error, second: Error) -> None:
    node = Markers(SECOND, SECOND)
    node.write(("t", 0), ("t", 1))
    node.channels.answered(node.channels.items(SECOND), answer)
    assert node.answers == {("t", 0): first, ("t", 1): second}
