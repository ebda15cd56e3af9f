"""A broker tells its controller where its replicas are: together, one request at a time, until each is known."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from broker.controller.broker_records import BrokerIncarnation
from broker.controller.image import ClusterImage
from broker.peers.assignments_manager import (
    ASSIGNMENTS_BACK_OFF_MS,
    ASSIGNMENTS_TIMEOUT_MS,
    GATHERING_MS,
    MAX_ASSIGNMENTS_PER_REQUEST,
    AssignmentsManager,
)
from protocol.errors import Error, KafkaError
from protocol.messages.broker_to_controller import (
    AssignedDirectory,
    AssignedDirectoryResult,
    AssignedPartition,
    AssignedPartitionResult,
    AssignedTopic,
    AssignedTopicResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from protocol.messages.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from tests.support.controller_channel import Channel, Timers

ORDERS, LINES = bytes(15) + b"\x07", bytes(15) + b"\x08"
FAST, LARGE = bytes(15) + b"\xf1", bytes(15) + b"\xf2"
US, OTHERS = 1, 2

Replica = tuple[bytes, int]


class Broker:
    """A broker with replicas of two topics' first partitions. `known` lists those that the controller knows, as it was
    told."""

    def __init__(self, partitions: int = 3) -> None:
        self.timers, self.channel = Timers(), Channel()
        self.broker_epoch = 40
        self.known: list[Replica] = []
        self.image = ClusterImage()
        for name, topic_id in (("orders", ORDERS), ("lines", LINES)):
            self.image.apply(TopicRecord(name=name, topic_id=topic_id))
            for index in range(partitions):
                self.image.apply(
                    PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[OTHERS, US])
                )
        self.manager = AssignmentsManager(
            lambda: BrokerIncarnation(US, self.broker_epoch),
            self.image,
            self.channel,  # type: ignore[arg-type]
            self.timers,
        )

    def assign(self, topic_id: bytes, index: int, directory_id: bytes = FAST) -> None:
        known = self.manager.assign((topic_id, index), directory_id)
        known.when_answered(lambda: self.known.append((topic_id, index)))

    def asked(self) -> list[tuple[bytes, Replica]]:
        """Return each (directory id, replica) of the request in flight."""
        request = self.channel.request
        assert isinstance(request, AssignReplicasToDirsRequest)
        return [
            (directory.id, (topic.topic_id, partition.partition_index))
            for directory in request.directories
            for topic in directory.topics
            for partition in topic.partitions
        ]

    def answer(self, error: Error = Error.NONE, but: Collection[Replica] = ()) -> None:
        """Answer the request the same for all its replicas, and leave out those in `but`."""
        self.channel.answer(
            AssignReplicasToDirsResponse(
                directories=[
                    AssignedDirectoryResult(
                        id=directory_id,
                        topics=[
                            AssignedTopicResult(
                                topic_id=topic_id,
                                partitions=[AssignedPartitionResult(partition_index=index, error_code=error)],
                            )
                        ],
                    )
                    for directory_id, (topic_id, index) in self.asked()
                    if (topic_id, index) not in but
                ]
            )
        )


def test_assignments_within_a_tenth_of_a_second_go_together() -> None:
    broker = Broker()
    broker.assign(ORDERS, 0)
    broker.timers.now_s += 0.05
    for topic_id, index, directory_id in [(LINES, 1, LARGE), (ORDERS, 2, FAST), (LINES, 0, FAST)]:
        broker.assign(topic_id, index, directory_id)
    assert broker.manager.pending == 4
    assert len(broker.timers.waiting) == 1
    assert broker.timers.next() == GATHERING_MS - 50
    assert broker.channel.request == AssignReplicasToDirsRequest(
        broker_id=US,
        broker_epoch=40,
        directories=[
            AssignedDirectory(
                id=FAST,
                topics=[
                    AssignedTopic(
                        topic_id=ORDERS,
                        partitions=[
                            AssignedPartition(partition_index=0),
                            AssignedPartition(partition_index=2),
                        ],
                    ),
                    AssignedTopic(topic_id=LINES, partitions=[AssignedPartition(partition_index=0)]),
                ],
            ),
            AssignedDirectory(
                id=LARGE,
                topics=[AssignedTopic(topic_id=LINES, partitions=[AssignedPartition(partition_index=1)])],
            ),
        ],
    )
    assert broker.channel.timeout_ms == ASSIGNMENTS_TIMEOUT_MS
    broker.answer()
    assert broker.known == [(ORDERS, 0), (ORDERS, 2), (LINES, 0), (LINES, 1)]
    assert broker.manager.pending == 0
    assert broker.timers.waiting == []


def test_assignments_made_during_a_request_go_with_the_next() -> None:
    broker = Broker()
    broker.assign(ORDERS, 0)
    broker.timers.next()
    broker.assign(ORDERS, 1)
    assert broker.timers.next() == GATHERING_MS
    assert broker.asked() == [(FAST, (ORDERS, 0))]
    broker.answer()
    assert broker.timers.next() == GATHERING_MS
    assert broker.asked() == [(FAST, (ORDERS, 1))]


def test_the_later_of_two_assignments_of_a_replica_counts() -> None:
    broker = Broker()
    broker.assign(ORDERS, 0, FAST)
    broker.assign(ORDERS, 0, LARGE)
    broker.timers.next()
    assert broker.asked() == [(LARGE, (ORDERS, 0))]
    broker.assign(ORDERS, 0, FAST)  # while that is on its way
    broker.channel.answer(KafkaError(Error.REQUEST_TIMED_OUT))
    broker.timers.next()
    assert broker.asked() == [(FAST, (ORDERS, 0))]
    broker.answer()
    assert broker.known == [(ORDERS, 0)]


@pytest.mark.parametrize(
    "failure",
    [
        KafkaError(Error.REQUEST_TIMED_OUT),
        KafkaError(Error.UNSUPPORTED_VERSION),
        AssignReplicasToDirsResponse(error_code=Error.STALE_BROKER_EPOCH),
        AssignReplicasToDirsResponse(error_code=12_345),
    ],
)
def test_a_request_that_failed_is_sent_again_ever_later(
    failure: AssignReplicasToDirsResponse | KafkaError,
) -> None:
    broker = Broker()
    broker.assign(ORDERS, 0)
    broker.timers.next()
    for waited_ms in (200, 400, 800, 1_600, 3_200, 6_400, ASSIGNMENTS_BACK_OFF_MS, ASSIGNMENTS_BACK_OFF_MS):
        broker.channel.answer(failure)
        broker.assign(ORDERS, 1)  # doesn't make the request go sooner
        assert broker.timers.next() == waited_ms
    broker.broker_epoch = 50
    broker.channel.answer(failure)
    broker.timers.next()
    assert broker.channel.request.broker_epoch == 50
    broker.answer()
    assert broker.known == [(ORDERS, 0), (ORDERS, 1)]
    broker.assign(ORDERS, 2)
    assert broker.timers.next() == GATHERING_MS


def test_refused_or_omitted_assignments_are_sent_again() -> None:
    broker = Broker()
    broker.assign(ORDERS, 0)
    broker.timers.next()
    broker.answer(Error.UNKNOWN_TOPIC_ID)  # the controller lags, or this node would have left the topic out
    assert broker.timers.next() == GATHERING_MS
    broker.answer(but=[(ORDERS, 0)])
    assert broker.timers.next() == GATHERING_MS
    broker.answer()
    assert broker.known == [(ORDERS, 0)]


def test_an_answer_about_unasked_partitions_changes_nothing() -> None:
    broker = Broker()
    broker.assign(ORDERS, 0)
    broker.timers.next()
    broker.channel.answer(
        AssignReplicasToDirsResponse(
            directories=[
                AssignedDirectoryResult(
                    id=FAST,
                    topics=[
                        AssignedTopicResult(
                            topic_id=LINES, partitions=[AssignedPartitionResult(partition_index=9)]
                        )
                    ],
                )
            ]
        )
    )
    assert broker.known == []
    assert broker.manager.pending == 1


def test_replicas_that_are_gone_by_now_are_left_out() -> None:
    broker = Broker()
    broker.image.apply(PartitionRecord(partition_id=8, topic_id=ORDERS, replicas=[OTHERS]))
    for topic_id, index in [(ORDERS, 8), (ORDERS, 9), (LINES, 0), (bytes(15) + b"\x09", 0)]:
        broker.assign(topic_id, index)
    broker.image.apply(RemoveTopicRecord(topic_id=LINES))
    broker.timers.next()
    assert not broker.channel.is_busy
    assert broker.manager.pending == 0
    assert broker.timers.waiting == []


@pytest.mark.limit("broker.peers.assignments_manager.MAX_ASSIGNMENTS_PER_REQUEST")
def test_a_request_has_a_limit_and_the_next_one_follows_at_once() -> None:
    broker = Broker(MAX_ASSIGNMENTS_PER_REQUEST + 1)
    for topic_id in (ORDERS, LINES):
        for index in range(MAX_ASSIGNMENTS_PER_REQUEST + 1):
            broker.assign(topic_id, index)
    assert broker.timers.next() == 0  # the request is full, so it waits for no more
    assert len(broker.asked()) == MAX_ASSIGNMENTS_PER_REQUEST
    broker.answer()
    assert broker.timers.next() == 0
    assert len(broker.asked()) == MAX_ASSIGNMENTS_PER_REQUEST
    broker.answer()
    assert broker.timers.next() == GATHERING_MS
    assert broker.asked() == [(FAST, (LINES, index)) for index in range(2_249, 2_251)]


def test_a_request_about_nothing_but_gone_replicas_is_skipped_and_the_rest_follows() -> None:
    broker = Broker()
    for index in range(3, MAX_ASSIGNMENTS_PER_REQUEST + 3):
        broker.assign(ORDERS, index)  # there are three
    broker.assign(LINES, 0)
    assert broker.timers.next() == 0
    assert not broker.channel.is_busy
    broker.timers.next()
    assert broker.asked() == [(FAST, (LINES, 0))]


def test_a_callback_that_fails_keeps_no_other_replica_from_being_known() -> None:
    broker = Broker()

    def fail() -> None:
        raise ZeroDivisionError

    broker.manager.assign((ORDERS, 0), FAST).when_answered(fail)
    broker.assign(ORDERS, 1)
    broker.timers.next()
    with pytest.raises(ZeroDivisionError):
        broker.answer()
    broker.timers.next()
    assert broker.asked() == [(FAST, (ORDERS, 1))]


@pytest.mark.parametrize("when", ["gathering", "asked", "failed"])
def test_after_a_stop_no_callback_is_called_and_nothing_is_asked(when: str) -> None:
    broker = Broker()
    broker.assign(ORDERS, 0)
    if when != "gathering":
        broker.timers.next()
    if when == "failed":
        broker.channel.answer(KafkaError(Error.REQUEST_TIMED_OUT))
    broker.manager.stop()
    broker.assign(ORDERS, 1)
    assert broker.timers.waiting == []
    assert not broker.channel.is_busy
    assert (broker.known, broker.manager.pending) == ([], 0)


def test_no_callback_follows_the_one_that_stops_the_manager() -> None:
    broker = Broker()
    broker.manager.assign((ORDERS, 0), FAST).when_answered(broker.manager.stop)
    broker.assign(ORDERS, 1)
    broker.timers.next()
    broker.answer()
    assert (broker.known, broker.manager.pending) == ([], 0)
    assert broker.timers.waiting == []
